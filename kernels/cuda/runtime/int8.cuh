/*
 * int8.cuh - int8 products: the interface of int8.cu, quantize.cu and gemm_s8.cu.
 *
 * kernels/ref/linear.c defines the quantization. Weights are value * scale with a scale per output.
 * Each row of activations, times input_scale, is least + step * q (zero point and scale) with q in
 * 0..255. Tensor cores multiply signed bytes, so q - 128 is stored and 128 * step is added to
 * `min`: the same numbers.
 */
#ifndef GSV_CUDA_INT8_CUH
#define GSV_CUDA_INT8_CUH

#include "kernels/cuda/runtime/backend.cuh"

#define GSV_INT8_MAX_K 65536 /* keeps 65536 * 128 * 127 below 2^31 */

/* Quantized rows as the product reads them; in the stream's memory. */
struct gsv_int8_rows {
    int8_t *values; /* [rows, ld] */
    float *step;    /* [rows] */
    float *min;     /* [rows]: what the byte 0 stands for */
    int32_t ld;
};

/* Destination of the rows of k columns that a kernel quantizes for the next product. */
struct gsv_int8_target {
    struct gsv_int8_rows rows; /* values NULL: no destination */
    const float *input_scale;  /* [k] or NULL */
    int32_t k;
    bool wide;         /* the source rows are 16-byte aligned and k is a multiple of 8 */
    unsigned *arrived; /* zeros: one counter for each part of the rows that several blocks write */
};

/* Quantized rows in flight from the kernel that writes them to the product that reads them. Double
 * buffer: a product that writes quantized rows itself writes them to the other buffer. */
struct gsv_int8_stage {
    struct gsv_int8_rows rows[2];
    size_t row_bytes[2]; /* capacity */
    unsigned *arrived;
    /* Current contents; `of` NULL: empty. */
    const void *of;                       /* the float16 source rows */
    const struct gpuserve_linear *reader; /* the product whose input_scale was applied */
    int32_t n_rows;
    int at; /* buffer 0 or 1 */
};

/* Announces that a kernel will write `rows` rows of `columns` elements at `out`, and sets `target`
 * to the destination of their int8 copy for `reader` (may be NULL). */
void gsv_int8_aim(struct gsv_int8_stage *stage, const struct gpuserve_linear *reader,
                  const void *out, int32_t rows, int32_t columns, struct gsv_int8_target *target);
/* Discards the contents: for a new batch, or for rows from a kernel that cannot quantize. */
void gsv_int8_forget(struct gsv_int8_stage *stage);

/* Quantizes m rows of k float16 elements at `in` of `gemm`. */
cudaError_t gsv_cuda_quantize(const struct gsv_gemm *gemm, const struct gsv_int8_target *to,
                              cudaStream_t stream);

/* The product of quantized rows; uses m, n, bias, residual, out and activation (NONE or GELU) of
 * `gemm`. Quantizes its output rows to `next`. */
cudaError_t gsv_cuda_gemm_s8(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                             const struct gsv_int8_rows *rows, const struct gsv_int8_target *next,
                             int n_processors, cudaStream_t stream);
/* The same by gemm_wgmma.cu, without quantized output rows: for outputs that fill half of a device
 * that has wgmma. */
bool gsv_cuda_gemm_s8_has_wgmma(const struct gsv_gemm *gemm, int n_processors);
cudaError_t gsv_cuda_gemm_s8_wgmma(const struct gsv_gemm *gemm,
                                   const struct gsv_int8_weights *weights,
                                   const struct gsv_int8_rows *rows, int n_processors,
                                   cudaStream_t stream);
cudaError_t gsv_cuda_gemm_s8_prepare(void); /* once for each device, before capture */

/* Bytes of a linear's weights, and of a stream's quantized rows. SIZE_MAX on overflow. */
size_t gsv_cuda_int8_bytes(int32_t n, int32_t k);
size_t gsv_cuda_int8_stage_bytes(const struct gpuserve_stream_options *options);
/* `memory` is on the device and zeroed. */
struct gsv_int8_stage gsv_cuda_int8_stage(void *memory,
                                          const struct gpuserve_stream_options *options);

/* Fills the linear's memory, bias included. */
gpuserve_status gsv_cuda_int8_create(struct gpuserve_linear *linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error);

/* Quantizes the input rows unless that is done, multiplies, and applies activations that are not in
 * the epilogue. */
cudaError_t gsv_cuda_int8_multiply(const struct gpuserve_linear *linear,
                                   const struct gsv_gemm *gemm,
                                   const struct gpuserve_linear *reader,
                                   struct gsv_int8_stage *stage, cudaStream_t stream);

#endif
