/*
 * chain_source.cuh - the source of a kernel for one list of operations, and what it is compiled
 * with.
 */
#ifndef GSV_CUDA_CHAIN_SOURCE_CUH
#define GSV_CUDA_CHAIN_SOURCE_CUH

#include <gpuserve/compute.h>

#include <stddef.h>

#define GSV_CHAIN_THREADS 256
#define GSV_CHAIN_WIDTH 4 /* elements of a thread */

/* Most operations that a source may spell out, and the most bytes that this can come to. */
#define GSV_CHAIN_MAX_STATEMENTS 1024
#define GSV_CHAIN_MAX_SOURCE (size_t{ 64 } << 10)

/*
 * The source for these kinds of operations in this order; the numbers that belong to them are read
 * from the steps in device memory, so that lists which differ in them only share a kernel. Nothing
 * of the caller's stands in it but which operations there are. Owned: free() ends it. NULL when
 * more than GSV_CHAIN_MAX_STATEMENTS operations are left after repeats were put into loops, or out
 * of memory.
 *
 *   extern "C" void gsv_chain_generated(const float *in, float *out, unsigned long long n,
 *                                       const struct gsv_chain_numbers *steps, int aligned)
 */
char *gsv_chain_write_source(const gpuserve_chain_step *steps, size_t n_steps);

#define GSV_CHAIN_KERNEL "gsv_chain_generated"

/* For nvrtcCompileProgram, behind --gpu-architecture. */
#define GSV_CHAIN_N_OPTIONS 3
extern const char *const gsv_chain_options[GSV_CHAIN_N_OPTIONS];

#endif
