/*
 * weights_folder.h - the folder of packed weights: its path, its creation and its size.
 */
#ifndef GSV_RUNTIME_WEIGHTS_FOLDER_H
#define GSV_RUNTIME_WEIGHTS_FOLDER_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stdint.h>

/* Suffix of a packed file, whose name begins with 16 hexadecimal digits. A temporary file has a dot
 * and six characters behind it. */
#define GSV_WEIGHTS_SUFFIX ".packed"

/* The path of the folder, owned: GPUSERVE_WEIGHTS_CACHE if it is an absolute path; else, unless the
 * variable is set to anything, gpuserve/weights in XDG_CACHE_HOME or in ~/.cache. NULL: none. */
gpuserve_status gsv_weights_folder(char **folder, gpuserve_error *error);

/* Creates the folder and its parents. False with errno unless only this user may write to it. */
bool gsv_weights_folder_make(const char *folder);

/* Removes the least recently used packed files beyond 64; leaves files of other names. */
void gsv_weights_folder_bound(const char *folder);

/* Number of packed files; *bytes receives their bytes. */
int gsv_weights_folder_size(const char *folder, uint64_t *bytes);

#endif
