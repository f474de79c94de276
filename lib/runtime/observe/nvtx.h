/*
 * nvtx.h - named ranges of time for NVIDIA's tools (Nsight Systems and others).
 *
 * A tool that watches the process names its library in NVTX_INJECTION64_PATH, as the protocol of
 * NVTX 3 has it. Without that variable nothing is loaded, and a range costs the comparison of a
 * pointer with NULL.
 *
 * Ranges nest for each thread: "gpuserve tokenize", "gpuserve batch of 12 texts, 340 tokens" and,
 * when a model is loaded, "gpuserve load NAME".
 */
#ifndef GSV_RUNTIME_NVTX_H
#define GSV_RUNTIME_NVTX_H

#include <gpuserve/types.h>

#define GSV_NVTX_CORE 16 /* functions of NVTX's core module */

struct gsv_nvtx {
    void *handle;                           /* the tool's library, or NULL */
    void (*functions[GSV_NVTX_CORE])(void); /* filled by the tool; NULL where it has none */
};

/* Never fails: a tool that cannot be loaded is no tool. */
void gsv_nvtx_init(struct gsv_nvtx *nvtx);

/* Begin a range; the text is only formatted when somebody watches. */
void gsv_nvtx_push(const struct gsv_nvtx *nvtx, const char *format, ...) GPUSERVE_PRINTF(2, 3);
void gsv_nvtx_pop(const struct gsv_nvtx *nvtx);

#endif
