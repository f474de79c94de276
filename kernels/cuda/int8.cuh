/*
 * int8.cuh - products of whole numbers: what int8.cu, quantize.cu and gemm_s8.cu share.
 *
 * kernels/ref/linear.c defines them: weights as value * scale of their output; each row of
 * activations, times input_scale, as least + step * q with q in 0..255. Tensor cores multiply
 * signed bytes, so q - 128 is stored and 128 steps are added to `least`: the same numbers.
 */
#ifndef GSV_CUDA_INT8_CUH
#define GSV_CUDA_INT8_CUH

#include "kernels/cuda/backend.cuh"

#define GSV_INT8_MAX_K 65536 /* 65536 * 128 * 127 is still below 2^31 */

/* Rows as they are multiplied; the stream's memory. */
struct gsv_int8_rows {
    int8_t *values; /* [rows, ld] */
    float *step;    /* [rows] */
    float *least;   /* [rows]: of the value -128, see above */
    int32_t ld;
};

/* rows, k, in_ld and in of `gemm`, whose elements are float16. */
cudaError_t gsv_cuda_quantize(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                              const struct gsv_int8_rows *rows, cudaStream_t stream);

/* The product of quantized rows; m, n, bias, residual, out and activation NONE or GELU of `gemm`.
 */
cudaError_t gsv_cuda_gemm_s8(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                             const struct gsv_int8_rows *rows, int n_processors,
                             cudaStream_t stream);
cudaError_t gsv_cuda_gemm_s8_prepare(void); /* once for each device, before capture */

/* Bytes of a linear's weights, and of a stream's rows. SIZE_MAX on overflow. */
size_t gsv_cuda_int8_bytes(int32_t n, int32_t k);
size_t gsv_cuda_int8_rows_bytes(const struct gpuserve_stream_options *options);
struct gsv_int8_rows gsv_cuda_int8_rows(void *memory,
                                        const struct gpuserve_stream_options *options);

/* Fill the linear's memory, bias included. */
gpuserve_status gsv_cuda_int8_create(struct gpuserve_linear *linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error);

/* Quantize, multiply, and what the product cannot do itself. */
cudaError_t gsv_cuda_int8_multiply(const struct gpuserve_linear *linear,
                                   const struct gsv_gemm *gemm, const struct gsv_int8_rows *rows,
                                   cudaStream_t stream);

#endif
