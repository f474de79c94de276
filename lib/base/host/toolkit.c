/*
 * toolkit.c - lists the folders of CUDA toolkits: installed, in wheels and in conda environments.
 *
 * Only names are listed; no library is opened. Patterns (python3*, cuda-13*) are expanded within
 * the root. Without a match the pattern itself is listed, so that a message shows where to install.
 */
#define _GNU_SOURCE
#include "lib/base/host/rootfs.h"

#include <stdio.h>
#include <string.h>

#define MAX_MATCHES 16

#if defined(__aarch64__)
#define TARGET_LIB "/targets/sbsa-linux/lib"
#else
#define TARGET_LIB "/targets/x86_64-linux/lib"
#endif

/* CUDA 12 has a folder for each wheel, CUDA 13 one for all but cuDNN's. */
static const struct {
    const char *library, *folder;
} wheels[] = {
    { "libcublas", "cublas" },  { "libnvrtc.", "cuda_nvrtc" },    { "libcudnn", "cudnn" },
    { "libcurand.", "curand" }, { "libcudart.", "cuda_runtime" },
};

static void add_toolkit(struct gsv_folder_list *out, const char *folder)
{
    gsv_folder_list_add(out, folder, "/lib64");
    gsv_folder_list_add(out, folder, "/lib");
    gsv_folder_list_add(out, folder, TARGET_LIB);
}

/* The value of a variable that is an absolute path; NULL for any other. */
static const char *path_variable(const struct gsv_toolkit_search *search, const char *name)
{
    const char *const value = search->variable(search->environment, name);

    return value && *value == '/' ? value : NULL;
}

static void add_toolkit_of(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                           const char *variable)
{
    const char *const folder = path_variable(search, variable);

    if (folder)
        add_toolkit(out, folder);
}

/* Adds NVIDIA's packages below a site-packages folder. */
static void add_site(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                     const char *library, const char *site)
{
    char below[64];

    snprintf(below, sizeof(below), "/nvidia/cu%d/lib", search->cuda_major);
    gsv_folder_list_add(out, site, below);
    for (size_t i = 0; i < sizeof(wheels) / sizeof(wheels[0]); i++) {
        if (strncmp(library, wheels[i].library, strlen(wheels[i].library)) != 0)
            continue;
        snprintf(below, sizeof(below), "/nvidia/%s/lib", wheels[i].folder);
        gsv_folder_list_add(out, site, below);
    }
}

/* Adds the site-packages of a Python environment, whose folder has Python's version in its name. */
static void add_environment(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                            const char *library, const char *variable)
{
    const char *const folder = path_variable(search, variable);
    char site[GSV_ROOTFS_PATH_BYTES];
    struct gsv_names names;

    if (!folder || snprintf(site, sizeof(site), "%s/lib", folder) >= (int)sizeof(site) ||
        !gsv_rootfs_list(search->rootfs, site, "python3", MAX_MATCHES, &names))
        return;
    for (size_t i = 0; i < (names.n > 0 ? names.n : 1); i++) {
        if (snprintf(site, sizeof(site), "%s/lib/%s/site-packages", folder,
                     names.n > 0 ? names.names[i] : "python3*") < (int)sizeof(site))
            add_site(out, search, library, site);
    }
    gsv_names_free(&names);
}

/* A wheel has the plugin in site-packages/gpuserve/_native, a distribution in lib/gpuserve. */
static void add_wheel_of_plugin(struct gsv_folder_list *out,
                                const struct gsv_toolkit_search *search, const char *library)
{
    char folder[GSV_ROOTFS_PATH_BYTES];

    if (!search->plugin || *search->plugin != '/' || strlen(search->plugin) >= sizeof(folder))
        return;
    snprintf(folder, sizeof(folder), "%s", search->plugin);
    for (int level = 0; level < 3; level++) {
        char *const slash = strrchr(folder, '/');

        if (slash == folder)
            return;
        *slash = '\0';
        if (level > 0)
            add_site(out, search, library, folder);
    }
}

/* Adds /usr/local/cuda-13, /usr/local/cuda-13.0, ...: toolkits that no link names. */
static void add_versions(struct gsv_folder_list *out, const struct gsv_toolkit_search *search)
{
    char folder[GSV_ROOTFS_PATH_BYTES], prefix[24];
    struct gsv_names names;

    snprintf(prefix, sizeof(prefix), "cuda-%d", search->cuda_major);
    if (snprintf(folder, sizeof(folder), "%s/usr/local", search->prefix) >= (int)sizeof(folder) ||
        !gsv_rootfs_list(search->rootfs, folder, prefix, MAX_MATCHES, &names))
        return;
    for (size_t i = names.n; i-- > 0;) {
        const char after = names.names[i][strlen(prefix)];

        if ((after == '\0' || after == '.') &&
            snprintf(folder, sizeof(folder), "%s/usr/local/%s", search->prefix, names.names[i]) <
                (int)sizeof(folder))
            add_toolkit(out, folder);
    }
    gsv_names_free(&names);
}

void gsv_toolkit_list_folders(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                              const char *library)
{
    char folder[GSV_ROOTFS_PATH_BYTES];

    out->n = 0;
    gsv_folder_list_add(out, search->prefix, "/usr/local/nvidia/lib64");
    add_toolkit_of(out, search, "CUDA_HOME");
    add_toolkit_of(out, search, "CUDA_PATH");
    add_wheel_of_plugin(out, search, library);
    add_environment(out, search, library, "VIRTUAL_ENV");
    add_environment(out, search, library, "CONDA_PREFIX");
    if (path_variable(search, "CONDA_PREFIX")) {
        gsv_folder_list_add(out, path_variable(search, "CONDA_PREFIX"), "/lib");
        gsv_folder_list_add(out, path_variable(search, "CONDA_PREFIX"), TARGET_LIB);
    }
    for (int i = 0; i < 2; i++) {
        if (snprintf(folder, sizeof(folder), "%s%s", search->prefix,
                     i == 0 ? "/usr/local/cuda" : "/opt/cuda") < (int)sizeof(folder))
            add_toolkit(out, folder);
        if (i == 0)
            add_versions(out, search);
    }
}
