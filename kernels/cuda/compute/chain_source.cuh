/*
 * chain_source.cuh - generates the source of a kernel for one list of operations, and has the
 * compiler options for it.
 */
#ifndef GSV_CUDA_CHAIN_SOURCE_CUH
#define GSV_CUDA_CHAIN_SOURCE_CUH

#include <gpuserve/compute.h>

#include <stddef.h>

#define GSV_CHAIN_THREADS 256
#define GSV_CHAIN_WIDTH 4 /* elements per thread */

/* Maximum number of operations in a source, and the maximum bytes of that source. */
#define GSV_CHAIN_MAX_STATEMENTS 1024
#define GSV_CHAIN_MAX_SOURCE (size_t{ 64 } << 10)

/*
 * Returns the source for these kinds of operations in this order. The kernel reads their numbers
 * from the steps in device memory, so lists that differ in numbers only share a kernel. The source
 * contains no caller data except the kinds of operations. Owned by the caller: free() it. NULL if
 * more than GSV_CHAIN_MAX_STATEMENTS operations remain after folding repeats into loops, or when
 * out of memory.
 *
 *   extern "C" void gsv_chain_generated(const float *in, float *out, unsigned long long n,
 *                                       const struct gsv_chain_numbers *steps, int aligned)
 */
char *gsv_chain_write_source(const gpuserve_chain_step *steps, size_t n_steps);

#define GSV_CHAIN_KERNEL "gsv_chain_generated"

/* For nvrtcCompileProgram, after --gpu-architecture. */
#define GSV_CHAIN_N_OPTIONS 3
extern const char *const gsv_chain_options[GSV_CHAIN_N_OPTIONS];

#endif
