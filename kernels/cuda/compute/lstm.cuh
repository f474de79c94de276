/*
 * lstm.cuh - one layer of an LSTM: what lstm.cu runs.
 *
 *   lstm_steps.cu   one product and one kernel of gates for each step: to compare with
 *   lstm_fused.cu   all steps in one kernel
 *   lstm_plan.cu    how that kernel divides a layer among blocks
 *
 * Inside, `units` is hidden_size up to a multiple of 32 and `in_up` the input's width likewise.
 * Rows of weights are [gate][unit] with the input's columns first, the recurrent ones behind; what
 * is past the end is zero, so that units past the end stay zero.
 */
#ifndef GSV_CUDA_LSTM_CUH
#define GSV_CUDA_LSTM_CUH

#include "kernels/cuda/runtime/backend.cuh"

#define GSV_LSTM_STEP \
    32 /* units and inputs are multiples of it: whole chunks of k and whole tiles */
#define GSV_LSTM_TILE 16 /* rows that a warp multiplies at once */
#define GSV_LSTM_GROUP 8 /* units whose gates a warp multiplies at once */
#define GSV_LSTM_WARPS 16
#define GSV_LSTM_ELEMENTS 2   /* units of rows for whose gates a thread has room */
#define GSV_LSTM_MAX_UNITS 64 /* of a block: 16 rows of them for its threads */

struct gpuserve_lstm_layer {
    enum gsv_element element; /* float32 or float16 */
    int32_t input;
    int32_t hidden;
    int32_t directions;
    int32_t in_up;
    int32_t units;
    const void *weight; /* [directions][4][units][in_up + units] */
    const float *bias;  /* [directions][4][units] */
};

/* Elements from row to row of the weights. */
static inline int64_t gsv_lstm_ld(const struct gpuserve_lstm_layer *layer)
{
    return static_cast<int64_t>(layer->in_up) + layer->units;
}

static inline size_t gsv_lstm_element_size(const struct gpuserve_lstm_layer *layer)
{
    return layer->element == GSV_ELEMENT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* How the recurrent kernel divides a layer. A team of `unit_blocks` blocks has `row_blocks`-th part
 * of the sequences in one direction: every block of it has some units for all of the team's rows.
 */
struct gsv_lstm_plan {
    int32_t units;       /* of a block, a multiple of GSV_LSTM_GROUP; the last may have fewer */
    int32_t unit_blocks; /* of a team */
    int32_t row_blocks;  /* teams of a direction */
    int32_t directions;  /* at once */
    int32_t rows;        /* of a team, at most */
    int32_t tiles;       /* of rows, multiplied in one pass */
    int32_t slices;      /* of k, each of its own warps */
    int32_t warps;
    bool resident; /* the recurrent weights stay in shared memory */
    size_t shared_bytes;
};

/* The plan for n_sequences, taken by an estimate of a step's time. A layer too large for the
 * device's shared memory reads its weights from memory at every step. False for one that has more
 * units than the device's multiprocessors can share. */
bool gsv_lstm_make_plan(const struct gpuserve_lstm_layer *layer, int32_t n_sequences,
                        int n_processors, size_t shared_bytes, struct gsv_lstm_plan *plan);

/* Elements from row to row of the weights in shared memory, so that rows which are read together
 * begin in different banks: of float32 eight at once, 16 bytes of each; of float16 two, 64 bytes of
 * each. */
static inline __host__ __device__ int32_t gsv_lstm_shared_ld(int32_t units, bool is_float32)
{
    return is_float32 ? units + 4 : units % 64 == 0 ? units + 32 : units;
}

/* A run of one layer, with the device's memory as its kernels use it. */
struct gsv_lstm_run {
    struct gpuserve_lstm_layer layer;
    const float *in;
    float *out;
    const float *h_0;
    const float *c_0;
    float *h_n;
    float *c_n;
    const struct gpuserve_lstm_sequence *sequences;
    int32_t n_sequences;
    int32_t n_rows;
};

/* Initial hidden states as rows of the element type, and with `cells` not NULL cells of float32,
 * both in the order of the sequences; sequences without a step are finished here. */
struct gsv_lstm_begin {
    void *h;      /* rows h_ld elements apart, n_sequences of them for each direction */
    float *cells; /* [directions, n_sequences, units] or NULL */
    int64_t h_ld;
    int64_t h_direction; /* elements from one direction's to the next's */
};
cudaError_t gsv_cuda_lstm_begin(const struct gsv_lstm_run *run, const struct gsv_lstm_begin *begin,
                                cudaStream_t stream);

/* Step by step. */
struct gsv_lstm_by_steps {
    void *rows;   /* [directions, n_sequences, in_up + units]: a step's input, and h */
    float *sums;  /* [n_sequences, 4, units] */
    float *cells; /* [directions, n_sequences, units] */
};
cudaError_t gsv_cuda_lstm_gather(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                 int32_t direction, int32_t step, int32_t active,
                                 cudaStream_t stream);
cudaError_t gsv_cuda_lstm_gates(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                int32_t direction, int32_t step, int32_t active,
                                cudaStream_t stream);

/* All steps of the directions from `direction` on, as many as the plan has at once, for the
 * sequences from `first` on, as many as the plan has rows. */
struct gsv_lstm_fused {
    const float *add;   /* [n_rows, directions, 4, units]: the input's part of the gates' sums */
    void *states;       /* [directions, n_sequences + n_rows, units]: h_0, then h of each row */
    unsigned *counters; /* one for each team, zero */
};
cudaError_t gsv_cuda_lstm_fused(const struct gsv_lstm_run *run, const struct gsv_lstm_fused *fused,
                                const struct gsv_lstm_plan *plan, int32_t direction, int32_t first,
                                cudaStream_t stream);
cudaError_t gsv_cuda_lstm_fused_prepare(size_t shared_bytes); /* once for each device */

#endif
