/*
 * toolkit.h - the folders in which a library of the CUDA toolkit may be installed.
 *
 *   /usr/local/nvidia/lib64                  provided by a container runtime
 *   CUDA_HOME, CUDA_PATH                     a toolkit that the user names
 *   site-packages of the plugin's wheel,     nvidia/cu13/lib (CUDA 13), nvidia/cublas/lib (CUDA 12)
 *     of VIRTUAL_ENV and of CONDA_PREFIX
 *   CONDA_PREFIX                             lib, targets/x86_64-linux/lib
 *   /usr/local/cuda, /usr/local/cuda-13*,    an installed toolkit
 *     /opt/cuda
 *
 * The plugin loads the first library that it finds there, after the loader's own path; the doctor
 * reports the same list for any root.
 */
#ifndef GSV_BASE_TOOLKIT_H
#define GSV_BASE_TOOLKIT_H

#include "lib/base/host/folder_list.h"

#include <stdint.h>

struct gsv_toolkit_search {
    const struct gsv_rootfs *rootfs;
    /* The value of an environment variable, NULL if unset. */
    const char *(*variable)(const void *environment, const char *name);
    const void *environment;
    const char *prefix; /* before the fixed folders: "" outside of tests */
    const char *plugin; /* absolute path of the plugin; NULL: unknown */
    int32_t cuda_major; /* of the toolkit: 13 */
};

/* Lists the folders for `library`, "libcublasLt.so.13", by priority. Folders need not exist. A
 * variable that is no absolute path is ignored, as is a folder over the limits. */
void gsv_toolkit_list_folders(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                              const char *library);

#endif
