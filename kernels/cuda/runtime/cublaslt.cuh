/*
 * cublaslt.cuh - optional use of cuBLASLt, and autotuning of the products that use it.
 *
 * When the first weights of a size are loaded, the backend's own kernel and the best cuBLASLt
 * candidates are timed once per (n, k) and number format: for two batch sizes, with and without
 * GELU. Below GSV_LT_MIN_ROWS rows, and in deterministic streams, the own kernel is always used,
 * since its bits do not depend on the number of rows.
 */
#ifndef GSV_CUDA_CUBLASLT_CUH
#define GSV_CUDA_CUBLASLT_CUH

#include "kernels/cuda/runtime/backend.cuh"

#define GSV_LT_MIN_ROWS 129

struct gsv_lt;
struct gsv_lt_choice;

/* One per open device. NULL if the library is missing or GPUSERVE_CUBLASLT is 0, which is no
 * error. */
struct gsv_lt *gsv_lt_open(void);
void gsv_lt_close(struct gsv_lt **lt);

/* Returns the fastest choice for products with these weights; times them if they are the first of
 * their size. Borrowed from `lt`. NULL when out of memory: the own kernels are used. */
struct gsv_lt_choice *gsv_lt_choose(const struct gpuserve_linear *linear);

/* True if cuBLASLt should compute this product. */
bool gsv_lt_wins(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm);

/* Computes the product with cuBLASLt. `workspace` has GSV_LT_WORKSPACE_BYTES. A product that the
 * library refuses runs on the own kernel, with one logged warning; an algorithm refused in the call
 * is not used again. */
cudaError_t gsv_lt_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                            void *workspace, cudaStream_t stream);

#endif
