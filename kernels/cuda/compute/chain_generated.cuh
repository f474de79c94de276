/*
 * chain_generated.cuh - kernels compiled at run time for single lists of operations, cached per
 * device.
 */
#ifndef GSV_CUDA_CHAIN_GENERATED_CUH
#define GSV_CUDA_CHAIN_GENERATED_CUH

#include "kernels/cuda/runtime/backend.cuh"

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
 * until gsv_chain_give_back(), which must be called in both cases; the kernel stays loaded until
 * then.
 */
gsv_chain_kernel_fn gsv_chain_take(struct gpuserve_device *device,
                                   const struct gpuserve_op_chain *op);
void gsv_chain_give_back(struct gpuserve_device *device);

cudaError_t gsv_chain_launch(gsv_chain_kernel_fn kernel, const struct gpuserve_op_chain *op,
                             bool aligned, cudaStream_t stream);

#endif
