/*
 * library.cu - where libraries of the CUDA toolkit lie on machines that were set up differently.
 */
#include "kernels/cuda/library.cuh"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Beside a plugin that was installed as a Python package lie NVIDIA's packages. */
static void *open_beside_plugin(const char *name)
{
    Dl_info self;
    char path[PATH_MAX];
    const char *slash;
    int length;

    if (!dladdr(reinterpret_cast<const void *>(&gsv_cuda_open_library), &self) || !self.dli_fname)
        return NULL;
    slash = strrchr(self.dli_fname, '/');
    length = slash ? static_cast<int>(slash - self.dli_fname) : 0;
    if (snprintf(path, sizeof(path), "%.*s/../nvidia/cu%d/lib/%s", length, self.dli_fname,
                 CUDART_VERSION / 1000, name) >= static_cast<int>(sizeof(path)))
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *gsv_cuda_open_library(const char *name)
{
    static const char *const places[] = { "", "/usr/local/nvidia/lib64/", "/usr/local/cuda/lib64/",
                                          "/usr/local/cuda/lib/" };
    void *library = NULL;
    char path[128];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !library; i++) {
        snprintf(path, sizeof(path), "%s%s", places[i], name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library ? library : open_beside_plugin(name);
}
