/*
 * kernel_cache.cuh - machine code that NVRTC made, kept on disk for the next process.
 *
 * One file for each source, options, compute capability and version of NVRTC, which holds the
 * source too: a file is used only where all of it is equal and its check sum is right. Files come
 * whole, by rename, so any number of processes may share the folder. What was used longest ago goes
 * when there are more than 256 files or 64 MiB. Whatever fails: it is compiled as if there were no
 * cache.
 *
 * The folder is GPUSERVE_KERNEL_CACHE, else gpuserve/kernels in XDG_CACHE_HOME, else in ~/.cache; 0
 * or an empty GPUSERVE_KERNEL_CACHE means none. It and each file must be this user's alone: what is
 * in them runs on the device.
 */
#ifndef GSV_CUDA_KERNEL_CACHE_CUH
#define GSV_CUDA_KERNEL_CACHE_CUH

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct gsv_code_cache {
    char folder[PATH_MAX]; /* "": none */
};

struct gsv_code_key {
    const char *source;
    const char *const *options;
    int n_options;
    int capability;
    int version; /* of NVRTC: 1000 * major + minor */
};

/* Looks where it is; makes nothing. */
void gsv_code_cache_open(struct gsv_code_cache *cache);

/* Owned machine code, free() ends it; NULL when it is not there. */
void *gsv_code_cache_read(const struct gsv_code_cache *cache, const struct gsv_code_key *key);
void gsv_code_cache_write(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                          const void *code, size_t size);
/* The device would not have it. */
void gsv_code_cache_forget(const struct gsv_code_cache *cache, const struct gsv_code_key *key);

/* The version of the NVRTC that was used last, if that library still lies there unchanged; 0 when
 * that is not known. Opening the library only to ask it takes longer than all else here. */
int gsv_code_cache_known_version(const struct gsv_code_cache *cache);
/* `library` is its path. */
void gsv_code_cache_know_version(const struct gsv_code_cache *cache, const char *library,
                                 int version);

#endif
