/*
 * matmul.cuh - C = alpha * op(A) op(B) + beta * C: the variants that matmul.cu chooses from.
 *
 *   matmul_naive.cu      one thread per output, read directly from memory   float32
 *   matmul_tiled.cu      shared memory and register tiling                  float32
 *   matmul_mma.cu        tensor cores, after repack.cu                      float16, bfloat16, tf32
 *   matmul_cublaslt.cu   cuBLASLt, 16-bit types after repack.cu             all
 */
#ifndef GSV_CUDA_MATMUL_CUH
#define GSV_CUDA_MATMUL_CUH

#include "kernels/cuda/runtime/backend.cuh"

/* The matrices of struct gpuserve_op_matmul in the form that kernels use. */
struct gsv_matmul {
    const float *a;
    const float *b;
    float *c;
    int64_t a_stride;
    int64_t b_stride;
    int64_t c_stride;
    int32_t m;
    int32_t n;
    int32_t k;
    bool transpose_a;
    bool transpose_b;
    float alpha;
    float beta;
};

cudaError_t gsv_cuda_matmul_naive(const struct gsv_matmul *matmul, cudaStream_t stream);
cudaError_t gsv_cuda_matmul_tiled(const struct gsv_matmul *matmul, int n_processors,
                                  cudaStream_t stream);

/* Conversion of a matrix to rows of an element type, k contiguous and zero-padded to `ld`. */
struct gsv_repack {
    const float *from; /* [rows, k], or [k, rows] if `turned` */
    int64_t stride;    /* floats between stored rows */
    void *to;          /* [rows, ld] */
    int32_t rows;
    int32_t k;
    int32_t ld;
    bool turned;
};
cudaError_t gsv_cuda_repack(const struct gsv_repack *repack, enum gsv_element element,
                            cudaStream_t stream);

/* Operands in packed rows: a [m, k_up], b [n, k_up], each row 16-byte aligned. */
struct gsv_packed {
    const void *a;
    const void *b;
    int64_t a_ld; /* elements */
    int64_t b_ld;
    int32_t k; /* k * element size is a multiple of 16 bytes */
};
cudaError_t gsv_cuda_matmul_mma(const struct gsv_matmul *matmul, const struct gsv_packed *packed,
                                enum gsv_math math, int n_processors, cudaStream_t stream);
cudaError_t gsv_cuda_matmul_mma_prepare(void); /* once for each device */

/* cuBLASLt on the matrices in their stored layout; `packed` has the 16-bit copies. */
cudaError_t gsv_lt_matmul(struct gsv_lt *lt, const struct gsv_matmul *matmul,
                          const struct gsv_packed *packed, enum gsv_math math, void *workspace,
                          cudaStream_t stream);

#endif
