/*
 * cublaslt.cuh - cuBLASLt, where it can be had, and which products it is taken for.
 *
 * For each (n, k) and number format both our own kernel and cuBLASLt's best candidates are timed
 * once, when the first weights of that size are loaded, for batches of two sizes, with and without
 * GELU. Below GSV_LT_MIN_ROWS our own kernel is always taken; so is it in deterministic streams,
 * since its bits do not depend on the number of rows.
 */
#ifndef GSV_CUDA_CUBLASLT_CUH
#define GSV_CUDA_CUBLASLT_CUH

#include "kernels/cuda/runtime/backend.cuh"

#define GSV_LT_MIN_ROWS 129

struct gsv_lt;
struct gsv_lt_choice;

/* NULL when the library is not there or the variable GPUSERVE_CUBLASLT is 0; that is no error. One
 * for each open device. */
struct gsv_lt *gsv_lt_open(void);
void gsv_lt_close(struct gsv_lt **lt);

/* What was found fastest for products with these weights; timed now if they are the first of
 * their size. Lent by `lt`. NULL when out of memory: our own kernels are taken. */
struct gsv_lt_choice *gsv_lt_choose(const struct gpuserve_linear *linear);

/* Whether cuBLASLt is to do this product. */
bool gsv_lt_wins(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm);

/* Do it. `workspace` has GSV_LT_WORKSPACE_BYTES. A product that the library refuses is our own
 * kernel's; one warning is logged, and an algorithm whose call was refused is not taken again. */
cudaError_t gsv_lt_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                            void *workspace, cudaStream_t stream);

#endif
