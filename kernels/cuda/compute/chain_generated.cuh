/*
 * chain_generated.cuh - kernels made at run time for single lists of operations.
 */
#ifndef GSV_CUDA_CHAIN_GENERATED_CUH
#define GSV_CUDA_CHAIN_GENERATED_CUH

#include "kernels/cuda/runtime/backend.cuh"

struct gsv_chains;

/* A device's generated kernels. NULL when out of memory: every list is interpreted then. */
struct gsv_chains *gsv_chains_open(void);
/* Asks the device to unload them; it may hang. */
void gsv_chains_close(struct gsv_chains **chains);

struct gsv_chain_numbers; /* as the generated source declares it: a gpuserve_chain_step */
typedef void (*gsv_chain_kernel_fn)(const float *in, float *out, unsigned long long n,
                                    const struct gsv_chain_numbers *steps, int aligned);

/*
 * The kernel for this list, or NULL: interpret it. Until gsv_chain_give_back(), which is called in
 * either case, no other thread has one, and it stays loaded.
 */
gsv_chain_kernel_fn gsv_chain_take(struct gpuserve_device *device,
                                   const struct gpuserve_op_chain *op);
void gsv_chain_give_back(struct gpuserve_device *device);

cudaError_t gsv_chain_launch(gsv_chain_kernel_fn kernel, const struct gpuserve_op_chain *op,
                             bool aligned, cudaStream_t stream);

#endif
