/*
 * gpuserve/sys/backend.h - the plugin ABI of device backends. Less stable than the other headers:
 * any minor release may change it, and GPUSERVE_BACKEND_ABI with it.
 *
 * A backend is a table of functions for one kind of device ("cpu", "cuda"). The CPU backend is part
 * of libgpuserve; others are shared objects that export gpuserve_backend_entry().
 *
 *   device   one piece of hardware, opened once per model or context that uses it
 *   memory   device memory, addressed by void *; on a host backend plain aligned memory
 *   linear   the weights of one matrix product, packed in a layout private to the backend
 *   lstm     the weights of one layer of an LSTM or a GRU, likewise
 *   stream   an ordered queue of operations with its scratch memory; used by one thread at a time
 *   batch    n_tokens packed tokens of n_sequences texts, without padding
 *
 * Order of a batch
 *
 *   batch_begin   uploads ids and lengths in one copy. A backend with a recording of this program
 *                 and shape (CUDA graph) may replay it: it sets *replayed, and the caller skips the
 *                 operations.
 *   embed, linear, [rotate,] attention, add_norm, [glu,] ..., pool, linear, normalize / activate, or
 *   max_sim, compact: those from pool on are in outputs.h
 *   batch_end     one copy of the result to the host
 *   stream_wait   the result is in the caller's memory, or the error says what failed
 *
 * Every function pointer must be set; opening a backend with a NULL one fails. The caller validates
 * arguments: sizes are positive and consistent, ids within the vocabulary, pointers valid.
 *
 * Activations are row-major [rows, columns]. Their type follows from the dtype of the stream:
 * float32 for FLOAT32, TF32 and (on hosts) INT8 and BFLOAT16, which round only the rows of a
 * product (rows of attention may also be rounded, to 16 bits), and FLOAT16, which rounds only the
 * weights; else the 16-bit type itself, which is float16 for INT8 on a GPU. Every `float *` is
 * float32 whatever the dtype.
 */
#ifndef GPUSERVE_SYS_BACKEND_H
#define GPUSERVE_SYS_BACKEND_H

#include <gpuserve/sys/arithmetic.h>
#include <gpuserve/sys/outputs.h>
#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Changes with every change of this header, arithmetic.h or outputs.h that affects a compiled plugin. */
#define GPUSERVE_BACKEND_ABI 16u

struct gpuserve_device;
struct gpuserve_stream;
struct gpuserve_linear;
struct gpuserve_lstm_layer;

/** Services of the host program for a backend; valid as long as the backend is loaded. */
struct gpuserve_host {
    uint32_t        struct_size;
    uint32_t        abi;
    gpuserve_log_fn log; /**< never NULL */
    void           *log_user;
};

/** One device as reported by its backend. */
struct gpuserve_device_facts {
    uint32_t struct_size;
    int32_t  index;              /**< the backend's own index, from 0 */
    char     name[128];          /**< "AMD EPYC", "NVIDIA H200" */
    char     uuid[64];           /**< empty if it has none */
    char     isa[64];            /**< "avx512_vnni", "sm_90" */
    uint64_t memory_bytes;       /**< total */
    uint64_t memory_free_bytes;  /**< free at the time of the call */
    int32_t  n_cores;            /**< usable hardware threads, or multiprocessors */
    uint32_t widened;            /**< bit d: weights in gpuserve_dtype d are stored in it, converted to
                                      float32 and multiplied in float32 */
};

/** Limits of the batches of a stream; they determine the size of its scratch memory. */
struct gpuserve_stream_options {
    uint32_t struct_size;
    uint32_t dtype;         /**< gpuserve_dtype of the model */
    int32_t  n_threads;     /**< host backends: threads that share each operation; 0 means 1 */
    int32_t  max_tokens;    /**< max tokens of a batch */
    int32_t  max_sequences; /**< max sequences of a batch */
    int32_t  max_seqlen;    /**< max tokens of a sequence */
    int32_t  max_columns;   /**< max columns of an activation of any operation */
    int32_t  hidden_size;
    int32_t  n_heads;       /**< query heads */
    int32_t  head_size;     /**< columns of a head; 0: hidden_size / n_heads rounded up */
    int32_t  position_rows; /**< max position_rows of gpuserve_op_attention, or 0 */
    int32_t  flags;         /**< GPUSERVE_STREAM_* */
    size_t   output_bytes;  /**< max bytes that batch_end copies */
};
#define GPUSERVE_STREAM_DETERMINISTIC 1 /**< the same bits for any batch composition; always true on
                                             the CPU */
#define GPUSERVE_STREAM_PREFETCHES 2    /**< batches may have gpuserve_backend.prefetch */

/** A dtype of products alone: integers of 16 bits, in which an INT8 net on a CPU keeps products.
 *  linear_create refuses it where the processor multiplies in 16 bits no faster than in float32, or
 *  has products in bfloat16. */
#define GPUSERVE_DTYPE_INT16 6u

/** Weights of one matrix product in host memory: out = in * weight^T + bias. */
struct gpuserve_linear_source {
    uint32_t     struct_size;
    uint32_t     dtype;       /**< gpuserve_dtype of the product, or GPUSERVE_DTYPE_INT16 */
    int32_t      n;           /**< output features */
    int32_t      k;           /**< input features */
    const float *weight;      /**< [n, k], host memory, borrowed for the call */
    const float *bias;        /**< [n] or NULL, host memory, borrowed for the call */
    const float *input_scale; /**< [k] or NULL: the input is multiplied by it before quantization
                                   (the weight already holds its inverse: SmoothQuant); INT8 only */
    const float *scale;       /**< [n] or NULL: those of int8_scales. Each weight becomes the nearest
                                   multiple of its output's scale in -127..127; INT8 only */
    const int32_t *copies;    /**< [k] or NULL, if int8_copies allows them; INT8 only. Input j takes
                                   copies[j] columns, 1 or more, which share its integers: those of
                                   its weights are in +-127 * copies[j], of activations in
                                   0..255 * copies[j], and their product is divided by copies[j].
                                   More than int8_copies allows: GPUSERVE_E_INVALID on a CPU */
};

/** A packed batch in host memory. */
struct gpuserve_host_batch {
    int32_t        n_tokens;
    int32_t        n_sequences;
    int32_t        max_seqlen;
    int32_t        reserved;
    const int32_t *ids;        /**< [n_tokens] */
    const int32_t *type_ids;   /**< [n_tokens] */
    const int32_t *positions;  /**< [n_tokens] row of the position table */
    const int32_t *cu_seqlens; /**< [n_sequences + 1] from 0 to n_tokens, ascending */
    const int32_t *key_counts; /**< [n_sequences] or NULL: attention reads the keys and values of the
                                    first key_counts[i] tokens of sequence i only, 1 to its length.
                                    NULL: of all tokens */
};

/** The same batch in device memory, valid from batch_begin to batch_end. */
struct gpuserve_batch {
    int32_t        n_tokens;
    int32_t        n_sequences; /**< sequences to compute: the given number, or more if the backend
                                     rounds up. The extra sequences are empty, and their pooled rows
                                     are zero. At most max_sequences */
    int32_t        max_seqlen;
    int32_t        n_rows;      /**< rows to compute: n_tokens, or more if the backend rounds up;
                                     the extra rows belong to no sequence. At most max_tokens */
    const int32_t *ids;        /**< device memory, as the three below */
    const int32_t *type_ids;
    const int32_t *positions;
    const int32_t *cu_seqlens;
    const int32_t *key_counts; /**< [n_sequences] in device memory, or NULL: whole sequences */
};

enum gpuserve_activation {
    GPUSERVE_ACT_NONE = 0,
    GPUSERVE_ACT_GELU = 1,      /**< x / 2 * (1 + erf(x / sqrt 2)) */
    GPUSERVE_ACT_GELU_TANH = 2, /**< the tanh approximation ("gelu_new", "gelu_pytorch_tanh") */
    GPUSERVE_ACT_RELU = 3,
    GPUSERVE_ACT_TANH = 4,
    GPUSERVE_ACT_SILU = 5,
    GPUSERVE_ACT_QUICK_GELU = 6, /**< x * sigmoid(1.702 x), of CLIP */
    GPUSERVE_ACT_SIGMOID = 7,   /**< activate only */
    GPUSERVE_ACT_SOFTMAX = 8,   /**< activate only: over the columns of each row */
    GPUSERVE_ACT_LAYERNORM = 9  /**< activate only: LayerNorm of each row */
};

/** Normalization of a row x of n columns, in float32. */
enum gpuserve_norm {
    GPUSERVE_NORM_LAYER = 0, /**< (x - mean) / sqrt(variance + eps) * gamma + beta: the mean first, then
                                  the variance of (x - mean) */
    GPUSERVE_NORM_RMS = 1,   /**< x / sqrt(mean of x^2 + eps) * gamma + beta */
    GPUSERVE_NORM_NONE = 2   /**< x * gamma + beta */
};

/** out[r] = norm(word_scale * word[ids[r]] + position[positions[r]] + type[type_ids[r]]). */
struct gpuserve_op_embed {
    const struct gpuserve_batch *batch;
    void                        *out;      /**< [n_rows, hidden] */
    const void                  *word;     /**< [vocab, hidden], device memory */
    const void                  *position; /**< [max positions, hidden] or NULL */
    const void                  *type;     /**< [types, hidden] or NULL */
    const float                 *gamma;    /**< [hidden] or NULL: ones */
    const float                 *beta;     /**< [hidden] or NULL: zeros */
    float                        eps;
    int32_t                      hidden;
    const struct gpuserve_linear *reader;  /**< as in gpuserve_op_linear */
    int32_t                      norm;     /**< gpuserve_norm */
    float                        word_scale; /**< 0 stands for 1 */
    uint32_t                     table_dtype; /**< the three tables have the table type of this dtype
                                                   (memory_write_table); 0: the activation type of
                                                   the stream's */
};

/** out = activation(in * weight^T + bias) + residual. out may alias residual, never in. All three
 *  have the activation type of the weight's dtype. A head or Dense module reads pooled rows, which
 *  are float32, so its weight is created for FLOAT32 whatever the encoder's dtype. */
struct gpuserve_op_linear {
    const struct gpuserve_linear *weight;
    const void                   *in;       /**< [rows, k], rows in_ld elements apart */
    void                         *out;      /**< [rows, n], rows out_ld elements apart */
    const void                   *residual; /**< [rows, n], rows out_ld apart, or NULL */
    int32_t                       rows;
    int32_t                       in_ld;
    int32_t                       out_ld;
    int32_t                       activation; /**< NONE to QUICK_GELU */
    const struct gpuserve_linear *reader; /**< the weight of the next product that reads `out`, or
                                               NULL: an INT8 backend may quantize rows for it in its
                                               epilogue. `out` is written in any case, and that
                                               product may not follow */
};

/** sum = in + residual; out = norm(sum), both in float32 before they are stored. */
struct gpuserve_op_add_norm {
    void        *out;      /**< [rows, cols]; may alias in, residual or sum. Rows of all four are `ld`
                                elements apart */
    const void  *in;       /**< [rows, cols] */
    const void  *residual; /**< [rows, cols] or NULL */
    const float *gamma;    /**< [cols] or NULL: ones */
    const float *beta;     /**< [cols] or NULL: zeros */
    float        eps;
    int32_t      rows;
    int32_t      cols;
    const struct gpuserve_linear *reader; /**< as in gpuserve_op_linear, of `out` */
    void        *sum;      /**< [rows, cols] receives in + residual, or NULL; may alias in or residual.
                                The norm reads the sum before it is rounded to the activation type */
    int32_t      norm;     /**< gpuserve_norm */
    int32_t      ld;       /**< 0: cols; else at least cols, and `reader` is NULL */
};

/** In place, on each query and key head: RMSNorm over the head, then rotary positions. Element i of
 *  the first `rotary` ones pairs with i + rotary / 2, or 2i with 2i + 1 if `interleaved`:
 *  (x, y) -> (x cos - y sin, y cos + x sin). The values are not changed. */
struct gpuserve_op_rotate {
    const struct gpuserve_batch *batch;
    void                        *qkv;         /**< as in gpuserve_op_attention */
    const float                 *query_gamma; /**< [head_size] or NULL: no norm */
    const float                 *key_gamma;   /**< [head_size] or NULL: no norm */
    const float                 *table;       /**< [max positions, 2, rotary / 2]: the cosines of a
                                                   position, then its sines; NULL: no rotation */
    float                        eps;
    int32_t                      n_heads;
    int32_t                      n_kv_heads;
    int32_t                      head_size;
    int32_t                      rotary;      /**< even, at most head_size */
    int32_t                      interleaved;
};

/** out[r][c] = activation(in[r][c]) * in[r][cols + c]: gated linear unit (GEGLU, SwiGLU, ReGLU). */
struct gpuserve_op_glu {
    const void *in;         /**< [rows, 2 * cols], rows in_ld elements apart: gates, then values */
    void       *out;        /**< [rows, cols], rows out_ld elements apart; may equal `in` if the rows are
                                 equally far apart */
    int32_t     rows;
    int32_t     cols;
    int32_t     in_ld;
    int32_t     out_ld;
    int32_t     activation; /**< NONE to QUICK_GELU, or SIGMOID */
    int32_t     reserved;
    const struct gpuserve_linear *reader; /**< as in gpuserve_op_linear */
};

/** Mixture of experts. route: weights[r] = softmax(logits[r]) in which all but the `top_k` largest are
 *  set to 0 (of equal ones the first stay), divided by their sum if `renormalize`. */
struct gpuserve_op_route {
    const void *logits;  /**< [rows, experts], activation type */
    float      *weights; /**< [rows, experts] */
    int32_t     rows;
    int32_t     experts;
    int32_t     top_k;   /**< 1 to experts */
    int32_t     renormalize;
};

/** out[r] = weight * in[r] (first) or out[r] + weight * in[r], weight = factor * (weights ?
 *  weights[r * weights_ld] : 1). A row whose weight is 0 is not read and counts as zeros. */
struct gpuserve_op_add_scaled {
    void        *out;     /**< [rows, cols]; not `in` */
    const void  *in;      /**< [rows, cols] */
    const float *weights; /**< or NULL */
    int32_t      weights_ld;
    int32_t      rows;
    int32_t      cols;
    int32_t      first;   /**< 1: `out` is written, not read */
    float        factor;
    int32_t      reserved;
};

/** Per sequence and query head, over the keys of that sequence only, of which batch->key_counts may
 *  leave out the last ones: softmax(s) V, where
 *
 *    s(q, k) = scale * (Q[q] K[k] + Q[q] position_key[i] + K[k] position_query[i]) + relative_bias
 *    s = softcap * tanh(s / softcap)       if softcap is not 0
 *    i = position_index[q - k + bias_span - 1]
 *
 *  The query head h reads the key and value head h / (n_heads / n_kv_heads). */
struct gpuserve_op_attention {
    const struct gpuserve_batch *batch;
    const void                  *qkv;   /**< [n_rows, n_heads + 2 * n_kv_heads, head_size]: the query
                                             heads, the key heads, the value heads */
    void                        *out;   /**< [n_rows, n_heads, head_size] */
    const float                 *relative_bias; /**< [n_heads, 2 * bias_span - 1] indexed by key -
                                                     query + bias_span - 1, or NULL */
    int32_t                      bias_span;     /**< longest sequence that relative_bias and
                                                     position_index cover */
    int32_t                      n_heads;
    int32_t                      head_size;
    float                        scale;         /**< usually 1 / sqrt(head_size) */
    const struct gpuserve_linear *reader;       /**< as in gpuserve_op_linear */
    int32_t                      n_kv_heads;    /**< divides n_heads; 0 stands for n_heads */
    int32_t                      causal;        /**< 1: only keys k <= q */
    int32_t                      window;        /**< only keys with |q - k| <= window; 0: all */
    float                        softcap;       /**< 0: none */
    /* Disentangled attention (DeBERTa); n_kv_heads is n_heads. */
    const void                  *position_key;   /**< [position_rows, n_heads, head_size], activation
                                                      type, or NULL */
    const void                  *position_query; /**< as position_key */
    const int32_t               *position_index; /**< [2 * bias_span - 1], 0 to position_rows - 1;
                                                      ascending */
    int32_t                      position_rows;
    int32_t                      exact; /**< 1: not rounded to bfloat16 on a host, whatever the dtype;
                                             other devices ignore it */
};

/** One copy into device memory that runs beside the operations of a batch: the weights of a layer
 *  that is not on the device. */
struct gpuserve_op_prefetch {
    void       *to;   /**< [size], device memory */
    const void *from; /**< [size], memory of host_alloc(): GPUSERVE_HOST_PINNED on a device that has it */
    size_t      size; /**< bytes; 0: no copy */
};

/** One copy between memory of host_alloc() and device memory. */
struct gpuserve_op_transfer {
    void    *host;      /**< [size] */
    void    *device;    /**< [size] */
    size_t   size;      /**< bytes, positive */
    uint32_t direction; /**< gpuserve_transfer_direction: which of the two is written */
    uint32_t reserved;
    double   seconds;   /**< written by transfer: from the call until the bytes have arrived */
};

/** A program that is not recorded. */
#define GPUSERVE_PROGRAM_ONCE UINT64_MAX

/** The function table of a backend. `error` may be NULL in every function. */
struct gpuserve_backend {
    uint32_t    struct_size;
    uint32_t    abi;  /**< GPUSERVE_BACKEND_ABI */
    const char *name; /**< "cpu", "cuda" */

    /* --- devices ------------------------------------------------------------------------- */

    /** Number of devices; 0 with GPUSERVE_E_DEVICE and the reason if none is available, or with
     *  GPUSERVE_E_UNSUPPORTED if this plugin needs a newer driver and another build may not. */
    gpuserve_status (*device_count)(int32_t *count, gpuserve_error *error);
    gpuserve_status (*device_facts)(int32_t index, struct gpuserve_device_facts *facts,
                                    gpuserve_error *error);
    gpuserve_status (*device_open)(struct gpuserve_device **device, int32_t index,
                                   gpuserve_error *error);
    /** Everything created from the device must be destroyed before. Accepts NULL, leaves NULL. */
    void (*device_close)(struct gpuserve_device **device);
    /** GPUSERVE_OK; or GPUSERVE_E_DEVICE and the cause if the device is lost for the life of the
     *  process: a call returned an error that invalidates its context, or timed out. Never blocks
     *  and never calls the device; callable from any thread. Objects of a lost device are destroyed
     *  as usual. */
    gpuserve_status (*device_check)(int32_t index, gpuserve_error *error);

    /* --- sizes: pure functions, exact, no device needed ------------------------------------ */

    /** Bytes of one element of an activation, 0 if the backend does not support `dtype`. */
    size_t (*activation_size)(uint32_t dtype);
    /** Bytes of one element of an embedding table of a model in `dtype`, 0 if the backend does not
     *  support it. */
    size_t (*table_size)(uint32_t dtype);
    /** Bytes that linear_create uses of its `memory`; a multiple of 64. */
    size_t (*linear_bytes)(int32_t n, int32_t k, uint32_t dtype);
    /** Bytes that a stream with these options allocates for itself, staging included. */
    size_t (*stream_bytes)(const struct gpuserve_stream_options *options);

    /* --- memory ---------------------------------------------------------------------------- */

    /** Device memory, aligned to at least 64 bytes. Uninitialised. */
    gpuserve_status (*memory_alloc)(struct gpuserve_device *device, void **memory, size_t size,
                                    gpuserve_error *error);
    void (*memory_free)(struct gpuserve_device *device, void *memory);
    /** Blocking copies, for loading and tests. */
    gpuserve_status (*memory_write)(struct gpuserve_device *device, void *to, const void *from_host,
                                    size_t size, gpuserve_error *error);
    gpuserve_status (*memory_read)(struct gpuserve_device *device, void *to_host, const void *from,
                                   size_t size, gpuserve_error *error);
    /** As memory_write for `count` floats, converted to the activation type of `dtype`. */
    gpuserve_status (*memory_write_floats)(struct gpuserve_device *device, void *to,
                                           const float *from_host, size_t count, uint32_t dtype,
                                           gpuserve_error *error);
    /** As memory_write for `count` floats, converted to the table type of `dtype`. A number beyond
     *  the range of that type becomes infinite. */
    gpuserve_status (*memory_write_table)(struct gpuserve_device *device, void *to,
                                          const float *from_host, size_t count, uint32_t dtype,
                                          gpuserve_error *error);
    /** Host memory of a gpuserve_host_memory; GPUSERVE_E_UNSUPPORTED: a host backend has no pinned
     *  one. Uninitialised. */
    gpuserve_status (*host_alloc)(struct gpuserve_device *device, void **memory, size_t size,
                                  uint32_t kind, gpuserve_error *error);
    void (*host_free)(struct gpuserve_device *device, void *memory, uint32_t kind);
    /** A single copy without a staging buffer of the backend, to measure it. */
    gpuserve_status (*transfer)(struct gpuserve_device *device, struct gpuserve_op_transfer *op,
                                gpuserve_error *error);

    /** Scales [n] of the weights of an INT8 product: the smallest with which this device multiplies
     *  fastest, also if each weight is rounded to either neighbour. linear_create accepts others. */
    void (*int8_scales)(struct gpuserve_device *device, const struct gpuserve_linear_source *source,
                        float *scales);
    /** The number of columns that an INT8 product of this device may have besides its `k` inputs, for
     *  gpuserve_linear_source.copies; 0: none. Columns cost as much as the next multiple of
     *  *step. */
    int32_t (*int8_copies)(struct gpuserve_device *device, int32_t k, int32_t *step);
    /** Pack weights into `memory`: device memory of linear_bytes(), 64-byte aligned, owned by the
     *  caller, which must outlive the linear. */
    gpuserve_status (*linear_create)(struct gpuserve_device *device, struct gpuserve_linear **linear,
                                     void *memory, const struct gpuserve_linear_source *source,
                                     gpuserve_error *error);
    void (*linear_destroy)(struct gpuserve_linear **linear);
    /** The memory of linear_create has moved to `to`, which holds the same bytes; `from` is invalid
     *  and not read. */
    void (*linear_move)(struct gpuserve_linear *linear, const void *from, void *to);

    /* --- streams --------------------------------------------------------------------------- */

    gpuserve_status (*stream_create)(struct gpuserve_device *device, struct gpuserve_stream **stream,
                                     const struct gpuserve_stream_options *options,
                                     gpuserve_error *error);
    void (*stream_destroy)(struct gpuserve_stream **stream);

    /** `program` identifies the sequence of operations that follows: two batches with the same
     *  program and shape run the same operations on the same addresses, unless it is ONCE. */
    gpuserve_status (*batch_begin)(struct gpuserve_stream *stream, uint64_t program,
                                   const struct gpuserve_host_batch *host,
                                   struct gpuserve_batch *batch, int32_t *replayed,
                                   gpuserve_error *error);
    /** Copy `size` bytes at `from` to `to_host`, which must stay valid until stream_wait. */
    gpuserve_status (*batch_end)(struct gpuserve_stream *stream, void *to_host, const void *from,
                                 size_t size, gpuserve_error *error);
    /** Follows batch_end. After a failed operation it replaces batch_end: it abandons the batch and
     *  returns the cause, or GPUSERVE_OK if only the operation's own status is known. */
    gpuserve_status (*stream_wait)(struct gpuserve_stream *stream, gpuserve_error *error);

    /* --- operations ------------------------------------------------------------------------ */

    /** Needs GPUSERVE_STREAM_PREFETCHES and a batch of GPUSERVE_PROGRAM_ONCE. The operations that
     *  follow read what the prefetch before this one of the batch has copied. The copy of this one
     *  begins after the operations queued so far and runs beside those that follow, which must not
     *  access `to` before the next prefetch. The last one of a batch has size 0. */
    gpuserve_status (*prefetch)(struct gpuserve_stream *stream,
                                const struct gpuserve_op_prefetch *op);
    gpuserve_status (*embed)(struct gpuserve_stream *stream, const struct gpuserve_op_embed *op);
    gpuserve_status (*linear)(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op);
    gpuserve_status (*add_norm)(struct gpuserve_stream *stream,
                                const struct gpuserve_op_add_norm *op);
    gpuserve_status (*rotate)(struct gpuserve_stream *stream, const struct gpuserve_op_rotate *op);
    gpuserve_status (*glu)(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op);
    gpuserve_status (*route)(struct gpuserve_stream *stream, const struct gpuserve_op_route *op);
    gpuserve_status (*add_scaled)(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_add_scaled *op);
    gpuserve_status (*attention)(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_attention *op);
    gpuserve_status (*pool)(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op);
    gpuserve_status (*normalize)(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op);
    gpuserve_status (*activate)(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op);
    gpuserve_status (*max_sim)(struct gpuserve_stream *stream,
                               const struct gpuserve_op_max_sim *op);
    gpuserve_status (*compact)(struct gpuserve_stream *stream,
                               const struct gpuserve_op_compact *op);

    /* --- arithmetic: on a stream outside of a batch, finished when the call returns ---------- */

    /** Resolve GPUSERVE_MATMUL_AUTO, and return the required scratch memory. The pointers are not
     *  read. GPUSERVE_E_UNSUPPORTED names the variant or dtype that the device lacks. */
    gpuserve_status (*matmul_bytes)(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                    size_t *size, gpuserve_error *error);
    /** Call matmul_bytes first. On failure C is undefined. */
    gpuserve_status (*matmul)(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                              gpuserve_error *error);
    gpuserve_status (*chain)(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                             gpuserve_error *error);

    /** Device memory that lstm_layer_create needs for the packed weights, a multiple of 64;
     *  GPUSERVE_E_UNSUPPORTED names a dtype that the backend lacks. A pure function; the source's
     *  pointers are not read. */
    gpuserve_status (*lstm_layer_bytes)(const struct gpuserve_lstm_source *source, size_t *size,
                                        gpuserve_error *error);
    /** An upper bound of lstm_bytes() with GPUSERVE_LSTM_AUTO for any run of at most n_rows rows and
     *  n_sequences sequences; SIZE_MAX if it overflows. A pure function; the source's pointers are
     *  not read. */
    size_t (*lstm_max_bytes)(const struct gpuserve_lstm_source *source, int32_t n_rows,
                             int32_t n_sequences);
    /** `memory` is as for linear_create. */
    gpuserve_status (*lstm_layer_create)(struct gpuserve_device *device,
                                         struct gpuserve_lstm_layer **layer, void *memory,
                                         const struct gpuserve_lstm_source *source,
                                         gpuserve_error *error);
    void (*lstm_layer_destroy)(struct gpuserve_lstm_layer **layer);
    /** As linear_move, for the memory of lstm_layer_create. */
    void (*lstm_layer_move)(struct gpuserve_lstm_layer *layer, const void *from, void *to);
    /** Resolve GPUSERVE_LSTM_AUTO, and return the required scratch memory. Of the pointers only
     *  `layer` and `host_sequences` are read. */
    gpuserve_status (*lstm_bytes)(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                  size_t *size, gpuserve_error *error);
    /** Call lstm_bytes first. On failure the outputs are undefined. */
    gpuserve_status (*lstm)(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                            gpuserve_error *error);

    /** On failure `out` is undefined. */
    gpuserve_status (*random)(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                              gpuserve_error *error);
};

/** The only symbol that a plugin exports. Returns NULL if it does not support `abi` or the host's
 *  struct. */
#define GPUSERVE_BACKEND_ENTRY "gpuserve_backend_entry"
typedef const struct gpuserve_backend *(*gpuserve_backend_entry_fn)(const struct gpuserve_host *host,
                                                                   gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_SYS_BACKEND_H */
