/*
 * weights_cache.h - packed weights kept on disk between processes: int8 on the CPU, and any dtype
 * with gpuserve_model_options.use_mmap.
 *
 *   gsv_weights_cache_begin() -> gsv_net_load() -> gsv_weights_cache_end() (writes a missing file)
 *
 * The cache never fails a load. A missing folder, a read-only or full disk and a damaged file cost
 * a log line and the time of an ordinary load.
 */
#ifndef GSV_RUNTIME_WEIGHTS_CACHE_H
#define GSV_RUNTIME_WEIGHTS_CACHE_H

#include "lib/runtime/model.h"

#include <gpuserve/types.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct gsv_weights_cache {
    bool is_on;
    struct gsv_packed_file file; /* for gsv_net_options.packed */
    char path[PATH_MAX];
    int64_t began;   /* seconds of CLOCK_REALTIME */
    int64_t changed; /* the last change of any file of the model */
};

/* Computes the file's name and key. With `is_on` false, nothing is kept for this load. */
void gsv_weights_cache_begin(struct gsv_weights_cache *cache, const struct gsv_model *model);

/* After a successful load: logs what was found, and writes the file if it was not used. */
void gsv_weights_cache_end(struct gsv_weights_cache *cache, const struct gsv_model *model,
                           const struct gsv_net *net);

/*
 * The folder of packed weights: its path, its creation and its size.
 */

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
