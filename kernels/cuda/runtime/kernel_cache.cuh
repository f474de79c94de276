/*
 * kernel_cache.cuh - on-disk cache of what a device needs at a start: machine code compiled by
 * NVRTC, and choices among the kernels of matrix products.
 *
 * One file per source, options, compute capability and NVRTC version. The file contains the whole
 * key; it is used only if the key is equal and the checksum matches. Files are written by atomic
 * rename, so any number of processes may share the folder. Above 256 files or 64 MiB the least
 * recently used file is deleted. On any failure the source is compiled as without a cache.
 *
 * The folder is GPUSERVE_KERNEL_CACHE, else gpuserve/kernels in XDG_CACHE_HOME, else in ~/.cache; 0
 * or an empty GPUSERVE_KERNEL_CACHE disables the cache. The folder and each file must belong to
 * this user and be writable by this user only, since their contents run on the device.
 */
#ifndef GSV_CUDA_KERNEL_CACHE_CUH
#define GSV_CUDA_KERNEL_CACHE_CUH

#include <limits.h>
#include <stddef.h>

struct gsv_code_cache {
    char folder[PATH_MAX]; /* "": no cache */
};

struct gsv_code_key {
    const char *source;
    const char *const *options;
    int n_options;
    int capability;
    int version; /* of NVRTC: 1000 * major + minor; 0: the content is no code */
};

/* Finds the folder; creates nothing. */
void gsv_code_cache_open(struct gsv_code_cache *cache);

/* Owned machine code of *size bytes, to be freed with free(); NULL if it is not cached. */
void *gsv_code_cache_read(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                          size_t *size);
void gsv_code_cache_write(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                          const void *code, size_t size);
/* Deletes an entry that the device rejected. */
void gsv_code_cache_forget(const struct gsv_code_cache *cache, const struct gsv_code_key *key);

/* The version of the NVRTC library used last, if that file is unchanged; 0 if unknown. Opening the
 * library just to read its version would take longer than all other steps. */
int gsv_code_cache_known_version(const struct gsv_code_cache *cache);
/* `library` is the path of the NVRTC library. */
void gsv_code_cache_know_version(const struct gsv_code_cache *cache, const char *library,
                                 int version);

#endif
