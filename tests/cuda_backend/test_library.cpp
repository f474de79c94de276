/*
 * test_library.cpp - the toolkit's libraries are found in every place where they may lie.
 *
 * The places are made in a folder of the test's own, each with a copy of one small library.
 */
#include "kernels/cuda/library.cu"

#include <criterion/criterion.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

const char name[] = "libgsv-test-found.so";

/* A copy of SMALL_LIBRARY in `folder`, which is made with all above it. */
void put(const std::string &folder)
{
    for (size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1))
        mkdir(folder.substr(0, at).c_str(), 0755);
    mkdir(folder.c_str(), 0755);
    const std::string link = folder + "/" + name;
    cr_assert_eq(symlink(SMALL_LIBRARY, link.c_str()), 0, "%s", link.c_str());
}

std::string make_folder()
{
    char path[] = "/tmp/gpuserve-library-XXXXXX";

    cr_assert_not_null(mkdtemp(path));
    return path;
}

void expect_found_by(const char *variable, const char *below)
{
    const std::string folder = make_folder();

    unsetenv("CUDA_HOME");
    unsetenv("CUDA_PATH");
    unsetenv("VIRTUAL_ENV");
    put(folder + below);
    cr_expect_null(gsv_cuda_open_library(name), "nothing leads there yet");
    setenv(variable, folder.c_str(), 1);
    cr_expect_not_null(gsv_cuda_open_library(name), "%s with %s", variable, below);
    setenv(variable, "not/absolute", 1);
    cr_expect_null(gsv_cuda_open_library("libgsv-test-not-there.so"));
    cr_expect_eq(system(("rm -r " + folder).c_str()), 0);
}

} // namespace

Test(cuda_library, the_toolkit_in_cuda_home)
{
    expect_found_by("CUDA_HOME", "/lib64");
}

Test(cuda_library, the_toolkit_in_cuda_home_as_the_wheels_have_it)
{
    expect_found_by("CUDA_HOME", "/lib");
}

Test(cuda_library, the_toolkit_in_cuda_path)
{
    expect_found_by("CUDA_PATH", "/lib64");
}

Test(cuda_library, the_wheels_of_an_active_environment)
{
    expect_found_by("VIRTUAL_ENV", "/lib/python3.11/site-packages/nvidia/cu13/lib");
}

Test(cuda_library, the_loaders_path)
{
    cr_expect_not_null(gsv_cuda_open_library("libm.so.6"));
    cr_expect_null(gsv_cuda_open_library("libgsv-test-not-there.so"));
}
