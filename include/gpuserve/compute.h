/*
 * gpuserve/compute.h - arithmetic on a device of your choice, without a model.
 *
 *   gpuserve_compute *compute = NULL;
 *   gpuserve_compute_open(&compute, context, NULL, &err);
 *   gpuserve_matmul(compute, &product, NULL, &err);
 *   gpuserve_chain(compute, steps, n_steps, in, out, n, NULL, &err);
 *   gpuserve_lstm_create(&lstm, compute, &network, &err);
 *   gpuserve_lstm_run(lstm, &sequences, NULL, &err);
 *   gpuserve_lstm_destroy(&lstm);
 *   gpuserve_compute_close(&compute);
 *
 * A compute handle is an open device with its threads or queue and the memory of the calls made so
 * far. That memory only grows; closing the handle gives it back. All matrices and vectors are in
 * host memory: on a GPU each call copies its operands there and its result back, which costs more
 * than computing where little is computed with much (a product of n x n matrices copies 12 n^2
 * bytes for 2 n^3 operations). The result structs tell both times.
 */
#ifndef GPUSERVE_COMPUTE_H
#define GPUSERVE_COMPUTE_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpuserve_context;
typedef struct gpuserve_compute gpuserve_compute;

/** How a compute handle is opened. Zero means the default in every field. */
typedef struct gpuserve_compute_options {
    uint32_t    struct_size;
    uint32_t    n_threads; /**< CPU: of the context's threads; default all */
    const char *device;    /**< selector as in gpuserve_device_select(); default "auto" */
} gpuserve_compute_options;

/* clang-format off */
#define GPUSERVE_COMPUTE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_compute_options), 0, 0 }
/* clang-format on */

/**
 * Open a device for arithmetic.
 *
 * @param compute  Receives the handle, owned; NULL on failure.
 * @param context  NULL gives the handle a private one. Its memory budget is of models, not of this.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID; GPUSERVE_E_DEVICE (the device named cannot be had);
 *         GPUSERVE_E_UNSUPPORTED (a GPU that is too old); GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_compute_open(gpuserve_compute **compute, struct gpuserve_context *context,
                      const gpuserve_compute_options *options, gpuserve_error *error);

/** The device, "cpu" or "cuda:0", lent; NULL for a NULL handle. Since: 0.1 */
GPUSERVE_API const char *gpuserve_compute_device(const gpuserve_compute *compute);

/** End a handle. Accepts NULL and a pointer to NULL; leaves NULL. Thread-safety: the last call on
 *  this handle. Since: 0.1 */
GPUSERVE_API void gpuserve_compute_close(gpuserve_compute **compute);

/* =================================================================================== matmul */

/** How a matrix product is computed: what a device lacks is GPUSERVE_E_UNSUPPORTED. */
typedef enum gpuserve_matmul_variant {
    GPUSERVE_MATMUL_AUTO = 0,        /**< the device's fastest for the dtype */
    GPUSERVE_MATMUL_NAIVE = 1,       /**< every output alone, straight from memory; float32. On a
                                          CPU by one thread */
    GPUSERVE_MATMUL_TILED = 2,       /**< by tiles that stay near: first-level cache (one thread) or
                                          shared memory and registers; float32 */
    GPUSERVE_MATMUL_SIMD = 3,        /**< CPU: packed panels, vector registers, all threads; float32
                                          and, where the processor multiplies it, bfloat16 */
    GPUSERVE_MATMUL_TENSOR_CORE = 4, /**< GPU: our kernel on tensor cores; tf32, float16, bfloat16 */
    GPUSERVE_MATMUL_CUBLAS = 5       /**< GPU: cuBLASLt, where it is installed; all four */
} gpuserve_matmul_variant;

/** No matrix has more rows or columns. */
#define GPUSERVE_MATMUL_MAX_SIDE 4194304

/**
 * One product, C = alpha * op(A) * op(B) + beta * C. Matrices are row-major float32; op transposes
 * where asked. In float16, bfloat16 and tf32 the elements of A and B are rounded to that format,
 * sums are kept in float32, and C is float32 all the same.
 */
typedef struct gpuserve_matmul_job {
    uint32_t     struct_size;
    uint32_t     dtype;       /**< gpuserve_dtype to multiply in; default float32; not int8 */
    uint32_t     variant;     /**< gpuserve_matmul_variant */
    uint32_t     transpose_a; /**< 1: A is stored [k, m] */
    uint32_t     transpose_b; /**< 1: B is stored [n, k] */
    float        alpha;       /**< taken as it stands: 0 is 0; the _INIT macro sets 1 */
    float        beta;        /**< 0: C is not read, so it may hold anything */
    uint32_t     reserved;    /**< zero */
    int64_t      m;           /**< rows of C; 0 is allowed and does nothing */
    int64_t      n;           /**< columns of C; likewise */
    int64_t      k;           /**< 0: the product is zero, C becomes beta * C */
    const float *a;           /**< [m, k], borrowed; may be NULL when it has no element */
    const float *b;           /**< [k, n], likewise */
    float       *c;           /**< [m, n]; shares no element with A or B */
    int64_t      a_stride;    /**< floats from row to row as stored; default 0: tight */
    int64_t      b_stride;    /**< likewise */
    int64_t      c_stride;    /**< likewise; what lies between the rows is left alone */
    size_t       c_capacity;  /**< floats at `c` */
} gpuserve_matmul_job;

/* clang-format off */
#define GPUSERVE_MATMUL_JOB_INIT { (uint32_t)sizeof(gpuserve_matmul_job), 0, 0, 0, 0, 1.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** What a call took; begin with its _INIT macro. */
typedef struct gpuserve_compute_result {
    uint32_t struct_size;
    uint32_t variant;        /**< the one that ran: gpuserve_matmul_variant, _chain_variant or
                                  _lstm_variant */
    double   kernel_seconds; /**< on the device: rounding, packing and computing. On a GPU by its
                                  own clock */
    double   copy_seconds;   /**< operands there and the result back; 0 on the CPU but for rows with
                                  gaps */
} gpuserve_compute_result;

/* clang-format off */
#define GPUSERVE_COMPUTE_RESULT_INIT { (uint32_t)sizeof(gpuserve_compute_result), 0, 0, 0 }
/* clang-format on */

/**
 * Multiply two matrices, blocking.
 *
 * @param job     The whole of it is checked before anything is computed; on failure C is untouched.
 * @param result  May be NULL.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a size is negative, a pointer NULL, a stride below the row's
 *                                 length, `c_capacity` too small, an unknown value
 *         GPUSERVE_E_TOO_LARGE    a side over GPUSERVE_MATMUL_MAX_SIDE, or bytes past size_t
 *         GPUSERVE_E_UNSUPPORTED  this device has no such variant, or not in this dtype
 *         GPUSERVE_E_NOMEM        host or device; the message has the numbers
 *         GPUSERVE_E_DEVICE       the device failed; close the handle
 *
 * The same job gives the same bits on the same device each time, for any number of threads.
 * Thread-safety: safe; calls on one handle run one after the other. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_matmul(gpuserve_compute          *compute,
                                                              const gpuserve_matmul_job *job,
                                                              gpuserve_compute_result   *result,
                                                              gpuserve_error            *error);

/* ==================================================================================== chain */

/** One operation on every element x. Numbers never change meaning. */
typedef enum gpuserve_chain_kind {
    GPUSERVE_CHAIN_ADD = 1,        /**< x + a */
    GPUSERVE_CHAIN_MULTIPLY = 2,   /**< x * a */
    GPUSERVE_CHAIN_FMA = 3,        /**< x * a + b, rounded once */
    GPUSERVE_CHAIN_MINIMUM = 4,    /**< the smaller of x and a; NaN stays NaN */
    GPUSERVE_CHAIN_MAXIMUM = 5,    /**< the larger; likewise */
    GPUSERVE_CHAIN_ABSOLUTE = 6,   /**< |x| */
    GPUSERVE_CHAIN_RECIPROCAL = 7, /**< 1 / x */
    GPUSERVE_CHAIN_SQRT = 8,
    GPUSERVE_CHAIN_EXP = 9,
    GPUSERVE_CHAIN_LOG = 10,       /**< natural */
    GPUSERVE_CHAIN_SIN = 11,
    GPUSERVE_CHAIN_COS = 12,
    GPUSERVE_CHAIN_TANH = 13,
    GPUSERVE_CHAIN_ERF = 14,
    GPUSERVE_CHAIN_SIGMOID = 15,   /**< 1 / (1 + e^-x) */
    GPUSERVE_CHAIN_RELU = 16,      /**< max(x, 0) */
    GPUSERVE_CHAIN_GELU = 17       /**< x / 2 * (1 + erf(x / sqrt 2)) */
} gpuserve_chain_kind;

/** One step of a chain. The layout of this struct is fixed for ever. */
typedef struct gpuserve_chain_step {
    uint32_t kind; /**< gpuserve_chain_kind */
    float    a;    /**< the first operand of those that have one */
    float    b;    /**< FMA only */
} gpuserve_chain_step;

/** What computed a chain. The bits are the same. */
typedef enum gpuserve_chain_variant {
    GPUSERVE_CHAIN_PRECOMPILED = 0, /**< a kernel for all lists; on a CPU always */
    GPUSERVE_CHAIN_GENERATED = 1    /**< a kernel compiled for this list by NVRTC: on a GPU where that
                                         library is, and once the list was asked to do enough */
} gpuserve_chain_variant;

/** Most steps of a chain. */
#define GPUSERVE_CHAIN_MAX_STEPS 65536

/**
 * Apply a list of operations to every element of a vector, in one pass over memory: an element is
 * read once, goes through all the steps, and is written once. On a GPU by an interpreter that
 * keeps elements in registers, or, for a list that is asked to do much, by a kernel compiled for it;
 * on a CPU by blocks in the first-level cache, shared by all threads.
 *
 * @param steps    [n_steps], applied in their order; none copies `in` to `out`.
 * @param in       [n], borrowed.
 * @param out      [n]; may be `in`, else apart from it. Untouched on failure.
 * @param n        0 is allowed and does nothing.
 * @param result   May be NULL. Its `variant` is a gpuserve_chain_variant.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID (an unknown kind: the message has its step; NULL;
 *         overlapping vectors); GPUSERVE_E_TOO_LARGE (more than GPUSERVE_CHAIN_MAX_STEPS steps, or
 *         bytes past size_t); GPUSERVE_E_NOMEM; GPUSERVE_E_DEVICE (close the handle)
 *
 * Every step is float32 arithmetic, within 4 units in the last place of the exact function of its
 * input (sin, cos and GELU: or within 2e-7; sin and cos only while |x| is below 10^5).
 * Thread-safety: as gpuserve_matmul(). Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_chain(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
               const float *in, float *out, size_t n, gpuserve_compute_result *result,
               gpuserve_error *error);

/* ===================================================================================== lstm */

/**
 * One layer's weights in one direction, as torch.nn.LSTM names and orders them: the gates are
 * input, forget, cell and output, each `hidden_size` rows. Row-major, borrowed. The layout of this
 * struct is fixed for ever.
 */
typedef struct gpuserve_lstm_weights {
    const float *weight_ih; /**< [4 * hidden_size, width of the layer's input] */
    const float *weight_hh; /**< [4 * hidden_size, hidden_size] */
    const float *bias_ih;   /**< [4 * hidden_size]; NULL is zeros */
    const float *bias_hh;   /**< likewise */
} gpuserve_lstm_weights;

/** No width of an LSTM is larger. */
#define GPUSERVE_LSTM_MAX_SIZE 65536
/** Most layers of an LSTM. */
#define GPUSERVE_LSTM_MAX_LAYERS 256

/**
 * A network of LSTM layers, torch.nn.LSTM without projections. The first layer's input is
 * `input_size` wide, that of the others is the output of the layer before: `hidden_size` wide, or
 * twice that where it runs in both directions (forwards first).
 */
typedef struct gpuserve_lstm_network {
    uint32_t                     struct_size;
    uint32_t                     dtype; /**< gpuserve_dtype of the products: float32, the default, or
                                             float16 where the device has it; sums, gates and cells
                                             are float32 */
    int32_t                      input_size;
    int32_t                      hidden_size;
    int32_t                      n_layers;      /**< default 1 */
    uint32_t                     bidirectional; /**< 1: each layer runs in both directions */
    const gpuserve_lstm_weights *weights;       /**< [n_layers, directions]; copied */
    size_t                       n_weights;     /**< how many there are: n_layers * directions */
} gpuserve_lstm_network;

/* clang-format off */
#define GPUSERVE_LSTM_NETWORK_INIT { (uint32_t)sizeof(gpuserve_lstm_network), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** How an LSTM is computed. */
typedef enum gpuserve_lstm_variant {
    GPUSERVE_LSTM_AUTO = 0,
    GPUSERVE_LSTM_STEPS = 1, /**< each step alone: its product, then its gates; on a GPU some kernels
                                  for each step and direction. To compare with */
    GPUSERVE_LSTM_FUSED = 2  /**< the input's product for all steps at once, then the steps; on a GPU
                                  in one kernel that keeps the recurrent weights in shared memory */
} gpuserve_lstm_variant;

/**
 * Sequences of any lengths for one run, packed end to end without padding, in any order. Sequence i
 * is the rows from cu_seqlens[i] to cu_seqlens[i + 1]; it may be empty, and then its final state is
 * its initial state. A layer's states come as torch has them: layer * directions + direction.
 */
typedef struct gpuserve_lstm_job {
    uint32_t       struct_size;
    uint32_t       variant;     /**< gpuserve_lstm_variant */
    int32_t        n_sequences; /**< 0 is allowed and does nothing */
    int32_t        reserved;    /**< zero */
    const int32_t *cu_seqlens;  /**< [n_sequences + 1]: 0, then where each sequence ends */
    const float   *input;       /**< [steps of all sequences, input_size] */
    const float   *h_0;         /**< [n_layers * directions, n_sequences, hidden_size]; NULL is zeros */
    const float   *c_0;         /**< likewise */
    float         *output;      /**< [steps, directions * hidden_size], the last layer's hidden
                                     states; or NULL */
    float         *h_n;         /**< as h_0: the states at the end of each sequence; or NULL */
    float         *c_n;         /**< likewise */
    size_t         output_capacity; /**< floats at `output` */
    size_t         h_n_capacity;    /**< floats at `h_n` */
    size_t         c_n_capacity;    /**< floats at `c_n` */
} gpuserve_lstm_job;

/* clang-format off */
#define GPUSERVE_LSTM_JOB_INIT { (uint32_t)sizeof(gpuserve_lstm_job), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

typedef struct gpuserve_lstm gpuserve_lstm;

/**
 * Bring a network's weights to a device, packed as its kernels want them.
 *
 * @param lstm     Receives the handle, owned; NULL on failure.
 * @param compute  Outlives the handle, which runs on it and shares its memory for operands.
 * @param network  Checked whole before anything is taken.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a size below 1, `n_weights` that does not suit, a matrix that is
 *                                 NULL, an unknown value
 *         GPUSERVE_E_TOO_LARGE    over GPUSERVE_LSTM_MAX_SIZE or _MAX_LAYERS
 *         GPUSERVE_E_UNSUPPORTED  a dtype the device does not compute an LSTM in
 *         GPUSERVE_E_NOMEM        host or device; the message has the numbers
 *         GPUSERVE_E_DEVICE       the device failed; close the handle
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_lstm_create(gpuserve_lstm **lstm, gpuserve_compute *compute,
                     const gpuserve_lstm_network *network, gpuserve_error *error);

/**
 * Run sequences through the network, blocking.
 *
 * @param job     The whole of it is checked before anything is computed; on failure the outputs are
 *                untouched. No output overlaps an input or another output.
 * @param result  May be NULL. Its `variant` is a gpuserve_lstm_variant.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a NULL pointer, `cu_seqlens` that does not begin at 0 or falls, a
 *                                 capacity that is too small, outputs that overlap, an unknown value
 *         GPUSERVE_E_TOO_LARGE    more bytes than there are addresses
 *         GPUSERVE_E_UNSUPPORTED  this device has no such variant
 *         GPUSERVE_E_NOMEM        host or device; the message has the numbers
 *         GPUSERVE_E_DEVICE       the device failed; close the compute handle
 *
 * The same job gives the same bits on the same device each time; on a CPU a sequence gives the same
 * bits whatever runs beside it. NaN and infinite inputs stay in their own sequence.
 * Thread-safety: safe; calls on one compute handle run one after the other. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_lstm_run(gpuserve_lstm           *lstm,
                                                                const gpuserve_lstm_job *job,
                                                                gpuserve_compute_result *result,
                                                                gpuserve_error          *error);

/** Give the weights' memory back. Accepts NULL and a pointer to NULL; leaves NULL. Thread-safety: the
 *  last call on this handle. Since: 0.1 */
GPUSERVE_API void gpuserve_lstm_destroy(gpuserve_lstm **lstm);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_COMPUTE_H */
