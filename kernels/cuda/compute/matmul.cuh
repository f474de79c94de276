/*
 * matmul.cuh - C = alpha * op(A) op(B) + beta * C: what matmul.cu chooses from.
 *
 *   matmul_naive.cu   one thread an output, straight from memory      float32
 *   matmul_tiled.cu   shared memory and registers                     float32
 *   matmul_mma.cu     tensor cores, after repack.cu                   float16, bfloat16, tf32
 *   matmul_cublaslt.cu      cuBLASLt, the 16-bit types after repack.cu      all
 */
#ifndef GSV_CUDA_MATMUL_CUH
#define GSV_CUDA_MATMUL_CUH

#include "kernels/cuda/runtime/backend.cuh"

/* The matrices of struct gpuserve_op_matmul, as kernels take them. */
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

/* Rows of a matrix in an element type, k contiguous and padded with zeros to `ld`. */
struct gsv_repack {
    const float *from; /* [rows, k], or [k, rows] when turned */
    int64_t stride;    /* floats between rows as stored */
    void *to;          /* [rows, ld] */
    int32_t rows;
    int32_t k;
    int32_t ld;
    bool turned;
};
cudaError_t gsv_cuda_repack(const struct gsv_repack *repack, enum gsv_element element,
                            cudaStream_t stream);

/* The product of packed rows: a [m, k_up], b [n, k_up], 16-byte aligned rows. */
struct gsv_packed {
    const void *a;
    const void *b;
    int64_t a_ld; /* elements */
    int64_t b_ld;
    int32_t k; /* a multiple of 16 bytes */
};
cudaError_t gsv_cuda_matmul_mma(const struct gsv_matmul *matmul, const struct gsv_packed *packed,
                                enum gsv_math math, int n_processors, cudaStream_t stream);
cudaError_t gsv_cuda_matmul_mma_prepare(void); /* once for each device */

/* cuBLASLt over the matrices as they are stored, `packed` those of the 16-bit types. */
cudaError_t gsv_lt_matmul(struct gsv_lt *lt, const struct gsv_matmul *matmul,
                          const struct gsv_packed *packed, enum gsv_math math, void *workspace,
                          cudaStream_t stream);

#endif
