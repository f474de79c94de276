/*
 * gpuserve/compute.h - matrix product, elementwise chains, LSTM and measured copies on a device, without a
 * model.
 *
 *   gpuserve_compute *compute = NULL;
 *   gpuserve_compute_open(&compute, context, NULL, &err);
 *   gpuserve_matmul(compute, &product, NULL, &err);
 *   gpuserve_chain(compute, steps, n_steps, in, out, n, NULL, &err);
 *   gpuserve_lstm_create(&lstm, compute, &network, &err);
 *   gpuserve_lstm_run(lstm, &sequences, NULL, &err);
 *   gpuserve_lstm_free(&lstm);
 *   gpuserve_transfer(compute, &copies, &err);
 *   gpuserve_compute_close(&compute);
 *
 * A compute handle is an open device with its threads or queue and a buffer for operands. The
 * buffer grows to the largest call and is released when the handle closes. All matrices and vectors
 * are in host memory: on a GPU each call copies its operands to the device and its result back.
 * The copy dominates at low arithmetic intensity (a product of n x n matrices copies 12 n^2 bytes
 * for 2 n^3 operations). The result structs report both times.
 */
#ifndef GPUSERVE_COMPUTE_H
#define GPUSERVE_COMPUTE_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuserve_compute gpuserve_compute;

/** Options of gpuserve_compute_open(). Zero means the default in every field. */
typedef struct gpuserve_compute_options {
    uint32_t    struct_size;
    uint32_t    n_threads; /**< CPU: number of the context's threads to use; default all */
    const char *device;    /**< selector as in gpuserve_device_select(); default "auto" */
} gpuserve_compute_options;

/* clang-format off */
#define GPUSERVE_COMPUTE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_compute_options), 0, 0 }
/* clang-format on */

/**
 * Open a device for computation.
 *
 * @param compute  Receives the handle, owned; NULL on failure.
 * @param context  NULL gives the handle a private one. Its memory budget covers models only, not
 *                 compute handles.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID; GPUSERVE_E_DEVICE (the named device is unavailable);
 *         GPUSERVE_E_UNSUPPORTED (the GPU is too old); GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_compute_open(gpuserve_compute **compute, gpuserve_context *context,
                      const gpuserve_compute_options *options, gpuserve_error *error);

/** The device, "cpu" or "cuda:0". Borrowed from the handle; NULL for a NULL handle. Since: 0.2 */
GPUSERVE_API const char *gpuserve_compute_device(const gpuserve_compute *compute);

/** Close a handle. Accepts NULL and a pointer to NULL; leaves NULL. Thread-safety: the last call on
 *  this handle. Since: 0.2 */
GPUSERVE_API void gpuserve_compute_close(gpuserve_compute **compute);

/* =================================================================================== matmul */

/** Algorithm of a matrix product. A variant that the device lacks gives GPUSERVE_E_UNSUPPORTED. */
typedef enum gpuserve_matmul_variant {
    GPUSERVE_MATMUL_AUTO = 0,        /**< the device's fastest variant for the dtype */
    GPUSERVE_MATMUL_NAIVE = 1,       /**< each output element separately, no tiling; float32. On a
                                          CPU single-threaded */
    GPUSERVE_MATMUL_TILED = 2,       /**< cache blocking: tiles in the L1 cache (single-threaded),
                                          or in shared memory and registers on a GPU; float32 */
    GPUSERVE_MATMUL_SIMD = 3,        /**< CPU: packed panels, vector registers, all threads;
                                          float32, and bfloat16 if the processor has instructions
                                          for it */
    GPUSERVE_MATMUL_TENSOR_CORE = 4, /**< GPU: gpuserve's tensor core kernel; tf32, float16,
                                          bfloat16 */
    GPUSERVE_MATMUL_CUBLAS = 5       /**< GPU: cuBLASLt, if installed; all four dtypes */
} gpuserve_matmul_variant;

/** Maximum rows or columns of a matrix. */
#define GPUSERVE_MATMUL_MAX_SIDE 4194304

/**
 * One product, C = alpha * op(A) * op(B) + beta * C. Matrices are row-major float32; op is the
 * optional transpose. In float16, bfloat16 and tf32 the elements of A and B are rounded to that
 * format; sums and C stay float32.
 */
typedef struct gpuserve_matmul_job {
    uint32_t     struct_size;
    uint32_t     dtype;       /**< gpuserve_dtype of the product; default float32; not int8 */
    uint32_t     variant;     /**< gpuserve_matmul_variant */
    uint32_t     transpose_a; /**< 1: A is stored [k, m] */
    uint32_t     transpose_b; /**< 1: B is stored [n, k] */
    float        alpha;       /**< used as given: 0 means 0; the _INIT macro sets 1 */
    float        beta;        /**< 0: C is not read, so it may be uninitialised */
    uint32_t     reserved;    /**< zero */
    int64_t      m;           /**< rows of C; 0 is allowed and does nothing */
    int64_t      n;           /**< columns of C; 0 is allowed and does nothing */
    int64_t      k;           /**< 0: the product is zero, C becomes beta * C */
    const float *a;           /**< [m, k], borrowed; may be NULL if it has no elements */
    const float *b;           /**< [k, n], as `a` */
    float       *c;           /**< [m, n]; must not overlap A or B */
    int64_t      a_stride;    /**< floats between row starts, as stored; default 0: contiguous */
    int64_t      b_stride;    /**< as a_stride */
    int64_t      c_stride;    /**< as a_stride; the gaps between rows are not written */
    size_t       c_capacity;  /**< capacity of `c` in floats */
} gpuserve_matmul_job;

/* clang-format off */
#define GPUSERVE_MATMUL_JOB_INIT { (uint32_t)sizeof(gpuserve_matmul_job), 0, 0, 0, 0, 1.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Timings of a call; initialise with the _INIT macro. */
typedef struct gpuserve_compute_result {
    uint32_t struct_size;
    uint32_t variant;        /**< the variant that ran: gpuserve_matmul_variant, _chain_variant,
                                  _random_variant or _lstm_variant */
    double   kernel_seconds; /**< time on the device: rounding, packing and computing. On a GPU by
                                  the device's clock */
    double   copy_seconds;   /**< time to copy operands to the device and the result back; on the
                                  CPU 0 except for rows with gaps */
} gpuserve_compute_result;

/* clang-format off */
#define GPUSERVE_COMPUTE_RESULT_INIT { (uint32_t)sizeof(gpuserve_compute_result), 0, 0, 0 }
/* clang-format on */

/**
 * Multiply two matrices, blocking.
 *
 * @param job     Fully validated before any computation; on failure C is unchanged.
 * @param result  May be NULL.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a size is negative, a pointer NULL, a stride below the row
 *                                 length, `c_capacity` too small, an unknown value
 *         GPUSERVE_E_TOO_LARGE    a side over GPUSERVE_MATMUL_MAX_SIDE, or bytes overflow size_t
 *         GPUSERVE_E_UNSUPPORTED  the device lacks this variant, or lacks it for this dtype
 *         GPUSERVE_E_NOMEM        host or device; the message has the sizes
 *         GPUSERVE_E_DEVICE       the device failed; close the handle
 *
 * Deterministic: the same job gives the same bits on the same device, for any number of threads.
 * Thread-safety: safe; calls on one handle are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_matmul(gpuserve_compute          *compute,
                                                              const gpuserve_matmul_job *job,
                                                              gpuserve_compute_result   *result,
                                                              gpuserve_error            *error);

/* ==================================================================================== chain */

/** One elementwise operation on x. Values never change meaning. */
typedef enum gpuserve_chain_kind {
    GPUSERVE_CHAIN_ADD = 1,        /**< x + a */
    GPUSERVE_CHAIN_MULTIPLY = 2,   /**< x * a */
    GPUSERVE_CHAIN_FMA = 3,        /**< x * a + b, rounded once */
    GPUSERVE_CHAIN_MINIMUM = 4,    /**< min(x, a); NaN stays NaN */
    GPUSERVE_CHAIN_MAXIMUM = 5,    /**< max(x, a); NaN stays NaN */
    GPUSERVE_CHAIN_ABSOLUTE = 6,   /**< |x| */
    GPUSERVE_CHAIN_RECIPROCAL = 7, /**< 1 / x */
    GPUSERVE_CHAIN_SQRT = 8,
    GPUSERVE_CHAIN_EXP = 9,
    GPUSERVE_CHAIN_LOG = 10,       /**< natural logarithm */
    GPUSERVE_CHAIN_SIN = 11,
    GPUSERVE_CHAIN_COS = 12,
    GPUSERVE_CHAIN_TANH = 13,
    GPUSERVE_CHAIN_ERF = 14,
    GPUSERVE_CHAIN_SIGMOID = 15,   /**< 1 / (1 + e^-x) */
    GPUSERVE_CHAIN_RELU = 16,      /**< max(x, 0) */
    GPUSERVE_CHAIN_GELU = 17       /**< x / 2 * (1 + erf(x / sqrt 2)) */
} gpuserve_chain_kind;

/** One step of a chain. The layout of this struct is fixed. */
typedef struct gpuserve_chain_step {
    uint32_t kind; /**< gpuserve_chain_kind */
    float    a;    /**< first operand of the operations that have one */
    float    b;    /**< second operand, FMA only */
} gpuserve_chain_step;

/** How a chain was computed. Both variants give the same bits. */
typedef enum gpuserve_chain_variant {
    GPUSERVE_CHAIN_PRECOMPILED = 0, /**< the interpreter kernel for any list; always on a CPU */
    GPUSERVE_CHAIN_GENERATED = 1    /**< a kernel compiled for this list by NVRTC: on a GPU with
                                         NVRTC installed, once the total work of the list is large
                                         enough */
} gpuserve_chain_variant;

/** Maximum steps of a chain. */
#define GPUSERVE_CHAIN_MAX_STEPS 65536

/**
 * Apply a list of operations to every element of a vector in one pass over memory (fused
 * elementwise operations): each element is read once, goes through all steps, and is written once.
 * On a GPU an interpreter kernel keeps elements in registers; a list with enough total work gets a
 * kernel compiled for it. On a CPU the threads share blocks that fit the L1 cache.
 *
 * @param steps    [n_steps], applied in order; no steps copies `in` to `out`.
 * @param in       [n], borrowed.
 * @param out      [n]; either equal to `in` or not overlapping it. Unchanged on failure.
 * @param n        0 is allowed and does nothing.
 * @param result   May be NULL. Its `variant` is a gpuserve_chain_variant.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID (an unknown kind: the message has its step; NULL;
 *         overlapping vectors); GPUSERVE_E_TOO_LARGE (more than GPUSERVE_CHAIN_MAX_STEPS steps, or
 *         bytes overflow size_t); GPUSERVE_E_NOMEM; GPUSERVE_E_DEVICE (close the handle)
 *
 * Every step is float32 arithmetic, within 4 ULP (units in the last place) of the exact function of
 * its input (sin, cos and GELU: or within 2e-7; sin and cos only while |x| is below 10^5). On a CPU
 * it is within 2 ULP for every input.
 * Thread-safety: as gpuserve_matmul(). Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_chain(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
               const float *in, float *out, size_t n, gpuserve_compute_result *result,
               gpuserve_error *error);

/* =================================================================================== random */

/** Generator of random numbers. All values give the same numbers. Since: 0.2 */
typedef enum gpuserve_random_variant {
    GPUSERVE_RANDOM_AUTO = 0,  /**< gpuserve's own loop or kernel */
    GPUSERVE_RANDOM_CURAND = 1 /**< GPU: curandGenerate() of cuRAND 10, loaded at run time */
} gpuserve_random_variant;

/** Maximum number of outputs of one gpuserve_random_numbers() call. */
#define GPUSERVE_RANDOM_MAX_NUMBERS 1073741824

/**
 * Outputs of the generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel Random Numbers:
 * As Easy as 1, 2, 3"). Output p = first + i is word p mod 4 of block b = p / 4. The key is the seed.
 * The 128-bit counter is b / 65536 in the lower 64 bits and b mod 65536 in the upper ones. That is the
 * order of cuRAND's CURAND_RNG_PSEUDO_PHILOX4_32_10 with CURAND_ORDERING_PSEUDO_LEGACY. The weights of
 * a random model ("random:SHAPE") are these outputs as signed 32-bit integers times a constant.
 *
 * @param variant  gpuserve_random_variant
 * @param seed     Any number.
 * @param first    Index of the first output: a multiple of 4, at most 2^60.
 * @param out      [n] outputs; undefined after GPUSERVE_E_DEVICE, unchanged after another failure.
 * @param n        Number of outputs; 0 is allowed and does nothing.
 * @param result   May be NULL. Its `variant` is a gpuserve_random_variant.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      an unknown variant, `first` is not a multiple of 4 or over 2^60,
 *                                 `out` is NULL
 *         GPUSERVE_E_TOO_LARGE    `n` is over GPUSERVE_RANDOM_MAX_NUMBERS
 *         GPUSERVE_E_UNSUPPORTED  CURAND on a CPU, or cuRAND is not installed
 *         GPUSERVE_E_NOMEM        host or device
 *         GPUSERVE_E_DEVICE       the device failed; close the handle
 *
 * Thread-safety: safe; calls on one handle are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_random_numbers(gpuserve_compute *compute, uint32_t variant, uint64_t seed, uint64_t first,
                        uint32_t *out, size_t n, gpuserve_compute_result *result,
                        gpuserve_error *error);

/* ================================================================================= transfer */

/** Direction of a copy. Since: 0.2 */
typedef enum gpuserve_transfer_direction {
    GPUSERVE_TRANSFER_TO_DEVICE = 0,
    GPUSERVE_TRANSFER_FROM_DEVICE = 1
} gpuserve_transfer_direction;

/** Kind of host memory. Since: 0.2 */
typedef enum gpuserve_host_memory {
    GPUSERVE_HOST_PAGEABLE = 0, /**< ordinary memory, of malloc(); the driver copies it through a
                                     buffer of its own */
    GPUSERVE_HOST_PINNED = 1    /**< page-locked: the device reads and writes it itself */
} gpuserve_host_memory;

/** Maximum bytes of a copy. */
#define GPUSERVE_TRANSFER_MAX_BYTES 1073741824
/** Maximum number of copies of one gpuserve_transfer() call. */
#define GPUSERVE_TRANSFER_MAX_COPIES 10000

/** Copies to measure. Since: 0.2 */
typedef struct gpuserve_transfer_job {
    uint32_t struct_size;
    uint32_t direction;   /**< gpuserve_transfer_direction */
    uint32_t host_memory; /**< gpuserve_host_memory */
    uint32_t n_copies;    /**< number of measured copies, 1 to GPUSERVE_TRANSFER_MAX_COPIES; a
                               warm-up copy precedes them */
    size_t   size_bytes;  /**< of each copy, 1 to GPUSERVE_TRANSFER_MAX_BYTES */
    double  *seconds;     /**< [n_copies] receives the time of each copy */
} gpuserve_transfer_job;

/* clang-format off */
#define GPUSERVE_TRANSFER_JOB_INIT { (uint32_t)sizeof(gpuserve_transfer_job), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Measure copies between host memory, which the call allocates, and the memory of a device. A time
 * is that of the copy alone, from the call until the last byte has arrived: allocation and first
 * access of the memory come before it. The bytes are compared with what was sent. On a CPU a copy
 * is a memcpy() on one thread, within host memory.
 *
 * @param job  On failure `seconds` is undefined.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      an unknown direction or kind, `size_bytes` or `n_copies` is 0,
 *                                 `seconds` is NULL
 *         GPUSERVE_E_TOO_LARGE    over GPUSERVE_TRANSFER_MAX_BYTES or _MAX_COPIES
 *         GPUSERVE_E_UNSUPPORTED  pinned memory on a CPU
 *         GPUSERVE_E_NOMEM        host or device; the message has the size
 *         GPUSERVE_E_DEVICE       the device failed, or other bytes arrived; close the handle
 *
 * Thread-safety: safe; calls on one handle are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_transfer(gpuserve_compute *compute,
                                                                const gpuserve_transfer_job *job,
                                                                gpuserve_error *error);

/* ===================================================================================== lstm */

/**
 * Weights of one layer in one direction, named and ordered as in torch.nn.LSTM: the gates are
 * input, forget, cell and output, each `hidden_size` rows. Row-major, borrowed. The layout of this
 * struct is fixed.
 */
typedef struct gpuserve_lstm_weights {
    const float *weight_ih; /**< [4 * hidden_size, width of the layer's input] */
    const float *weight_hh; /**< [4 * hidden_size, hidden_size] */
    const float *bias_ih;   /**< [4 * hidden_size]; NULL is zeros */
    const float *bias_hh;   /**< as bias_ih */
} gpuserve_lstm_weights;

/** Maximum width of an LSTM. */
#define GPUSERVE_LSTM_MAX_SIZE 65536
/** Maximum layers of an LSTM. */
#define GPUSERVE_LSTM_MAX_LAYERS 256

/**
 * A network of LSTM layers: torch.nn.LSTM without projections. The input of the first layer is
 * `input_size` wide. The input of every other layer is the output of the previous layer:
 * `hidden_size` wide, or twice that if bidirectional (forward direction first).
 */
typedef struct gpuserve_lstm_network {
    uint32_t                     struct_size;
    uint32_t                     dtype; /**< gpuserve_dtype of the products: float32, the default,
                                             or float16 if the device supports it; sums, gates and
                                             cells are float32 */
    int32_t                      input_size;
    int32_t                      hidden_size;
    int32_t                      n_layers;      /**< default 1 */
    uint32_t                     bidirectional; /**< 1: each layer runs in both directions */
    const gpuserve_lstm_weights *weights;       /**< [n_layers, directions]; copied */
    size_t                       n_weights;     /**< number of elements: n_layers * directions */
} gpuserve_lstm_network;

/* clang-format off */
#define GPUSERVE_LSTM_NETWORK_INIT { (uint32_t)sizeof(gpuserve_lstm_network), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Algorithm of an LSTM. */
typedef enum gpuserve_lstm_variant {
    GPUSERVE_LSTM_AUTO = 0,
    GPUSERVE_LSTM_STEPS = 1, /**< each time step separately: its product, then its gates; on a GPU
                                  several kernels per step and direction. The baseline for
                                  comparisons */
    GPUSERVE_LSTM_FUSED = 2, /**< one input product for all time steps, then the recurrence; on a
                                  GPU in one kernel that keeps the recurrent weights in shared
                                  memory */
    GPUSERVE_LSTM_CUDNN = 3  /**< GPU: cudnnRNNForward() of cuDNN 9, loaded at run time. AUTO never
                                  selects it */
} gpuserve_lstm_variant;

/**
 * Sequences of any lengths for one run, concatenated without padding, in any order. Sequence i is
 * the rows from cu_seqlens[i] to cu_seqlens[i + 1]. An empty sequence has its initial state as its
 * final state. States are indexed as in torch: layer * directions + direction.
 */
typedef struct gpuserve_lstm_job {
    uint32_t       struct_size;
    uint32_t       variant;     /**< gpuserve_lstm_variant */
    int32_t        n_sequences; /**< 0 is allowed and does nothing */
    int32_t        reserved;    /**< zero */
    const int32_t *cu_seqlens;  /**< [n_sequences + 1]: 0, then the end of each sequence */
    const float   *input;       /**< [time steps of all sequences, input_size] */
    const float   *h_0;         /**< [n_layers * directions, n_sequences, hidden_size]; NULL is zeros */
    const float   *c_0;         /**< as h_0 */
    float         *output;      /**< [time steps, directions * hidden_size], the last layer's hidden
                                     states; or NULL */
    float         *h_n;         /**< shape of h_0: the states at the end of each sequence; or
                                     NULL */
    float         *c_n;         /**< as h_n */
    size_t         output_capacity; /**< capacity of `output` in floats */
    size_t         h_n_capacity;    /**< capacity of `h_n` in floats */
    size_t         c_n_capacity;    /**< capacity of `c_n` in floats */
} gpuserve_lstm_job;

/* clang-format off */
#define GPUSERVE_LSTM_JOB_INIT { (uint32_t)sizeof(gpuserve_lstm_job), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

typedef struct gpuserve_lstm gpuserve_lstm;

/**
 * Copy the weights of a network to a device, packed for its kernels.
 *
 * @param lstm     Receives the handle, owned; NULL on failure.
 * @param compute  Must outlive the LSTM handle, which runs on it and shares its operand buffer.
 * @param network  Fully validated before any allocation.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a size below 1, `n_weights` does not match, a matrix is NULL, an
 *                                 unknown value
 *         GPUSERVE_E_TOO_LARGE    over GPUSERVE_LSTM_MAX_SIZE or _MAX_LAYERS
 *         GPUSERVE_E_UNSUPPORTED  the device does not compute an LSTM in this dtype
 *         GPUSERVE_E_NOMEM        host or device; the message has the sizes
 *         GPUSERVE_E_DEVICE       the device failed; close the handle
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_lstm_create(gpuserve_lstm **lstm, gpuserve_compute *compute,
                     const gpuserve_lstm_network *network, gpuserve_error *error);

/**
 * Run sequences through the network, blocking.
 *
 * @param job     Fully validated before any computation; on failure the outputs are unchanged. No
 *                output may overlap an input or another output.
 * @param result  May be NULL. Its `variant` is a gpuserve_lstm_variant.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a NULL pointer, `cu_seqlens` does not begin at 0 or decreases, a
 *                                 capacity is too small, outputs overlap, an unknown value
 *         GPUSERVE_E_TOO_LARGE    the byte count overflows the address space
 *         GPUSERVE_E_UNSUPPORTED  the device lacks this variant, or cuDNN is not installed
 *         GPUSERVE_E_NOMEM        host or device; the message has the sizes
 *         GPUSERVE_E_DEVICE       the device failed; close the compute handle
 *
 * Deterministic: the same job gives the same bits on the same device. On a CPU the bits of a
 * sequence do not depend on the other sequences. NaN and infinite inputs affect only their own
 * sequence. Thread-safety: safe; calls on one compute handle are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_lstm_run(gpuserve_lstm           *lstm,
                                                                const gpuserve_lstm_job *job,
                                                                gpuserve_compute_result *result,
                                                                gpuserve_error          *error);

/** Free the weights. Accepts NULL and a pointer to NULL; leaves NULL. Thread-safety: the last call
 *  on this handle. Since: 0.2 */
GPUSERVE_API void gpuserve_lstm_free(gpuserve_lstm **lstm);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_COMPUTE_H */
