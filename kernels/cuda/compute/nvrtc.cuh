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

#endif
