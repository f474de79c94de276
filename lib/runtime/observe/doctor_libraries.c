/*
 * doctor_libraries.c - the layers program, library and toolkit libraries; doctor_plugin.c has those
 * between.
 *
 * A library is searched as the loader and the plugin search it. Its version is that of its file's
 * name (libcublasLt.so.13.1.0.3), or of the wheel that it belongs to.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/device.h"
#include "lib/runtime/observe/doctor_layers.h"

#include "lib/base/host/rootfs.h"
#include "lib/runtime/core/context.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WHEELS 32

static const struct {
    enum gsv_layer_id id;
    const char *stem, *major; /* major NULL: CUDA's */
    const char *wheel;        /* "nvidia_" + wheel is the distribution's name */
    const char *without;      /* effect of its absence; NULL: none, the plugin does not use it */
} libraries[] = {
    { GSV_LAYER_CUBLASLT, "libcublasLt.so.", NULL, "cublas",
      "the plugin's own kernels compute all matrix products; large batches are slower" },
    { GSV_LAYER_CUDNN, "libcudnn.so.", "9", "cudnn", NULL },
    { GSV_LAYER_CURAND, "libcurand.so.", "10", "curand", NULL },
    { GSV_LAYER_NVRTC, "libnvrtc.so.", NULL, "cuda_nvrtc",
      "chains of operations run in a precompiled kernel, which is slower" },
};

#define N_LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

/* --------------------------------------------------------------------------------------- search */

/* "580.65.06" of "libcuda.so.580.65.06"; "" of a name without a number after ".so". */
static const char *version_in_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    const char *const found = strstr(slash ? slash : path, ".so.");

    return found ? found + 4 : "";
}

/* The folder of a wheel within site-packages, and the beginning of the wheel's name; NULL for a
 * file that is of no wheel. */
static const char *find_wheel(const char *real, char prefix[64])
{
    const char *const name = strrchr(real, '/') + 1;
    const char *folder = strstr(real, "/gpuserve/_native/");

    snprintf(prefix, 64, "gpuserve");
    if (folder)
        return folder;
    folder = strstr(real, "/nvidia/");
    for (size_t i = 0; folder && i < N_LIBRARIES; i++) {
        if (strncmp(name, libraries[i].stem, strlen(libraries[i].stem)) == 0) {
            snprintf(prefix, 64, "nvidia_%s", libraries[i].wheel);
            return folder;
        }
    }
    return NULL;
}

/* The version of the wheel that has the library: of nvidia_cublas-13.1.0.3.dist-info for
 * nvidia/cu13/lib, of nvidia_cublas_cu12-12.8.4.1.dist-info for nvidia/cublas/lib. */
static void read_wheel_version(const struct gsv_machine *machine, struct gsv_found_library *found)
{
    char site[GSV_ROOTFS_PATH_BYTES], prefix[64];
    const char *const folder = find_wheel(found->real, prefix);
    const bool has_suffix =
        folder && strncmp(folder, "/nvidia/", 8) == 0 && strncmp(folder, "/nvidia/cu1", 11) != 0;
    struct gsv_names names;

    if (!folder)
        return;
    snprintf(site, sizeof(site), "%.*s", (int)(folder - found->real), found->real);
    if (!gsv_rootfs_list(&machine->rootfs, site, prefix, MAX_WHEELS, &names))
        return;
    for (size_t i = 0; i < names.n; i++) {
        const char *const rest = names.names[i] + strlen(prefix);
        const char *const dash = strchr(rest, '-'), *const end = strstr(rest, ".dist-info");

        if (dash && end && dash < end && (dash > rest) == has_suffix &&
            (!has_suffix || strncmp(rest, "_cu", 3) == 0))
            snprintf(found->version, sizeof(found->version), "%.*s", (int)(end - dash - 1),
                     dash + 1);
    }
    gsv_names_free(&names);
}

const char *gsv_machine_check_file(const struct gsv_machine *machine, const char *path,
                                   const char *name)
{
    char soname[GSV_SONAME_BYTES];
    const int fd = gsv_rootfs_open_file(&machine->rootfs, path);
    const char *fault;

    if (fd < 0)
        return "the file cannot be opened";
    fault = gsv_elf_check(fd, soname);
    close(fd);
    if (!fault && soname[0] && strcmp(soname, name) != 0)
        fault = "the file is another version, under a wrong name";
    return fault;
}

static bool try_folder(const struct gsv_machine *machine, const char *folder, const char *name,
                       struct gsv_found_library *found)
{
    char path[GSV_ROOTFS_PATH_BYTES];
    const char *fault;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
        !gsv_rootfs_find(&machine->rootfs, path, found->real, NULL))
        return false;
    fault = gsv_machine_check_file(machine, path, name);
    if (fault && !found->fault) {
        found->fault = fault;
        snprintf(found->fault_path, sizeof(found->fault_path), "%s", path);
    }
    if (fault)
        return false;
    snprintf(found->path, sizeof(found->path), "%s", path);
    snprintf(found->version, sizeof(found->version), "%.63s", version_in_name(found->real));
    if (!strchr(found->version, '.'))
        read_wheel_version(machine, found);
    return true;
}

/* False if ldconfig did not see the library; true if there is no cache. */
static bool is_in_cache(const struct gsv_machine *machine, const char *name)
{
    const int fd = gsv_rootfs_open_file(&machine->rootfs, "/etc/ld.so.cache");
    char after[2];
    bool found;

    if (fd < 0)
        return true;
    found = gsv_elf_find_text(fd, name, after, sizeof(after));
    close(fd);
    return found;
}

static bool is_default_folder(const char *folder)
{
    return strncmp(folder, "/lib", 4) == 0 || strncmp(folder, "/usr/lib", 8) == 0;
}

static bool search_loader(const struct gsv_machine *machine, const char *name,
                          struct gsv_found_library *found)
{
    const char *const variable = gsv_machine_variable(machine, "LD_LIBRARY_PATH");

    for (int32_t i = 0; i < machine->loader.n; i++) {
        const char *const folder = machine->loader.folders[i];

        if (!try_folder(machine, folder, name, found))
            continue;
        found->in_loader_path = true;
        found->needs_ldconfig = !is_default_folder(folder) &&
                                !(variable && strstr(variable, folder)) &&
                                !is_in_cache(machine, name);
        return true;
    }
    return false;
}

static const char *variable_of(const void *machine, const char *name)
{
    return gsv_machine_variable(machine, name);
}

bool gsv_machine_find_library(struct gsv_machine *machine, const char *name, bool in_toolkit,
                              struct gsv_found_library *found)
{
    const struct gsv_toolkit_search search = {
        .rootfs = &machine->rootfs,
        .variable = variable_of,
        .environment = machine,
        .prefix = "",
        .plugin = machine->plugin,
        .cuda_major = machine->cuda_version / 1000,
    };

    memset(found, 0, sizeof(*found));
    if (search_loader(machine, name, found))
        return true;
    if (!in_toolkit)
        return false;
    gsv_toolkit_list_folders(&machine->folders, &search, name);
    for (int32_t i = 0; i < machine->folders.n; i++) {
        if (try_folder(machine, machine->folders.folders[i], name, found))
            return true;
    }
    return false;
}

/* --------------------------------------------------------------------------- program and library
 */

#define LIBRARY_NAME "libgpuserve.so." GSV_TEXT_OF(GSV_ABI_VERSION)
#define GSV_TEXT_OF(x) GSV_TEXT_OF_VALUE(x)
#define GSV_TEXT_OF_VALUE(x) #x

static void judge_own_program(struct gsv_machine *machine)
{
    char path[GSV_ROOTFS_PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    Dl_info info;

    path[length < 0 ? 0 : length] = '\0';
    gsv_layer_found(machine, GSV_LAYER_PROGRAM, path, "");
    if (dladdr(&libraries, &info) && info.dli_fname)
        gsv_layer_found(machine, GSV_LAYER_LIBRARY, info.dli_fname, gpuserve_version());
}

/* The first folder of PATH or of the usual ones that has `gpuserve`. */
static bool find_program(struct gsv_machine *machine, char path[GSV_ROOTFS_PATH_BYTES])
{
    const char *rest = gsv_machine_variable(machine, "PATH");
    struct stat info;

    for (rest = rest ? rest : "/usr/local/bin:/usr/bin:/bin:/opt/gpuserve/bin"; *rest;) {
        const size_t length = strcspn(rest, ":");

        if (*rest == '/' &&
            snprintf(path, GSV_ROOTFS_PATH_BYTES, "%.*s/gpuserve", (int)length, rest) <
                GSV_ROOTFS_PATH_BYTES &&
            gsv_rootfs_find(&machine->rootfs, path, NULL, &info) && S_ISREG(info.st_mode))
            return true;
        rest += length + (rest[length] == ':');
    }
    return false;
}

/* Looks for the wheel in the Python environments of a root. */
static bool find_in_python(struct gsv_machine *machine, struct gsv_found_library *found)
{
    const char *const bases[] = { gsv_machine_variable(machine, "VIRTUAL_ENV"),
                                  gsv_machine_variable(machine, "CONDA_PREFIX"),
                                  "/usr/local",
                                  "/usr",
                                  "/opt/venv",
                                  "/opt/conda" };
    char folder[GSV_ROOTFS_PATH_BYTES];

    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        struct gsv_names names;
        bool is_found = false;

        if (!bases[i] ||
            snprintf(folder, sizeof(folder), "%s/lib", bases[i]) >= (int)sizeof(folder) ||
            !gsv_rootfs_list(&machine->rootfs, folder, "python3", MAX_WHEELS, &names))
            continue;
        for (size_t k = 0; k < 2 * names.n && !is_found; k++) {
            if (snprintf(folder, sizeof(folder), "%s/lib/%s/%s-packages/gpuserve/_native", bases[i],
                         names.names[k / 2], k % 2 ? "dist" : "site") < (int)sizeof(folder))
                is_found = try_folder(machine, folder, LIBRARY_NAME, found);
        }
        gsv_names_free(&names);
        if (is_found)
            return true;
    }
    return false;
}

/* The folders of an installation prefix that may have the library: PREFIX/bin/gpuserve is given. */
static bool find_next_to_program(struct gsv_machine *machine, const char *program,
                                 struct gsv_found_library *found)
{
    static const char *const below[] = { "/lib", "/lib64", "/lib/x86_64-linux-gnu",
                                         "/lib/aarch64-linux-gnu" };
    char folder[GSV_ROOTFS_PATH_BYTES];

    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        snprintf(folder, sizeof(folder), "%.*s%s", (int)(strlen(program) - strlen("/bin/gpuserve")),
                 program, below[i]);
        if (try_folder(machine, folder, LIBRARY_NAME, found))
            return true;
    }
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The library of a root. Without one, a root may still be judged: a host's driver, an image to be.
 */
static void judge_installed_program(struct gsv_machine *machine)
{
    struct gsv_found_library found;
    char program[GSV_ROOTFS_PATH_BYTES] = "";
    bool is_found;

    if (find_program(machine, program))
        gsv_layer_found(machine, GSV_LAYER_PROGRAM, program, "");
    else
        program[0] = '\0';
    is_found =
        gsv_machine_find_library(machine, LIBRARY_NAME, false, &found) ||
        (ends_with(program, "/bin/gpuserve") && find_next_to_program(machine, program, &found)) ||
        find_in_python(machine, &found);
    if (is_found)
        gsv_layer_found(machine, GSV_LAYER_LIBRARY, found.path, found.version);
    else if (found.fault)
        gsv_layer_find(machine, GSV_LAYER_LIBRARY, GSV_VERDICT_BROKEN, "install gpuserve again",
                       "%s: %s", found.fault_path, found.fault);
    else if (program[0])
        gsv_layer_find(machine, GSV_LAYER_LIBRARY, GSV_VERDICT_BROKEN,
                       "install the library, or set LD_LIBRARY_PATH to its folder",
                       "%s is installed, but " LIBRARY_NAME " is in no folder of the loader",
                       program);
    if (is_found && found.needs_ldconfig)
        gsv_layer_find(machine, GSV_LAYER_LIBRARY, GSV_VERDICT_BROKEN, "run ldconfig",
                       "%s is not in the loader's cache", found.path);
}

void gsv_machine_judge_program(struct gsv_machine *machine, gpuserve_context *context)
{
    if (machine->is_live)
        judge_own_program(machine);
    else
        judge_installed_program(machine);
    gsv_machine_judge_plugin(machine, context);
}

/* -------------------------------------------------------------------------------------- toolkit */

/* Looks for the library of another CUDA version, which does not help. */
static bool has_other_version(struct gsv_machine *machine, const char *stem, int32_t major,
                              struct gsv_found_library *other)
{
    const int32_t cuda_version = machine->cuda_version;
    bool is_found = false;
    char name[64];

    for (int32_t i = 11; i <= 14 && !is_found; i++) {
        snprintf(name, sizeof(name), "%s%d", stem, i);
        machine->cuda_version = 1000 * i; /* the folders depend on it */
        is_found = i != major && gsv_machine_find_library(machine, name, true, other);
    }
    machine->cuda_version = cuda_version;
    return is_found;
}

/* The CUDA version that cuDNN was built for: cuDNN 9 has one name for all. Its library of recurrent
 * layers, in the same folder, loads cuBLASLt by name. 0: unknown. */
static int32_t cuda_of_cudnn(const struct gsv_machine *machine, const char *real)
{
    char path[GSV_ROOTFS_PATH_BYTES + 32], number[4];
    int32_t major = 0;
    int fd;

    snprintf(path, sizeof(path), "%.*s/libcudnn_adv.so.9", (int)(strrchr(real, '/') - real), real);
    fd = gsv_rootfs_open_file(&machine->rootfs, path);
    if (fd < 0)
        return 0;
    if (gsv_elf_find_text(fd, "libcublasLt.so.", number, sizeof(number)))
        major = (int32_t)strtol(number, NULL, 10);
    close(fd);
    return major;
}

static void judge_cudnn(struct gsv_machine *machine, const struct gsv_found_library *found)
{
    const int32_t plugin = machine->cuda_version / 1000;
    const int32_t cudnn = machine->plugin[0] ? cuda_of_cudnn(machine, found->real) : 0;

    if (plugin && cudnn && plugin != cudnn)
        gsv_layer_find(machine, GSV_LAYER_CUDNN, GSV_VERDICT_WARNING,
                       plugin == 12 ? "pip install nvidia-cudnn-cu12, or install cuDNN for CUDA 12"
                                    : "pip install nvidia-cudnn-cu13, or install cuDNN for the "
                                      "plugin's CUDA",
                       "%s is of CUDA %d, the plugin of CUDA %d; LSTM and GRU layers by cuDNN, on "
                       "request, may fail",
                       found->path, cudnn, plugin);
}

static void judge_library(struct gsv_machine *machine, size_t i)
{
    const int32_t major = machine->cuda_version ? machine->cuda_version / 1000 : 13;
    struct gsv_found_library found, other;
    char name[64];

    if (libraries[i].major)
        snprintf(name, sizeof(name), "%s%s", libraries[i].stem, libraries[i].major);
    else
        snprintf(name, sizeof(name), "%s%d", libraries[i].stem, major);
    if (gsv_machine_find_library(machine, name, true, &found)) {
        if (libraries[i].id == GSV_LAYER_CUDNN)
            judge_cudnn(machine, &found);
        gsv_layer_found(machine, libraries[i].id, found.path, found.version);
        return;
    }
    if (!libraries[i].without || !machine->plugin[0])
        return;
    if (found.fault)
        gsv_layer_find(machine, libraries[i].id, GSV_VERDICT_WARNING, "install it again",
                       "%s: %s; %s", found.fault_path, found.fault, libraries[i].without);
    else if (!libraries[i].major && has_other_version(machine, libraries[i].stem, major, &other))
        gsv_layer_find(machine, libraries[i].id, GSV_VERDICT_WARNING,
                       major == 12
                           ? "pip install 'gpuserve[cuda12]', or install the toolkit of the "
                             "plugin's CUDA"
                           : "pip install 'gpuserve[cuda]', or install the toolkit of the "
                             "plugin's CUDA",
                       "%s is another version than %s, which the plugin needs; %s", other.path,
                       name, libraries[i].without);
    else
        gsv_layer_find(machine, libraries[i].id, GSV_VERDICT_WARNING,
                       major == 12 ? "pip install 'gpuserve[cuda12]', or set CUDA_HOME to a toolkit"
                                   : "pip install 'gpuserve[cuda]', or set CUDA_HOME to a toolkit",
                       "%s is not found; %s", name, libraries[i].without);
}

void gsv_machine_judge_toolkit(struct gsv_machine *machine)
{
    for (size_t i = 0; i < N_LIBRARIES; i++)
        judge_library(machine, i);
    gsv_machine_judge_runtime(machine);
}
