/*
 * library.cu - where libraries of the CUDA toolkit lie on machines that were set up differently.
 *
 *   the loader's path                       an installed toolkit
 *   CUDA_HOME, CUDA_PATH, /usr/local/cuda   the toolkit's folder
 *   /usr/local/nvidia/lib64                 what a container's runtime brings
 *   VIRTUAL_ENV, beside the plugin          the nvidia-* packages of PyPI
 *
 * Variables are not looked at in a program with the rights of another user.
 */
#include "kernels/cuda/library.cuh"

#include <gpuserve/types.h>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_at(const char *format, ...) GPUSERVE_PRINTF(1, 2);

static void *open_at(const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    return length > 0 && length < static_cast<int>(sizeof(path))
               ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
               : NULL;
}

/* The value of a variable that names a folder; NULL when it is not set. */
static const char *folder_of(const char *variable)
{
    const char *const value = secure_getenv(variable);

    return value && *value == '/' ? value : NULL;
}

static void *open_in_toolkit(const char *folder, const char *name)
{
    void *library = NULL;

    if (folder)
        library = open_at("%s/lib64/%s", folder, name);
    return folder && !library ? open_at("%s/lib/%s", folder, name) : library;
}

/* Beside a plugin that was installed as a Python package lie NVIDIA's packages. */
static void *open_beside_plugin(const char *name)
{
    Dl_info self;
    const char *slash;

    if (!dladdr(reinterpret_cast<const void *>(&gsv_cuda_open_library), &self) || !self.dli_fname)
        return NULL;
    slash = strrchr(self.dli_fname, '/');
    return open_at("%.*s/../nvidia/cu%d/lib/%s",
                   slash ? static_cast<int>(slash - self.dli_fname) : 0, self.dli_fname,
                   CUDART_VERSION / 1000, name);
}

/* In the environment of Python that is active; its folder bears Python's version. */
static void *open_in_venv(const char *name)
{
    const char *const venv = folder_of("VIRTUAL_ENV");
    char pattern[PATH_MAX];
    void *library = NULL;
    glob_t found;

    if (!venv ||
        snprintf(pattern, sizeof(pattern), "%s/lib/python3*/site-packages/nvidia/cu%d/lib/%s", venv,
                 CUDART_VERSION / 1000, name) >= static_cast<int>(sizeof(pattern)))
        return NULL;
    if (glob(pattern, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++)
        library = open_at("%s", found.gl_pathv[i]);
    globfree(&found);
    return library;
}

void *gsv_cuda_open_library(const char *name)
{
    void *library = open_at("%s", name);

    library = library ? library : open_in_toolkit(folder_of("CUDA_HOME"), name);
    library = library ? library : open_in_toolkit(folder_of("CUDA_PATH"), name);
    library = library ? library : open_in_toolkit("/usr/local/cuda", name);
    library = library ? library : open_at("/usr/local/nvidia/lib64/%s", name);
    library = library ? library : open_beside_plugin(name);
    return library ? library : open_in_venv(name);
}
