/*
 * toolkit_loader.cu - loads CUDA toolkit libraries on differently installed machines.
 *
 * The loader's own path is tried first, then the folders of lib/base/host/rootfs.h: container
 * runtimes, installed toolkits, the wheels of PyPI, conda. The first library that loads is used. In
 * a set-user-ID program the environment is ignored.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"

extern "C" {
#include "lib/base/host/rootfs.h"
}

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prefix of the fixed folders; set by a test. */
#ifndef GSV_LIBRARY_ROOT
#define GSV_LIBRARY_ROOT ""
#endif

namespace
{

const char *variable_of(const void *environment, const char *name)
{
    (void)environment;
    return secure_getenv(name);
}

/* The plugin's path; NULL if unknown. Links are kept: some installers link each file of a wheel. */
const char *own_path(char path[PATH_MAX])
{
    Dl_info self;

    if (!dladdr(reinterpret_cast<const void *>(&gsv_cuda_open_library), &self) || !self.dli_fname)
        return NULL;
    if (*self.dli_fname != '/')
        return realpath(self.dli_fname, path);
    return snprintf(path, PATH_MAX, "%s", self.dli_fname) < PATH_MAX ? path : NULL;
}

/* Owned: free(). NULL when out of memory. */
struct gsv_folder_list *find_folders(const char *name)
{
    struct gsv_folder_list *const list =
        static_cast<struct gsv_folder_list *>(calloc(1, sizeof(*list)));
    struct gsv_toolkit_search search = {};
    struct gsv_rootfs rootfs;
    char plugin[PATH_MAX];

    if (!list || gsv_rootfs_open(&rootfs, NULL, NULL) != GPUSERVE_OK)
        return list;
    search.rootfs = &rootfs;
    search.variable = variable_of;
    search.prefix = GSV_LIBRARY_ROOT;
    search.cuda_major = CUDART_VERSION / 1000;
    search.plugin = own_path(plugin);
    gsv_toolkit_list_folders(list, &search, name);
    gsv_rootfs_close(&rootfs);
    return list;
}

/* NULL if the path is too long or cannot be loaded. */
void *open_in(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", folder, name) < static_cast<int>(sizeof(path))
               ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
               : NULL;
}

} /* namespace */

void *gsv_cuda_open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    struct gsv_folder_list *const p = library ? NULL : find_folders(name);

    for (int i = 0; p && i < p->n && !library; i++)
        library = open_in(p->folders[i], name);
    free(p);
    return library;
}

/* Reports a library that exists but cannot be loaded: more useful than the list of all
 * folders. */
static bool write_broken(const struct gsv_folder_list *p, const char *name, char *text, size_t size)
{
    for (int i = 0; i < p->n; i++) {
        char path[PATH_MAX];
        const char *cause;

        if (snprintf(path, sizeof(path), "%s/%s", p->folders[i], name) >= PATH_MAX ||
            access(path, F_OK) != 0)
            continue;
        dlerror();
        if (void *const now = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
            dlclose(now);
            continue;
        }
        cause = dlerror();
        snprintf(text, size, "%s cannot be loaded: %s", path, cause ? cause : "?");
        return true;
    }
    return false;
}

void gsv_cuda_tell_missing(const char *name, char *text, size_t size)
{
    struct gsv_folder_list *const p = find_folders(name);
    size_t at;

    snprintf(text, size, "%s is not in the loader's path", name);
    if (!p || write_broken(p, name, text, size)) {
        free(p);
        return;
    }
    for (int i = 0; i < p->n && (at = strlen(text)) + 1 < size; i++)
        snprintf(text + at, size - at, ", %s", p->folders[i]);
    free(p);
}
