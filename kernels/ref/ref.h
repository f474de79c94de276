/*
 * ref.h - the operations of the oracle (reference backend). Plain scalar C with sums in float64.
 * Never optimised, so that the code stays obviously correct.
 *
 * Each operation runs in the calling thread and is complete when it returns.
 */
#ifndef GSV_KERNELS_REF_H
#define GSV_KERNELS_REF_H

#include <gpuserve/sys/backend.h>

/* Weights in the source's layout; for INT8 and INT16 the quantized integers. */
struct gpuserve_linear {
    int32_t n, k;
    uint32_t dtype;
    const float *weight;      /* [n, k], FLOAT32 */
    const int8_t *values;     /* [n, k], INT8 */
    const int16_t *words;     /* [n, k], INT16 */
    int32_t row_levels;       /* INT16: the largest integer of a row */
    const float *scale;       /* [n], INT8, INT16: weight is about integer * scale */
    const float *bias;        /* [n], zeros without a bias */
    const float *input_scale; /* [k] or NULL, INT8 */
};

struct gpuserve_stream {
    void *batch_memory;
};

double gsv_ref_activation(double x, int32_t activation);

gpuserve_status gsv_ref_embed(struct gpuserve_stream *stream, const struct gpuserve_op_embed *op);
gpuserve_status gsv_ref_add_norm(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_add_norm *op);
gpuserve_status gsv_ref_rotate(struct gpuserve_stream *stream, const struct gpuserve_op_rotate *op);
gpuserve_status gsv_ref_glu(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op);
gpuserve_status gsv_ref_route(struct gpuserve_stream *stream, const struct gpuserve_op_route *op);
gpuserve_status gsv_ref_add_scaled(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_add_scaled *op);
gpuserve_status gsv_ref_attention(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op);
gpuserve_status gsv_ref_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op);
gpuserve_status gsv_ref_normalize(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_rows *op);
gpuserve_status gsv_ref_activate(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op);
gpuserve_status gsv_ref_compact(struct gpuserve_stream *stream,
                                const struct gpuserve_op_compact *op);
gpuserve_status gsv_ref_op_max_sim(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_max_sim *op);

size_t gsv_ref_linear_bytes(int32_t n, int32_t k, uint32_t dtype);
void gsv_ref_int8_scales(struct gpuserve_device *device,
                         const struct gpuserve_linear_source *source, float *scales);
int32_t gsv_ref_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step);
gpuserve_status gsv_ref_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error);
void gsv_ref_linear_destroy(struct gpuserve_linear **linear);
void gsv_ref_linear_move(struct gpuserve_linear *linear, const void *from, void *to);
gpuserve_status gsv_ref_linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op);

gpuserve_status gsv_ref_matmul_bytes(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                     size_t *size, gpuserve_error *error);
gpuserve_status gsv_ref_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                              gpuserve_error *error);
gpuserve_status gsv_ref_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                               gpuserve_error *error);

gpuserve_status gsv_ref_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                         gpuserve_error *error);
size_t gsv_ref_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                              int32_t n_sequences);
gpuserve_status gsv_ref_lstm_layer_create(struct gpuserve_device *device,
                                          struct gpuserve_lstm_layer **layer, void *memory,
                                          const struct gpuserve_lstm_source *source,
                                          gpuserve_error *error);
void gsv_ref_lstm_layer_destroy(struct gpuserve_lstm_layer **layer);
void gsv_ref_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to);
gpuserve_status gsv_ref_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                   size_t *size, gpuserve_error *error);
gpuserve_status gsv_ref_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                             gpuserve_error *error);

#endif
