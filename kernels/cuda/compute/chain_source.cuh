/*
 * chain_source.cuh - generates the source of a kernel for one list of operations, and has the
 * compiler options for it.
 */
#ifndef GSV_CUDA_CHAIN_SOURCE_CUH
#define GSV_CUDA_CHAIN_SOURCE_CUH

#include "kernels/cuda/runtime/backend.cuh"

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

/*
 * Kernels compiled at run time for single lists of operations, cached per
 * device.
 */

struct gsv_chains;

/* The generated kernels of a device. NULL when out of memory: all lists are interpreted then. */
struct gsv_chains *gsv_chains_open(void);
/* Unloads the kernels; the call may hang with the device. */
void gsv_chains_close(struct gsv_chains **chains);

struct gsv_chain_numbers; /* the generated source's declaration of gpuserve_chain_step */
typedef void (*gsv_chain_kernel_fn)(const float *in, float *out, unsigned long long n,
                                    const struct gsv_chain_numbers *steps, int aligned);

/*
 * Returns the kernel for this list, or NULL for a list to be interpreted. Holds the device's lock
 * until gsv_chain_release(), which must be called in both cases; the kernel stays loaded until
 * then.
 */
gsv_chain_kernel_fn gsv_chain_acquire(struct gpuserve_device *device,
                                      const struct gpuserve_op_chain *op);
void gsv_chain_release(struct gpuserve_device *device);

cudaError_t gsv_chain_launch(gsv_chain_kernel_fn kernel, const struct gpuserve_op_chain *op,
                             bool aligned, cudaStream_t stream);

#endif
