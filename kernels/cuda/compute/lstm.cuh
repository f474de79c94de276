/*
 * lstm.cuh - one layer of an LSTM or a GRU: the parts that lstm.cu runs.
 *
 *   lstm_steps.cu   one product and one gate kernel per step: the baseline
 *   lstm_fused.cu   all steps in one kernel
 *   lstm_cudnn.cu   cuDNN
 *   lstm_plan.cu    division of a layer among the blocks of that kernel
 *
 * `units` is hidden_size rounded up to a multiple of 32, and `in_up` the input width likewise.
 * Weight rows are [gate][unit], input columns first, then recurrent columns. Padding is zero, so
 * that padded units stay zero.
 *
 * A GRU has four blocks of rows too: reset, update, and the new state in two. The third block has
 * zeros in the recurrent columns, the fourth in the input columns; the kernel adds the fourth sum,
 * times the reset gate, to the third. The memory of an LSTM's cells holds h in float32.
 */
#ifndef GSV_CUDA_LSTM_CUH
#define GSV_CUDA_LSTM_CUH

#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/launch.cuh"

#include <math.h>

#define GSV_LSTM_STEP \
    32 /* units and inputs are multiples of it: whole chunks of k and whole tiles */
#define GSV_LSTM_TILE 16 /* rows per warp-level product */
#define GSV_LSTM_GROUP 8 /* units whose gates one warp-level product computes */
#define GSV_LSTM_WARPS 16
#define GSV_LSTM_ELEMENTS 2   /* (row, unit) pairs per thread in the gate phase */
#define GSV_LSTM_MAX_UNITS 64 /* per block: its threads have capacity for 16 rows of them */

struct gpuserve_lstm_layer {
    enum gsv_element element; /* float32 or float16 */
    int32_t input;
    int32_t hidden;
    int32_t directions;
    int32_t in_up;
    int32_t units;
    const void *weight; /* [directions][4][units][in_up + units] */
    const float *bias;  /* [directions][4][units] */
    uint32_t cell;      /* gpuserve_cell */
};

/* Row stride of the weights, in elements. */
static inline int64_t gsv_lstm_ld(const struct gpuserve_lstm_layer *layer)
{
    return static_cast<int64_t>(layer->in_up) + layer->units;
}

static inline size_t gsv_lstm_element_size(const struct gpuserve_lstm_layer *layer)
{
    return layer->element == GSV_ELEMENT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Division of a layer for the fused kernel. A thread group is `unit_blocks` blocks. It computes one
 * of `row_blocks` parts of the sequences in one direction; each of its blocks computes some units
 * for all rows of the group. */
struct gsv_lstm_plan {
    int32_t units;       /* per block, a multiple of GSV_LSTM_GROUP; fewer in the last */
    int32_t unit_blocks; /* per thread group */
    int32_t row_blocks;  /* thread groups per direction */
    int32_t directions;  /* computed concurrently */
    int32_t rows;        /* maximum per thread group */
    int32_t tiles;       /* row tiles per pass */
    int32_t slices;      /* of k, each computed by its own warps */
    int32_t warps;
    bool resident; /* the recurrent weights stay in shared memory */
    size_t shared_bytes;
};

/* Computes the plan for n_sequences that has the lowest estimated time per step. A layer too large
 * for shared memory reads its weights from global memory at every step. False if the
 * multiprocessors cannot hold all units. */
bool gsv_lstm_make_plan(const struct gpuserve_lstm_layer *layer, int32_t n_sequences,
                        int n_processors, size_t shared_bytes, struct gsv_lstm_plan *plan);

/* Row stride of the weights in shared memory, in elements. It avoids bank conflicts between rows
 * that are read together: float32 reads 16 bytes of eight rows, float16 64 bytes of two rows. */
static inline __host__ __device__ int32_t gsv_lstm_shared_ld(int32_t units, bool is_float32)
{
    return is_float32 ? units + 4 : units % 64 == 0 ? units + 32 : units;
}

/* A run of one layer, with device pointers for the kernels. */
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

/* Initial hidden states as rows of the element type and, if `cells` is not NULL, cells in float32,
 * both in the order of the sequences. Sequences of length 0 are finished here. */
struct gsv_lstm_begin {
    void *h;      /* row stride h_ld elements; n_sequences rows per direction */
    float *cells; /* [directions, n_sequences, units] or NULL */
    int64_t h_ld;
    int64_t h_direction; /* elements between two directions */
};
cudaError_t gsv_cuda_lstm_begin(const struct gsv_lstm_run *run, const struct gsv_lstm_begin *begin,
                                cudaStream_t stream);

/* Buffers of the STEPS variant. */
struct gsv_lstm_by_steps {
    void *rows;   /* [directions, n_sequences, in_up + units]: a step's input, and h */
    float *sums;  /* [n_sequences, 4, units] */
    float *cells; /* [directions, n_sequences, units] */
};
cudaError_t gsv_cuda_lstm_gather(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                 int32_t direction, int32_t step, int32_t active,
                                 cudaStream_t stream);
/* GRU_RESET_BEFORE: h in the rows becomes s(r) * h. */
cudaError_t gsv_cuda_lstm_reset(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                int32_t direction, int32_t active, cudaStream_t stream);
cudaError_t gsv_cuda_lstm_gates(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                int32_t direction, int32_t step, int32_t active,
                                cudaStream_t stream);

/* Runs all steps of plan->directions directions from `direction` on, for up to row_blocks * rows
 * sequences from `first` on. */
struct gsv_lstm_fused {
    const float *add;   /* [n_rows, directions, 4, units]: input products of the gates */
    void *states;       /* [directions, n_sequences + n_rows, units]: h_0, then h of each row */
    unsigned *counters; /* one per thread group, initially zero */
};
cudaError_t gsv_cuda_lstm_fused(const struct gsv_lstm_run *run, const struct gsv_lstm_fused *fused,
                                const struct gsv_lstm_plan *plan, int32_t direction, int32_t first,
                                cudaStream_t stream);
cudaError_t gsv_cuda_lstm_fused_prepare(size_t shared_bytes); /* once for each device */

/* Host data of a cuDNN run that must stay valid until the stream has finished. */
struct gsv_lstm_cudnn_run {
    int32_t *index;     /* owned: free() */
    const char *failed; /* the call that failed */
};
/* CUDNN: the scratch memory of a run; opens the library at the first call. */
gpuserve_status gsv_cuda_lstm_cudnn_bytes(struct gpuserve_device *device,
                                          const struct gpuserve_op_lstm *op, size_t *size,
                                          gpuserve_error *error);
cudaError_t gsv_cuda_lstm_cudnn(struct gpuserve_stream *stream, const struct gpuserve_op_lstm *op,
                                const struct gsv_lstm_run *run, struct gsv_lstm_cudnn_run *kept);

/* The cells: from the sums of four gates to the states of a unit, in float32. */

__device__ __forceinline__ float gsv_lstm_sigmoid(float x)
{
    return 1.f / (1.f + expf(-x));
}

/* x, y, z, w: reset and update gate, the new state of the input and of h. Updates *h. */
__device__ __forceinline__ float gsv_gru_unit(uint32_t cell, const float4 &sums, float *h)
{
    const float reset = cell == GPUSERVE_CELL_GRU ? gsv_lstm_sigmoid(sums.x) : 1.f;
    const float fresh = tanhf(fmaf(reset, sums.w, sums.z));

    *h = fmaf(gsv_lstm_sigmoid(sums.y), *h - fresh, fresh);
    return *h;
}

/* x, y, z, w: input, forget, cell and output gate. Updates the cell *c and returns h. */
__device__ __forceinline__ float gsv_lstm_unit(uint32_t cell, const float4 &sums, float *c)
{
    if (cell != GPUSERVE_CELL_LSTM)
        return gsv_gru_unit(cell, sums, c);
    const float in = gsv_lstm_sigmoid(sums.x);
    const float forget = gsv_lstm_sigmoid(sums.y);

    *c = fmaf(forget, *c, in * tanhf(sums.z));
    return gsv_lstm_sigmoid(sums.w) * tanhf(*c);
}

#endif
