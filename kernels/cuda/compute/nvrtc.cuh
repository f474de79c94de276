/*
 * nvrtc.cuh - NVRTC, the CUDA toolkit's run-time compiler, loaded with dlopen().
 */
#ifndef GSV_CUDA_NVRTC_CUH
#define GSV_CUDA_NVRTC_CUH

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct gsv_nvrtc;

/* NULL if the library is not available, which is no error; `why` then lists the names and places
 * searched. */
struct gsv_nvrtc *gsv_nvrtc_open(char *why, size_t size);
void gsv_nvrtc_close(struct gsv_nvrtc **nvrtc);

/* 1000 * major + minor. */
int gsv_nvrtc_version(const struct gsv_nvrtc *nvrtc);
/* Path of the loaded library; "" if unknown. */
const char *gsv_nvrtc_path(const struct gsv_nvrtc *nvrtc);

/*
 * Compiles `source` for compute capability `capability` (90: sm_90), with additional options. *code
 * is owned machine code of *size bytes, to be freed with free(). On failure *code is NULL and `log`
 * has the first line of the compiler's messages. Makes no device calls.
 */
bool gsv_nvrtc_compile(const struct gsv_nvrtc *nvrtc, const char *source, int capability,
                       const char *const *options, int n_options, void **code, size_t *size,
                       char *log, size_t log_size);

#define GSV_NVRTC_MAX_OPTIONS 8

/*
 * On-disk cache of machine code compiled by NVRTC, shared between processes.
 *
 * One file per source, options, compute capability and NVRTC version. The file contains the whole
 * key; it is used only if the key is equal and the checksum matches. Files are written by atomic
 * rename, so any number of processes may share the folder. Above 256 files or 64 MiB the least
 * recently used file is deleted. On any failure the source is compiled as without a cache.
 *
 * The choices among kernels of matrix products (cublaslt.cu) are kept as such files too.
 *
 * The folder is GPUSERVE_KERNEL_CACHE, else gpuserve/kernels in XDG_CACHE_HOME, else in ~/.cache; 0
 * or an empty GPUSERVE_KERNEL_CACHE disables the cache. The folder and each file must belong to
 * this user and be writable by this user only, since their contents run on the device.
 */

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
