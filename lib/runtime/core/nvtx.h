/*
 * nvtx.h - NVTX ranges (named time ranges) for NVIDIA's tools such as Nsight Systems.
 *
 * A profiling tool names its library in NVTX_INJECTION64_PATH, as the NVTX 3 protocol defines.
 * Without that variable nothing is loaded, and a range costs one comparison of a pointer with NULL.
 *
 * Ranges nest per thread: "gpuserve tokenize", "gpuserve batch of 12 texts, 340 tokens" and, while
 * a model is loaded, "gpuserve load NAME".
 */
#ifndef GSV_RUNTIME_NVTX_H
#define GSV_RUNTIME_NVTX_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>

#define GSV_NVTX_CORE 16 /* functions of NVTX's core module */

struct gsv_nvtx {
    void *handle;                           /* the tool's library, or NULL */
    void (*functions[GSV_NVTX_CORE])(void); /* filled in by the tool; NULL: not provided */
};

/* Never fails: a tool that cannot be loaded is ignored. */
void gsv_nvtx_init(struct gsv_nvtx *nvtx);

/* True if a tool is attached. Only then a range need begin and end. */
static inline bool gsv_nvtx_is_on(const struct gsv_nvtx *nvtx)
{
    return nvtx->handle != NULL;
}

/* Begins a range, and ends it. */
void gsv_nvtx_push(const struct gsv_nvtx *nvtx, const char *format, ...) GPUSERVE_PRINTF(2, 3);
void gsv_nvtx_pop(const struct gsv_nvtx *nvtx);

#endif
