/*
 * test_library.cpp - search paths of the CUDA toolkit's libraries: all are searched in order, and
 * the error lists them.
 *
 * Each test has its own current folder. Its subfolder `root` replaces the file system root. Copies
 * of one small library, under an otherwise unused name, replace the toolkit's libraries.
 */
static const char *test_root(void);
#define GSV_LIBRARY_ROOT test_root()
#include "kernels/cuda/runtime/toolkit_loader.cu"

#include <criterion/criterion.h>
#include <fstream>
#include <link.h>
#include <string>
#include <sys/stat.h>

namespace
{

const char name[] = "libgsv-test-found.so";

/* The search paths by priority, below the current folder. */
const char *const ranks[] = {
    "root/usr/local/nvidia/lib64",
    "home/lib64",
    "home/lib",
    "path/lib64",
    "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
    "conda/lib/python3.12/site-packages/nvidia/cu13/lib",
    "conda/lib",
    "conda/targets/x86_64-linux/lib",
    "root/usr/local/cuda/lib64",
    "root/usr/local/cuda-13.1/lib64",
    "root/opt/cuda/lib64",
};
const size_t n_ranks = sizeof(ranks) / sizeof(ranks[0]);

std::string here()
{
    char path[PATH_MAX];

    cr_assert_not_null(getcwd(path, sizeof(path)));
    return path;
}

/* Creates `folder` with its parents below the current folder, with a copy of SMALL_LIBRARY as
 * `name`. */
std::string put(const std::string &folder)
{
    const std::string file = folder + "/" + name;

    cr_assert_eq(system(("mkdir -p " + folder).c_str()), 0);
    cr_assert_eq(system(("cp " SMALL_LIBRARY " " + file).c_str()), 0);
    return file;
}

void begin()
{
    char path[] = "/tmp/gpuserve-library-XXXXXX";

    cr_assert_not_null(mkdtemp(path));
    cr_assert_eq(chdir(path), 0);
    setenv("CUDA_HOME", (here() + "/home").c_str(), 1);
    setenv("CUDA_PATH", (here() + "/path").c_str(), 1);
    setenv("VIRTUAL_ENV", (here() + "/venv").c_str(), 1);
    setenv("CONDA_PREFIX", (here() + "/conda").c_str(), 1);
}

void end()
{
    cr_expect_eq(system("rm -r \"$PWD\""), 0);
}

/* Path of the opened file, as the loader reports it. */
std::string opened()
{
    void *const library = gsv_cuda_open_library(name);
    struct link_map *map;
    char path[PATH_MAX] = "nowhere";

    if (!library)
        return path;
    cr_assert_eq(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    cr_assert_not_null(realpath(map->l_name, path));
    dlclose(library);
    return path;
}

std::string message()
{
    char text[16384];

    gsv_cuda_tell_missing(name, text, sizeof(text));
    return text;
}

} // namespace

static const char *test_root(void)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/root", here().c_str());
    return path;
}

/* From lowest to highest priority: each added file is preferred to all earlier ones. */
Test(cuda_library, every_place_in_its_order, .init = begin, .fini = end)
{
    cr_expect(opened() == "nowhere");
    for (size_t i = n_ranks; i-- > 0;) {
        const std::string file = here() + "/" + put(ranks[i]);

        cr_expect(opened() == file, "%s", file.c_str());
    }
}

Test(cuda_library, each_place_alone, .init = begin, .fini = end)
{
    for (const char *const place : ranks) {
        const std::string file = here() + "/" + put(place);

        cr_expect(opened() == file, "%s", file.c_str());
        cr_assert_eq(unlink(file.c_str()), 0);
    }
}

Test(cuda_library, the_loaders_path_is_first, .init = begin, .fini = end)
{
    void *const library = gsv_cuda_open_library("libm.so.6");

    cr_assert_not_null(library);
    dlclose(library);
}

Test(cuda_library, a_variable_that_is_no_absolute_path_is_not_looked_at, .init = begin, .fini = end)
{
    put("home/lib64");
    setenv("CUDA_HOME", "home", 1);
    cr_expect(opened() == "nowhere");
}

Test(cuda_library, the_message_names_the_library_and_every_place, .init = begin, .fini = end)
{
    const std::string text = message();

    cr_expect(text.find(name) == 0, "%s", text.c_str());
    cr_expect(text.find("the loader's path") != std::string::npos, "%s", text.c_str());
    for (const char *const place : ranks) {
        const char *const python = strstr(place, "/python3");
        std::string shown = python ? std::string(place, python + 8) : place;

        if (strstr(place, "cuda-13.1")) /* listed if it is there */
            continue;
        cr_expect(text.find(shown) != std::string::npos, "%s lacks %s", text.c_str(), place);
    }
}

Test(cuda_library, one_that_cannot_be_loaded_is_told_with_the_cause, .init = begin, .fini = end)
{
    const std::string file = put("home/lib64");
    std::string text;

    std::ofstream(file, std::ios::trunc) << "no library";
    cr_expect(opened() == "nowhere");
    text = message();
    cr_expect(text.find("home/lib64") != std::string::npos, "%s", text.c_str());
    cr_expect(text.find("cannot be loaded") != std::string::npos, "%s", text.c_str());
    put("root/usr/local/cuda/lib64");
    cr_expect(opened().find("root/usr/local/cuda/lib64") != std::string::npos, "the next place");
}

/* The plugin of a wheel is in gpuserve/_native, NVIDIA's wheels are in the same site-packages. */
Test(cuda_library, the_wheels_next_to_the_plugins_wheel, .init = begin, .fini = end)
{
    const std::string site = here() + "/lib/python3.11/site-packages";
    const std::string plugin = site + "/gpuserve/_native/libgpuserve-cuda.so";
    void *(*open_library)(const char *);

    cr_assert_eq(
        system(
            ("mkdir -p " + site + "/gpuserve/_native && cp " LOADER_PLUGIN " " + plugin).c_str()),
        0);
    put(site + "/nvidia/cu13/lib");
    put(site + "/nvidia/cuda_nvrtc/lib");
    cr_assert_eq(rename((site + "/nvidia/cuda_nvrtc/lib/" + name).c_str(),
                        (site + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.gsv").c_str()),
                 0);
    void *const handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    open_library = reinterpret_cast<void *(*)(const char *)>(dlsym(handle, "test_open_library"));
    cr_assert_not_null(open_library);
    cr_expect_not_null(open_library(name), "the folder of CUDA 13");
    cr_expect_not_null(open_library("libnvrtc.so.gsv"), "a folder of CUDA 12");
    cr_expect_null(open_library("libcurand.so.gsv"));
}
