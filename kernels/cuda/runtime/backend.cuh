/*
 * backend.cuh - internal interface between the files of the CUDA backend.
 *
 *   plugin.cu      the backend table; its entries are in device.cu, ops.cu, memory.cu, stream.cu,
 *                  linear.cu, matmul.cu, chain.cu and lstm.cu
 *   runtime/       devices, memory, streams, batch upload, CUDA graphs, cuBLASLt, watchdog
 *   ops/           one operation per file: kernel and launcher; int8.cu: int8 products
 *   compute/       products, chains and LSTM layers without a model; run-time compilation
 *
 * A launcher takes raw device pointers, enqueues its kernels on the stream and returns the launch
 * error. It never waits. Arguments are checked before the table is called.
 */
#ifndef GSV_CUDA_BACKEND_CUH
#define GSV_CUDA_BACKEND_CUH

#include <gpuserve/sys/backend.h>

extern "C" {
#include "lib/base/alloc.h"
#include "lib/base/error.h"
}

#include <cuda_runtime.h>

/* The host's compiler would make a plain function of a kernel. */
#if !defined(__CUDACC__) && !defined(GSV_CUDA_EMU)
#undef __global__
#define __global__ \
    static_assert(false, "a kernel in a source of cuda_host_sources in kernels/cuda/meson.build");
#endif

/* Storage type of an activation's elements. */
enum gsv_element { GSV_ELEMENT_F32, GSV_ELEMENT_F16, GSV_ELEMENT_BF16 };

enum gsv_element gsv_cuda_element(uint32_t dtype);

/* ------------------------------------------------------------------------------- operations */

/* `next` (int8.cuh): destination for the int8 copy of float16 rows. */
struct gsv_int8_target;
cudaError_t gsv_cuda_embed(const struct gpuserve_op_embed *op, enum gsv_element element,
                           const struct gsv_int8_target *next, cudaStream_t stream);
cudaError_t gsv_cuda_add_norm(const struct gpuserve_op_add_norm *op, enum gsv_element element,
                              const struct gsv_int8_target *next, cudaStream_t stream);
cudaError_t gsv_cuda_glu(const struct gpuserve_op_glu *op, enum gsv_element element,
                         const struct gsv_int8_target *next, cudaStream_t stream);
cudaError_t gsv_cuda_rotate(const struct gpuserve_op_rotate *op, enum gsv_element element,
                            cudaStream_t stream);
cudaError_t gsv_cuda_route(const struct gpuserve_op_route *op, enum gsv_element element,
                           cudaStream_t stream);
cudaError_t gsv_cuda_add_scaled(const struct gpuserve_op_add_scaled *op, enum gsv_element element,
                                cudaStream_t stream);
cudaError_t gsv_cuda_pool(const struct gpuserve_op_pool *op, enum gsv_element element,
                          cudaStream_t stream);
cudaError_t gsv_cuda_normalize(const struct gpuserve_op_rows *op, cudaStream_t stream);
cudaError_t gsv_cuda_activate(const struct gpuserve_op_rows *op, cudaStream_t stream);
cudaError_t gsv_cuda_compact(const struct gpuserve_op_compact *op, cudaStream_t stream);
cudaError_t gsv_cuda_max_sim(const struct gpuserve_op_max_sim *op, enum gsv_element element,
                             cudaStream_t stream);

/* A work item of attention: some query rows of one sequence. Rows that belong to no sequence form
 * items with n_keys = 0, whose output is set to zero. */
struct gsv_attention_tile {
    int32_t first_key; /* row of the sequence's first token */
    int32_t n_keys;    /* of the sequence: its length, or its key_counts */
    int32_t first_row; /* first query row of the item */
    int32_t n_rows;    /* at most the tile's height; 0: no work */
};

struct gsv_tiles {
    const struct gsv_attention_tile *tiles; /* device memory */
    int32_t n_tiles;
    int32_t height;   /* 16, 32 or 64 rows */
    bool short_texts; /* no sequence is longer than GSV_ATTENTION_KEYS */
};
#define GSV_ATTENTION_KEYS 64 /* keys per tile of attention_mma */

/* True if an option of the operation is in use: groups of query heads, a mask, a soft cap or
 * disentangled positions. A relative bias is not one. */
inline bool gsv_cuda_attention_has_options(const struct gpuserve_op_attention *op)
{
    return (op->n_kv_heads > 0 && op->n_kv_heads != op->n_heads) || op->causal || op->window > 0 ||
           op->softcap != 0.f || op->position_key || op->position_query;
}

/* True if the tensor-core kernel supports the operation. */
bool gsv_cuda_attention_has_mma(const struct gpuserve_op_attention *op, enum gsv_element element);
cudaError_t gsv_cuda_attention_mma(const struct gpuserve_op_attention *op,
                                   const struct gsv_tiles *tiles, enum gsv_element element,
                                   const struct gsv_int8_target *next, cudaStream_t stream);
cudaError_t gsv_cuda_attention_mma_prepare(void); /* once for each device, before capture */
/* The same with all options except disentangled positions, and for heads of 256. */
bool gsv_cuda_attention_has_mma_options(const struct gpuserve_op_attention *op,
                                        enum gsv_element element);
cudaError_t gsv_cuda_attention_mma_options(const struct gpuserve_op_attention *op,
                                           const struct gsv_tiles *tiles, enum gsv_element element,
                                           const struct gsv_int8_target *next, cudaStream_t stream);
cudaError_t gsv_cuda_attention_mma_options_prepare(void);
/* The same work items in float32, without tensor cores. */
bool gsv_cuda_attention_has_simt(const struct gpuserve_op_attention *op, enum gsv_element element);
cudaError_t gsv_cuda_attention_simt(const struct gpuserve_op_attention *op,
                                    const struct gsv_tiles *tiles, cudaStream_t stream);
cudaError_t gsv_cuda_attention_simt_prepare(void); /* once for each device, before capture */
/* Float32 with all options, and heads of 256; 16-bit elements with disentangled positions. */
bool gsv_cuda_attention_has_simt_options(const struct gpuserve_op_attention *op,
                                         enum gsv_element element);
cudaError_t gsv_cuda_attention_simt_options(const struct gpuserve_op_attention *op,
                                            const struct gsv_tiles *tiles, enum gsv_element element,
                                            cudaStream_t stream);
cudaError_t gsv_cuda_attention_simt_options_prepare(void);
/* Any type, option and head size up to GSV_ATTENTION_NAIVE_MAX_HEAD, limited by shared memory. */
cudaError_t gsv_cuda_attention_naive(const struct gpuserve_op_attention *op,
                                     enum gsv_element element, cudaStream_t stream);
cudaError_t gsv_cuda_attention_naive_prepare(void);
#define GSV_ATTENTION_NAIVE_MAX_HEAD 1024

/* out[m, n] = activation(in[m, k] * weight[n, k]^T + bias) + residual. */
struct gsv_gemm {
    const void *in;
    const void *weight;
    const float *bias;    /* or NULL */
    const void *residual; /* or NULL; row stride out_ld */
    void *out;
    int32_t m;
    int32_t n;
    int32_t k;
    int32_t in_ld;
    int32_t weight_ld;
    int32_t out_ld;
    int32_t activation;
    bool fixed_order; /* the order of the sum over k does not depend on m */
};

/* Arithmetic of a product: 16-bit types and bytes on tensor cores, float32 on TF32 tensor cores or
 * in full precision. */
enum gsv_math { GSV_MATH_F16, GSV_MATH_BF16, GSV_MATH_TF32, GSV_MATH_F32, GSV_MATH_S8 };

/* True if rows are 16-byte aligned, as the tensor-core kernels require. */
bool gsv_cuda_gemm_has_mma(const struct gsv_gemm *gemm, enum gsv_math math);
cudaError_t gsv_cuda_gemm_mma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                              cudaStream_t stream);
cudaError_t gsv_cuda_gemm_mma_prepare(void); /* once for each device, before capture */
/* True if gemm_wgmma supports the product: 16-bit types, 16-byte aligned rows of all matrices, no
 * activation or GELU. */
bool gsv_cuda_gemm_has_wgmma(const struct gsv_gemm *gemm, enum gsv_math math);
cudaError_t gsv_cuda_gemm_wgmma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                                cudaStream_t stream);
/* Once for each device, before capture. Not available: another capability than 9.0, an old driver,
 * or GPUSERVE_WGMMA=0. */
cudaError_t gsv_cuda_gemm_wgmma_prepare(int capability, bool *available);
/* Any alignment and size, without tensor cores; accumulates in float32. */
cudaError_t gsv_cuda_gemm_simt(const struct gsv_gemm *gemm, enum gsv_element element,
                               int n_processors, cudaStream_t stream);
/* float32, for the few outputs of a head: one warp per output. */
cudaError_t gsv_cuda_gemv(const struct gsv_gemm *gemm, cudaStream_t stream);
#define GSV_GEMV_MAX_N 1024

/* out = activation(out + bias) + residual, in place on the output of a product. */
cudaError_t gsv_cuda_bias_act(const struct gsv_gemm *gemm, enum gsv_element element,
                              cudaStream_t stream);

/* ------------------------------------------------------------------------------------ devices */

struct gpuserve_device {
    int index;
    int n_processors;
    int capability;      /* 90 for sm_90 */
    size_t shared_bytes; /* maximum shared memory per block */
    bool cooperates;     /* supports cooperative launches */
    bool has_wgmma;      /* gemm_wgmma is available */
    char name[128];
    struct gsv_lt *lt;         /* cuBLASLt, or NULL if unavailable */
    struct gsv_cudnn *cudnn;   /* or NULL; opened by lstm_cudnn.cu */
    struct gsv_chains *chains; /* kernels compiled at run time */
    int64_t timeout_ms;        /* a batch that takes longer counts as a hung device */
};

/* Fills `error` for the result of `call` on device `index` and returns the matching status. An
 * error that destroys the device's context marks the device as lost until the process ends. */
gpuserve_status gsv_cuda_fail(int index, cudaError_t code, const char *call, gpuserve_error *error);

/* Marks a device that does not answer as hung and lost; no further call may use it. */
gpuserve_status gsv_cuda_fail_timeout(int index, const char *what, int64_t timeout_ms,
                                      gpuserve_error *error);

/* GPUSERVE_OK, or the first cause of the device's loss. */
gpuserve_status gsv_cuda_check_lost(int index, gpuserve_error *error);
/* True if the device hangs: a call that waits for it would never return. */
bool gsv_cuda_hangs(int index);

/* cudaSetDevice(), and tells the launches of this thread what the device can. */
cudaError_t gsv_cuda_set_device(int index);
/* Makes the device current for this thread. Fails with the first cause if the device is lost. */
gpuserve_status gsv_cuda_use(const struct gpuserve_device *device, gpuserve_error *error);

gpuserve_status gsv_cuda_device_count(int32_t *count, gpuserve_error *error);
gpuserve_status gsv_cuda_device_facts(int32_t index, struct gpuserve_device_facts *facts,
                                      gpuserve_error *error);
gpuserve_status gsv_cuda_device_open(struct gpuserve_device **device, int32_t index,
                                     gpuserve_error *error);
void gsv_cuda_device_close(struct gpuserve_device **device);

/* Writes to the log function that gpuserve_backend_entry() received. */
void gsv_cuda_log(int32_t level, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* ------------------------------------------------------------------------------------- memory */

size_t gsv_cuda_activation_size(uint32_t dtype);
/* Allocate memory on this thread's current device, and pinned host memory. The error message has
 * the requested size, the free memory and a remedy. */
gpuserve_status gsv_cuda_take(const struct gpuserve_device *device, void **memory, size_t size,
                              gpuserve_error *error);
gpuserve_status gsv_cuda_take_pinned(const struct gpuserve_device *device, void **memory,
                                     size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_memory_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                      gpuserve_error *error);
void gsv_cuda_memory_free(struct gpuserve_device *device, void *memory);
gpuserve_status gsv_cuda_memory_write(struct gpuserve_device *device, void *to, const void *from,
                                      size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_memory_read(struct gpuserve_device *device, void *to, const void *from,
                                     size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_memory_write_floats(struct gpuserve_device *device, void *to,
                                             const float *from, size_t count, uint32_t dtype,
                                             gpuserve_error *error);
/* gsv_cuda_take() or gsv_cuda_take_pinned() under the watchdog. */
typedef gpuserve_status (*gsv_cuda_take_fn)(const struct gpuserve_device *device, void **memory,
                                            size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_take_guarded(struct gpuserve_device *device, gsv_cuda_take_fn take,
                                      void **memory, size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_host_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                    uint32_t kind, gpuserve_error *error);
void gsv_cuda_host_free(struct gpuserve_device *device, void *memory, uint32_t kind);
gpuserve_status gsv_cuda_transfer(struct gpuserve_device *device, struct gpuserve_op_transfer *op,
                                  gpuserve_error *error);

/* ------------------------------------------------------------------------------------- linear */

/* INT8 weights of a linear; all arrays are in the linear's memory. */
struct gsv_int8_weights {
    const int8_t *values;     /* [n, k_up], zeros past k */
    const float *scale;       /* [n] */
    const float *column_sum;  /* [n]: sum of the values */
    const float *input_scale; /* [k] or NULL */
    int32_t k_up;             /* k rounded up to 16 bytes */
};

struct gpuserve_linear {
    struct gpuserve_device *device;
    enum gsv_math math;
    enum gsv_element element;
    int32_t n;
    int32_t k;
    const void *weight;           /* [n, k] */
    const float *bias;            /* [n] or NULL */
    const void *element_bias;     /* bias in the activation type, for cuBLASLt; or NULL */
    struct gsv_int8_weights int8; /* GSV_MATH_S8: replaces `weight` */
    struct gsv_lt_choice *choice; /* when to use cuBLASLt; NULL: never */
};

size_t gsv_cuda_linear_bytes(int32_t n, int32_t k, uint32_t dtype);
void gsv_cuda_int8_scales(struct gpuserve_device *device,
                          const struct gpuserve_linear_source *source, float *scales);
int32_t gsv_cuda_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step);
gpuserve_status gsv_cuda_linear_create(struct gpuserve_device *device,
                                       struct gpuserve_linear **linear, void *memory,
                                       const struct gpuserve_linear_source *source,
                                       gpuserve_error *error);
/* The product by the backend's own kernels. With `fixed_order` the choice among orders of the sum
 * depends on n, k and alignment only, so a row gets the same bits in any batch. */
cudaError_t gsv_cuda_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                              cudaStream_t stream);
void gsv_cuda_linear_destroy(struct gpuserve_linear **linear);
void gsv_cuda_linear_move(struct gpuserve_linear *linear, const void *from, void *to);

/* ------------------------------------------------------------------------------------ streams */

size_t gsv_cuda_stream_bytes(const struct gpuserve_stream_options *options);
gpuserve_status gsv_cuda_stream_create(struct gpuserve_device *device,
                                       struct gpuserve_stream **stream,
                                       const struct gpuserve_stream_options *options,
                                       gpuserve_error *error);
void gsv_cuda_stream_destroy(struct gpuserve_stream **stream);
gpuserve_status gsv_cuda_batch_begin(struct gpuserve_stream *stream, uint64_t program,
                                     const struct gpuserve_host_batch *host,
                                     struct gpuserve_batch *batch, int32_t *replayed,
                                     gpuserve_error *error);
gpuserve_status gsv_cuda_batch_end(struct gpuserve_stream *stream, void *to_host, const void *from,
                                   size_t size, gpuserve_error *error);
gpuserve_status gsv_cuda_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error);

/* Operation entries of the table: ops.cu. */
gpuserve_status gsv_cuda_op_prefetch(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_prefetch *op);
gpuserve_status gsv_cuda_op_embed(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_embed *op);
gpuserve_status gsv_cuda_op_linear(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_linear *op);
gpuserve_status gsv_cuda_op_add_norm(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_add_norm *op);
gpuserve_status gsv_cuda_op_rotate(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_rotate *op);
gpuserve_status gsv_cuda_op_glu(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op);
gpuserve_status gsv_cuda_op_route(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_route *op);
gpuserve_status gsv_cuda_op_add_scaled(struct gpuserve_stream *stream,
                                       const struct gpuserve_op_add_scaled *op);
gpuserve_status gsv_cuda_op_attention(struct gpuserve_stream *stream,
                                      const struct gpuserve_op_attention *op);
gpuserve_status gsv_cuda_op_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op);
gpuserve_status gsv_cuda_op_normalize(struct gpuserve_stream *stream,
                                      const struct gpuserve_op_rows *op);
gpuserve_status gsv_cuda_op_activate(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_rows *op);
gpuserve_status gsv_cuda_op_compact(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_compact *op);
gpuserve_status gsv_cuda_op_max_sim(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_max_sim *op);

/* Compute entries of the table: matmul.cu, chain.cu, lstm.cu, random.cu. */
gpuserve_status gsv_cuda_op_random(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                                   gpuserve_error *error);
gpuserve_status gsv_cuda_op_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                                  gpuserve_error *error);
gpuserve_status gsv_cuda_op_matmul_bytes(struct gpuserve_device *device,
                                         struct gpuserve_op_matmul *op, size_t *size,
                                         gpuserve_error *error);
gpuserve_status gsv_cuda_op_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                                   gpuserve_error *error);
gpuserve_status gsv_cuda_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                          gpuserve_error *error);
size_t gsv_cuda_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                               int32_t n_sequences);
gpuserve_status gsv_cuda_lstm_layer_create(struct gpuserve_device *device,
                                           struct gpuserve_lstm_layer **layer, void *memory,
                                           const struct gpuserve_lstm_source *source,
                                           gpuserve_error *error);
void gsv_cuda_lstm_layer_destroy(struct gpuserve_lstm_layer **layer);
void gsv_cuda_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to);
gpuserve_status gsv_cuda_op_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                       size_t *size, gpuserve_error *error);
gpuserve_status gsv_cuda_op_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                                 gpuserve_error *error);

#endif
