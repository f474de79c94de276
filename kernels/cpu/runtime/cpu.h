/*
 * cpu.h - types and functions shared by the files of the CPU backend: device, stream, packed
 * weights, and the operations of the backend table.
 *
 * One thread at a time uses a stream; the stream's thread pool computes in parallel.
 */
#ifndef GSV_CPU_CPU_H
#define GSV_CPU_CPU_H

#include "kernels/cpu/runtime/isa.h"
#include "kernels/cpu/runtime/thread_pool.h"

#include <string.h>

struct gpuserve_device {
    const struct gsv_cpu_isa *isa;
};

/* Packed weights in the panel layout of isa.h. All arrays are in the caller's memory. */
struct gpuserve_linear {
    int32_t n, k;
    uint32_t dtype;
    void *weight;       /* float, uint16_t (bfloat16, float16), int16_t or int8_t */
    float *bias;        /* [n up], zeros without a bias */
    float *scale;       /* INT8 and INT16 only */
    float *column_sum;  /* INT8 only, like the next */
    float *input_scale; /* [k] or NULL */
    int32_t n_copies;   /* columns behind k */
    int32_t n_shared;   /* inputs that take several columns */
    const struct gsv_shared_input *shared; /* [n_shared] */
    enum gsv_s8_sum sum;                   /* INT8 only: the longest that all integers fit */
    int32_t row_levels;                    /* INT16 only: the largest integer of a row */
};

struct gpuserve_stream {
    const struct gsv_cpu_isa *isa;
    struct gsv_thread_pool *thread_pool;
    int32_t n_threads;
    void *batch_memory;
    gsv_attention_fn attention; /* bfloat16 variant if products are rounded too */
    float *scratch;             /* scratch_floats for each thread */
    size_t scratch_floats;
    uint8_t *bytes; /* INT8, INT16, BFLOAT16: converted input rows of one linear */
    size_t byte_ld; /* distance of rows of 16 bits; of INT8 rows half of it */
    float *min, *step;
};

static inline int32_t gsv_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Number of steps that cover `whole`; `whole` is positive. */
static inline int32_t gsv_parts(int32_t whole, int32_t step)
{
    return (whole - 1) / step + 1;
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t gsv_bf16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* tables.c */
size_t gsv_cpu_table_size(uint32_t dtype);
gpuserve_status gsv_cpu_write_table(struct gpuserve_device *device, void *to, const float *from,
                                    size_t count, uint32_t dtype, gpuserve_error *error);

/* pack.c */
size_t gsv_cpu_activation_size(uint32_t dtype);
/* The dtypes whose weights are multiplied in float32, as in struct gpuserve_device_facts. */
uint32_t gsv_cpu_widened(const struct gsv_cpu_isa *isa);
int32_t gsv_cpu_depth_up(int32_t k, uint32_t dtype); /* k rounded up as in the packed weights */
int32_t gsv_cpu_linear_depth(const struct gpuserve_linear *linear); /* with copies */
size_t gsv_cpu_linear_bytes(int32_t n, int32_t k, uint32_t dtype);
gpuserve_status gsv_cpu_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error);
void gsv_cpu_linear_destroy(struct gpuserve_linear **linear);
void gsv_cpu_linear_move(struct gpuserve_linear *linear, const void *from, void *to);

/* scales.c */
void gsv_cpu_int8_scales(struct gpuserve_device *device,
                         const struct gpuserve_linear_source *source, float *scales);
int32_t gsv_cpu_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step);
int32_t gsv_cpu_max_copies(int32_t k); /* of any instruction set */
int32_t gsv_cpu_copies_limit(const struct gsv_cpu_isa *isa, int32_t k);

/* linear.c */
gpuserve_status gsv_cpu_linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op);

/* stream.c */
size_t gsv_cpu_stream_bytes(const struct gpuserve_stream_options *options);
gpuserve_status gsv_cpu_stream_create(struct gpuserve_device *device,
                                      struct gpuserve_stream **stream,
                                      const struct gpuserve_stream_options *options,
                                      gpuserve_error *error);
void gsv_cpu_stream_destroy(struct gpuserve_stream **stream);

/* ops.c */
gpuserve_status gsv_cpu_embed(struct gpuserve_stream *stream, const struct gpuserve_op_embed *op);
gpuserve_status gsv_cpu_add_norm(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_add_norm *op);
gpuserve_status gsv_cpu_rotate(struct gpuserve_stream *stream, const struct gpuserve_op_rotate *op);
gpuserve_status gsv_cpu_glu(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op);
gpuserve_status gsv_cpu_route(struct gpuserve_stream *stream, const struct gpuserve_op_route *op);
gpuserve_status gsv_cpu_add_scaled(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_add_scaled *op);
gpuserve_status gsv_cpu_attention(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op);
gpuserve_status gsv_cpu_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op);
gpuserve_status gsv_cpu_normalize(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_rows *op);
gpuserve_status gsv_cpu_activate(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op);
gpuserve_status gsv_cpu_compact(struct gpuserve_stream *stream,
                                const struct gpuserve_op_compact *op);
gpuserve_status gsv_cpu_op_max_sim(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_max_sim *op);

/* chain.c */
gpuserve_status gsv_cpu_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                              gpuserve_error *error);

/* lstm.c */
gpuserve_status gsv_cpu_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                         gpuserve_error *error);
size_t gsv_cpu_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                              int32_t n_sequences);
gpuserve_status gsv_cpu_lstm_layer_create(struct gpuserve_device *device,
                                          struct gpuserve_lstm_layer **layer, void *memory,
                                          const struct gpuserve_lstm_source *source,
                                          gpuserve_error *error);
void gsv_cpu_lstm_layer_destroy(struct gpuserve_lstm_layer **layer);
void gsv_cpu_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to);
gpuserve_status gsv_cpu_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                   size_t *size, gpuserve_error *error);
gpuserve_status gsv_cpu_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                             gpuserve_error *error);

/* matmul.c; naive and tiled: matmul_plain.c */
gpuserve_status gsv_cpu_matmul_bytes(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                     size_t *size, gpuserve_error *error);
gpuserve_status gsv_cpu_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                               gpuserve_error *error);
void gsv_cpu_matmul_naive(const struct gpuserve_op_matmul *op);
void gsv_cpu_matmul_tiled(const struct gpuserve_op_matmul *op);

/* Splits rows [0, rows) of `cols` floats into tasks large enough for one thread and calls run(op,
 * row, row_end) for each. */
typedef void (*gsv_rows_fn)(const void *op, int32_t row, int32_t row_end);
void gsv_cpu_run_rows(struct gpuserve_stream *stream, gsv_rows_fn run, const void *op, int32_t rows,
                      int32_t cols);

#endif
