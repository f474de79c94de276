/*
 * nvrtc.cuh - NVRTC, the toolkit's compiler as a library, opened at run time.
 */
#ifndef GSV_CUDA_NVRTC_CUH
#define GSV_CUDA_NVRTC_CUH

#include <stddef.h>

struct gsv_nvrtc;

/* NULL where the library is not to be had, which is no error; `why` then says what was looked for
 * and where. */
struct gsv_nvrtc *gsv_nvrtc_open(char *why, size_t size);
void gsv_nvrtc_close(struct gsv_nvrtc **nvrtc);

/* 1000 * major + minor. */
int gsv_nvrtc_version(const struct gsv_nvrtc *nvrtc);
/* The file it was loaded from; "" when that is not known. */
const char *gsv_nvrtc_path(const struct gsv_nvrtc *nvrtc);

/*
 * Compile `source` for devices of compute capability `capability` (90: sm_90), with further
 * options. *code is owned machine code of *size bytes, free() ends it; NULL on failure, when `log`
 * has what the compiler said first. Asks nothing of a device.
 */
bool gsv_nvrtc_compile(const struct gsv_nvrtc *nvrtc, const char *source, int capability,
                       const char *const *options, int n_options, void **code, size_t *size,
                       char *log, size_t log_size);

#define GSV_NVRTC_MAX_OPTIONS 8

#endif
