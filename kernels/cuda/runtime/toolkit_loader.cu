/*
 * toolkit_loader.cu - finds CUDA toolkit libraries on differently installed machines.
 *
 *   the loader's path                       an installed toolkit
 *   /usr/local/nvidia/lib64                 provided by a container runtime
 *   CUDA_HOME, CUDA_PATH, /usr/local/cuda   the toolkit folder
 *   next to the plugin, VIRTUAL_ENV         the nvidia-* packages of PyPI
 *
 * The first library that loads is used. In a set-user-ID program the environment is ignored.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
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

const int MAX_FOLDERS = 12;

struct folders {
    char folders[MAX_FOLDERS][PATH_MAX];
    int n;
};

void add(struct folders *p, const char *folder, int length, const char *below)
{
    if (p->n < MAX_FOLDERS &&
        snprintf(p->folders[p->n], PATH_MAX, "%.*s%s", length, folder, below) < PATH_MAX)
        p->n++;
}

void add_toolkit(struct folders *p, const char *folder)
{
    add(p, folder, PATH_MAX, "/lib64");
    add(p, folder, PATH_MAX, "/lib"); /* layout of the wheels */
}

/* Adds the toolkit named by an environment variable. */
void add_toolkit_of(struct folders *p, const char *variable)
{
    const char *const folder = secure_getenv(variable);

    if (folder && *folder == '/')
        add_toolkit(p, folder);
}

/* Adds NVIDIA's packages next to a plugin that was installed as a Python package. */
void add_near_plugin(struct folders *p, const char *wheels)
{
    char below[64];
    Dl_info self;
    const char *slash;

    if (!dladdr(reinterpret_cast<const void *>(&gsv_cuda_open_library), &self) || !self.dli_fname)
        return;
    slash = strrchr(self.dli_fname, '/');
    snprintf(below, sizeof(below), "/../%s", wheels);
    if (slash)
        add(p, self.dli_fname, static_cast<int>(slash - self.dli_fname), below);
}

/* Adds the active Python environment; its folder name contains Python's version. */
void add_venv(struct folders *p, const char *wheels)
{
    const char *const venv = secure_getenv("VIRTUAL_ENV");
    char pattern[PATH_MAX];
    glob_t found;

    if (!venv || *venv != '/' ||
        snprintf(pattern, sizeof(pattern), "%s/lib/python3*/site-packages/%s", venv, wheels) >=
            static_cast<int>(sizeof(pattern)))
        return;
    if (glob(pattern, GLOB_NOCHECK, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        add(p, found.gl_pathv[i], PATH_MAX, "");
    globfree(&found);
}

struct folders *find_folders(void)
{
    struct folders *const p = static_cast<struct folders *>(calloc(1, sizeof(*p)));
    char wheels[32];

    if (!p)
        return NULL;
    snprintf(wheels, sizeof(wheels), "nvidia/cu%d/lib", CUDART_VERSION / 1000);
    add(p, GSV_LIBRARY_ROOT "/usr/local/nvidia/lib64", PATH_MAX, "");
    add_toolkit_of(p, "CUDA_HOME");
    add_toolkit_of(p, "CUDA_PATH");
    add_toolkit(p, GSV_LIBRARY_ROOT "/usr/local/cuda");
    add_near_plugin(p, wheels);
    add_venv(p, wheels);
    return p;
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
    struct folders *const p = library ? NULL : find_folders();

    for (int i = 0; p && i < p->n && !library; i++)
        library = open_in(p->folders[i], name);
    free(p);
    return library;
}

/* Reports a library that exists but cannot be loaded: more useful than the list of all places. */
static bool write_broken(const struct folders *p, const char *name, char *text, size_t size)
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
    struct folders *const p = find_folders();
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
