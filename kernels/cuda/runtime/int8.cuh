/*
 * int8.cuh - products of whole numbers: what int8.cu, quantize.cu and gemm_s8.cu share.
 *
 * kernels/ref/linear.c defines them: weights as value * scale of their output; each row of
 * activations, times input_scale, as least + step * q with q in 0..255. Tensor cores multiply
 * signed bytes, so q - 128 is stored and 128 steps are added to `least`: the same numbers.
 */
#ifndef GSV_CUDA_INT8_CUH
#define GSV_CUDA_INT8_CUH

#include "kernels/cuda/runtime/backend.cuh"

#define GSV_INT8_MAX_K 65536 /* 65536 * 128 * 127 is still below 2^31 */

/* Rows as they are multiplied; the stream's memory. */
struct gsv_int8_rows {
    int8_t *values; /* [rows, ld] */
    float *step;    /* [rows] */
    float *least;   /* [rows]: of the value -128, see above */
    int32_t ld;
};

/* Where a kernel puts rows of k columns in whole numbers for the product that reads them. */
struct gsv_int8_target {
    struct gsv_int8_rows rows; /* values NULL: nowhere */
    const float *input_scale;  /* [k] or NULL */
    int32_t k;
    bool wide;         /* the rows it writes begin at 16 bytes, and k is a multiple of 8 */
    unsigned *arrived; /* zeros: one for each part of the rows that several blocks write */
};

/* Rows of whole numbers between the kernel that writes them and the product that reads them. A
 * product that itself writes some has them in the other of the two. */
struct gsv_int8_stage {
    struct gsv_int8_rows rows[2];
    size_t row_bytes[2]; /* room */
    unsigned *arrived;
    /* What is there now; `of` NULL: nothing. */
    const void *of;                       /* the float16 rows that they are of */
    const struct gpuserve_linear *reader; /* whose input_scale they have */
    int32_t n_rows;
    int at; /* 0 or 1 */
};

/* A kernel is about to write `rows` rows of `columns` elements at `out`: where they go in whole
 * numbers as well, for `reader` (or NULL). */
void gsv_int8_aim(struct gsv_int8_stage *stage, const struct gpuserve_linear *reader,
                  const void *out, int32_t rows, int32_t columns, struct gsv_int8_target *target);
/* Another batch, or rows written by a kernel that cannot: what is there is of no use. */
void gsv_int8_forget(struct gsv_int8_stage *stage);

/* m, k, in_ld and in of `gemm`, whose elements are float16. */
cudaError_t gsv_cuda_quantize(const struct gsv_gemm *gemm, const struct gsv_int8_target *to,
                              cudaStream_t stream);

/* The product of quantized rows; m, n, bias, residual, out and activation NONE or GELU of `gemm`.
 * Its own rows are quantized to `next`. */
cudaError_t gsv_cuda_gemm_s8(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                             const struct gsv_int8_rows *rows, const struct gsv_int8_target *next,
                             int n_processors, cudaStream_t stream);
cudaError_t gsv_cuda_gemm_s8_prepare(void); /* once for each device, before capture */

/* Bytes of a linear's weights, and of a stream's rows. SIZE_MAX on overflow. */
size_t gsv_cuda_int8_bytes(int32_t n, int32_t k);
size_t gsv_cuda_int8_stage_bytes(const struct gpuserve_stream_options *options);
/* `memory` is on the device and zeroed. */
struct gsv_int8_stage gsv_cuda_int8_stage(void *memory,
                                          const struct gpuserve_stream_options *options);

/* Fill the linear's memory, bias included. */
gpuserve_status gsv_cuda_int8_create(struct gpuserve_linear *linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error);

/* Quantize what is not yet, multiply, and what the product cannot do itself. */
cudaError_t gsv_cuda_int8_multiply(const struct gpuserve_linear *linear,
                                   const struct gsv_gemm *gemm,
                                   const struct gpuserve_linear *reader,
                                   struct gsv_int8_stage *stage, cudaStream_t stream);

#endif
