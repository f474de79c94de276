/*
 * gpuserve/sys/arithmetic.h - operations of a backend outside of a batch: matrix product, chain of
 * elementwise operations, random numbers, LSTM and GRU. <gpuserve/sys/backend.h> includes this
 * header; GPUSERVE_BACKEND_ABI covers both.
 */
#ifndef GPUSERVE_SYS_ARITHMETIC_H
#define GPUSERVE_SYS_ARITHMETIC_H

#include <gpuserve/compute.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpuserve_lstm_layer;

/** C = alpha * op(A) op(B) + beta * C; see gpuserve_matmul_job. m, n and k are positive. */
struct gpuserve_op_matmul {
    const float *a;       /**< [m, k], or [k, m] when transpose_a; rows a_stride floats apart */
    const float *b;       /**< [k, n], or [n, k] when transpose_b; rows b_stride apart */
    float       *c;       /**< [m, n], rows c_stride apart */
    void        *scratch; /**< device memory of matmul_bytes(), 64-byte aligned */
    int64_t      a_stride;
    int64_t      b_stride;
    int64_t      c_stride;
    int32_t      m;
    int32_t      n;
    int32_t      k;
    int32_t      transpose_a;
    int32_t      transpose_b;
    uint32_t     variant; /**< gpuserve_matmul_variant */
    uint32_t     dtype;   /**< gpuserve_dtype except DEFAULT and INT8 */
    float        alpha;
    float        beta;    /**< 0: C is not read */
    double       seconds; /**< written by matmul: time on the device */
};

/** out[i] = all steps in order, applied to in[i]; see gpuserve_chain(). */
struct gpuserve_op_chain {
    const float               *in;      /**< [n], n positive */
    float                     *out;     /**< [n]; equal to in, or not overlapping it */
    size_t                     n;
    const gpuserve_chain_step *steps;   /**< [n_steps], in device memory */
    size_t                     n_steps; /**< at most GPUSERVE_CHAIN_MAX_STEPS, of valid kinds */
    const gpuserve_chain_step *host_steps; /**< the same steps in host memory */
    double                     seconds; /**< written by chain: time on the device */
    uint32_t                   variant; /**< written by chain: gpuserve_chain_variant */
};

/** Outputs 4 * first to 4 * first + n - 1 of Philox4x32-10 for a seed, in the order of cuRAND's legacy
 *  ordering: the raw numbers of which a random model is made. */
struct gpuserve_op_random {
    uint32_t *out;     /**< [n], device memory, 16-byte aligned */
    uint64_t  seed;
    uint64_t  first;   /**< blocks of four outputs; first + n / 4 is below 2^62 */
    size_t    n;       /**< positive, at most 2^40 */
    uint32_t  variant; /**< gpuserve_random_variant */
    uint32_t  reserved;
    double    seconds; /**< written by random: time on the device */
};

/** The cell of a recurrent layer; s is the sigmoid, * is elementwise. */
enum gpuserve_cell {
    /** Gates i, f, g, o: c = s(f) * c + s(i) * tanh(g); h = s(o) * tanh(c). */
    GPUSERVE_CELL_LSTM = 0,
    /** Gates r, z, n: n = tanh(W_n x + b_in + s(r) * (U_n h + b_hn)); h = (1 - s(z)) * n + s(z) * h.
     *  That is torch.nn.GRU, and Keras with reset_after. */
    GPUSERVE_CELL_GRU = 1,
    /** As GRU with n = tanh(W_n x + b_in + U_n (s(r) * h)): Keras without reset_after. */
    GPUSERVE_CELL_GRU_RESET_BEFORE = 2,
};

/** Gates of a cell: blocks of hidden_size rows of its weights. */
static inline int32_t gpuserve_cell_gates(uint32_t cell)
{
    return cell == GPUSERVE_CELL_LSTM ? 4 : 3;
}

/** One layer of an LSTM or a GRU in all its directions; the gates are input, forget, cell and output,
 *  or reset, update and new. Host memory, borrowed for the call. */
struct gpuserve_lstm_source {
    uint32_t     struct_size;
    uint32_t     dtype;        /**< gpuserve_dtype of the products, not DEFAULT */
    int32_t      input_size;
    int32_t      hidden_size;
    int32_t      n_directions; /**< 1 or 2: the second runs in reverse */
    uint32_t     cell;         /**< gpuserve_cell */
    const float *weight_ih[2]; /**< [gates * hidden_size, input_size] */
    const float *weight_hh[2]; /**< [gates * hidden_size, hidden_size] */
    const float *bias[2];      /**< [4 * hidden_size], sums of both biases of a gate; GRU: those of r
                                    and z, then b_in and b_hn (RESET_BEFORE: not read) */
};

/** One sequence of a run. */
struct gpuserve_lstm_sequence {
    int32_t first;  /**< row of its first step in the input */
    int32_t length; /**< time steps; 0 is allowed */
    int32_t number; /**< its row index in the states */
    int32_t reserved;
};

/** One layer over packed sequences, from its input to its hidden states. Rows are contiguous. */
struct gpuserve_op_lstm {
    const struct gpuserve_lstm_layer    *layer;
    const float                         *in;        /**< [n_rows, input_size] */
    float                               *out;       /**< [n_rows, n_directions, hidden_size] */
    const float                         *h_0;       /**< [n_directions, n_sequences, hidden_size] or
                                                         NULL: zeros */
    const float                         *c_0;       /**< as h_0; a GRU has no cells: not read */
    float                               *h_n;       /**< as h_0, never NULL */
    float                               *c_n;       /**< as h_n; of a GRU undefined */
    const struct gpuserve_lstm_sequence *sequences; /**< [n_sequences], longest first; in device
                                                         memory */
    const struct gpuserve_lstm_sequence *host_sequences; /**< the same sequences in host memory */
    void                                *scratch;   /**< device memory of lstm_bytes(), 64-byte aligned */
    int32_t                              n_rows;    /**< time steps of all sequences; may be 0 */
    int32_t                              n_sequences; /**< positive */
    uint32_t                             variant;   /**< gpuserve_lstm_variant */
    int32_t                              reserved;
    double                               seconds;   /**< written by lstm: time on the device */
};

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_SYS_ARITHMETIC_H */
