/*
 * lstm_fused: all steps of an LSTM in one persistent kernel.
 *
 *   A thread group of blocks computes some sequences in one direction, each block some units. Per
 *   step a warp multiplies the hidden states of 16 rows by 32 weight rows (4 gates of 8 units),
 *   over a slice of k. The slices are added in shared memory; then one thread per unit and row
 *   applies the gates. Hidden states pass through global memory, in places written once, so that no
 *   block overwrites data that another still reads. After each step a block signals; before the
 *   next it waits for its whole thread group.
 *
 *       shared = weights T[4 units][shared_ld] (resident), sums float[slices][tiles * 16][4 units],
 *                bias float[4 units], sequences[rows], cells float[rows][units]
 *
 *   Sequences are sorted by length, longest first, and dealt to the groups in turn: the active rows
 *   of a group are its first rows. Gate inputs are loaded one pass ahead, before the wait.
 *
 *   float16: tensor cores. Of 32 k each lane loads 8 adjacent ones (16 bytes) of each operand: the
 *   same permutation of k on both sides, which leaves the sum unchanged.
 *   float32: each lane computes 4 rows by 4 columns.
 *
 *   Needs:  units and in_up multiples of 32; all blocks co-resident.
 *   Oracle: kernels/ref/lstm.c.
 */
#include "kernels/cuda/compute/lstm.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int THREADS = GSV_LSTM_WARPS * GSV_WARP;
const int COLUMNS = 4 * GSV_LSTM_GROUP; /* per warp-level product */
const int ELEMENTS = GSV_LSTM_ELEMENTS;

/* Kernel arguments. */
struct recurrence {
    struct gsv_lstm_run run;
    struct gsv_lstm_fused at;
    struct gsv_lstm_plan plan;
    int direction; /* of the first thread group */
    int first;     /* sequence */
};

/* The part of one block. */
template <typename T> struct part {
    const T *weight; /* of row 0: in shared or global memory */
    int64_t weight_ld;
    float *sums;
    float *bias;
    struct gpuserve_lstm_sequence *sequences;
    float *cells;
    T *states; /* of the direction */
    int direction;
    int first_unit;
    int n_units;
    int first_state; /* row of row 0's initial state in `states`; stride row_blocks */
    int n_rows;
};

/* Weight row of a column of this block. Columns are ordered unit by unit, four gates each. */
__device__ __forceinline__ int64_t global_row(int column, int first_unit, int units)
{
    return static_cast<int64_t>(column % 4) * units + first_unit + column / 4;
}

template <typename T, bool resident>
__device__ __forceinline__ const T *weight_row(const struct recurrence &r, const struct part<T> &p,
                                               int column)
{
    const int64_t row = resident ? column : global_row(column, p.first_unit, r.run.layer.units);

    return p.weight + row * p.weight_ld;
}

__device__ __forceinline__ int64_t row_at(const struct gpuserve_lstm_sequence &s, int direction,
                                          int step)
{
    return s.first + (direction ? s.length - 1 - step : step);
}

/* The hidden state of row `row` of the thread group before a step. */
template <typename T>
__device__ __forceinline__ const T *state_of(const struct recurrence &r, const struct part<T> &p,
                                             int row, int step)
{
    const int64_t at = step == 0
                           ? p.first_state + static_cast<int64_t>(row) * r.plan.row_blocks
                           : r.run.n_sequences + row_at(p.sequences[row], p.direction, step - 1);

    return p.states + at * r.run.layer.units;
}

/* ------------------------------------------------------------------------------------ products */

/* 16 rows from `row` on by 32 columns from `column` on, k in [k_begin, k_end), to `to`. Rows past
 * `active` repeat the last active row. */
template <bool resident>
__device__ __forceinline__ void multiply(const struct recurrence &r, const struct part<half> &p,
                                         int row, int active, int step, int column, int k_begin,
                                         int k_end, float *to)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int g = lane / 4;
    const int t = lane % 4;
    const int last = active - 1;
    const half *const upper = state_of(r, p, row + g < last ? row + g : last, step) + 8 * t;
    const half *const lower = state_of(r, p, row + g + 8 < last ? row + g + 8 : last, step) + 8 * t;
    const half *weight[4];
    float sums[4][4] = {};

#pragma unroll
    for (int n = 0; n < 4; n++)
        weight[n] = weight_row<half, resident>(r, p, column + 8 * n + g) + 8 * t;
#pragma unroll(resident ? 2 : 1)
    for (int k = k_begin; k < k_end; k += GSV_LSTM_STEP) {
        const uint4 x = *reinterpret_cast<const uint4 *>(upper + k);
        const uint4 y = *reinterpret_cast<const uint4 *>(lower + k);
        const uint32_t a[2][4] = { { x.x, y.x, x.y, y.y }, { x.z, y.z, x.w, y.w } };

#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint4 w = *reinterpret_cast<const uint4 *>(weight[n] + k);
            const uint32_t b[2][2] = { { w.x, w.y }, { w.z, w.w } };

            gsv_mma_m16n8k16(sums[n], a[0], b[0], half());
            gsv_mma_m16n8k16(sums[n], a[1], b[1], half());
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float *const out = to + static_cast<int64_t>(g) * 4 * r.plan.units + 8 * n + 2 * t;

        *reinterpret_cast<float2 *>(out) = make_float2(sums[n][0], sums[n][1]);
        *reinterpret_cast<float2 *>(out + 8 * 4 * r.plan.units) =
            make_float2(sums[n][2], sums[n][3]);
    }
}

template <bool resident>
__device__ __forceinline__ void multiply(const struct recurrence &r, const struct part<float> &p,
                                         int row, int active, int step, int column, int k_begin,
                                         int k_end, float *to)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int first = lane / 8 * 4; /* first row of this lane */
    const int last = active - 1;
    const float *x[4];
    const float *w[4];
    float sums[4][4] = {};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = state_of(r, p, row + first + i < last ? row + first + i : last, step);
        w[i] = weight_row<float, resident>(r, p, column + lane % 8 + 8 * i);
    }
#pragma unroll 1
    for (int k = k_begin; k < k_end; k += 4) {
        float4 of_x[4];
        float4 of_w[4];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            of_x[i] = *reinterpret_cast<const float4 *>(x[i] + k);
            of_w[i] = *reinterpret_cast<const float4 *>(w[i] + k);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sums[i][j] = fmaf(of_x[i].x, of_w[j].x, sums[i][j]);
                sums[i][j] = fmaf(of_x[i].y, of_w[j].y, sums[i][j]);
                sums[i][j] = fmaf(of_x[i].z, of_w[j].z, sums[i][j]);
                sums[i][j] = fmaf(of_x[i].w, of_w[j].w, sums[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            to[static_cast<int64_t>(first + i) * 4 * r.plan.units + lane % 8 + 8 * j] = sums[i][j];
    }
}

/* One pass: active rows of [row, row + tiles * 16), all columns, all slices. */
template <typename T, bool resident>
__device__ __forceinline__ void multiply_pass(const struct recurrence &r, const struct part<T> &p,
                                              int row, int active, int step)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int n_warps = static_cast<int>(blockDim.x) / GSV_WARP;
    const int groups = p.n_units / GSV_LSTM_GROUP;
    const int left = (active - row + GSV_LSTM_TILE - 1) / GSV_LSTM_TILE;
    const int tiles = left < r.plan.tiles ? left : r.plan.tiles;
    const int chunks = r.run.layer.units / GSV_LSTM_STEP;
    const int each = (chunks + r.plan.slices - 1) / r.plan.slices;

    for (int item = warp; item < tiles * groups * r.plan.slices; item += n_warps) {
        const int slice = item % r.plan.slices;
        const int group = item / r.plan.slices % groups;
        const int tile = item / r.plan.slices / groups;
        const int k_begin = slice * each < chunks ? slice * each : chunks;
        const int k_end = k_begin + each < chunks ? k_begin + each : chunks;
        float *const to =
            p.sums +
            (static_cast<int64_t>(slice) * r.plan.tiles + tile) * GSV_LSTM_TILE * 4 * r.plan.units +
            group * COLUMNS;

        multiply<resident>(r, p, row + tile * GSV_LSTM_TILE, active, step, group * COLUMNS,
                           k_begin * GSV_LSTM_STEP, k_end * GSV_LSTM_STEP, to);
    }
}

/* --------------------------------------------------------------------------------------- gates */

/* Number of active rows in the pass that begins at `row`. */
__device__ __forceinline__ int rows_of_pass(const struct recurrence &r, int row, int active)
{
    const int max_rows = r.plan.tiles * GSV_LSTM_TILE;

    return active - row < max_rows ? active - row : max_rows;
}

/* Loads the input products for this thread's elements of a pass; skips sequences that have
 * ended. */
template <typename T>
__device__ __forceinline__ void load_inputs(const struct recurrence &r, const struct part<T> &p,
                                            int row, int active, int step,
                                            float4 (&inputs)[ELEMENTS])
{
    const int n = rows_of_pass(r, row, active) * p.n_units;
    const int units = r.run.layer.units;

#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        const int e = static_cast<int>(threadIdx.x + i * blockDim.x);

        if (e >= n)
            break;
        const struct gpuserve_lstm_sequence &s = p.sequences[row + e / p.n_units];

        if (s.length <= step)
            break;
        const int64_t at = row_at(s, p.direction, step) * r.run.layer.directions + p.direction;
        const float *const add = r.at.add + at * 4 * units + p.first_unit + e % p.n_units;

        inputs[i] = make_float4(add[0], add[units], add[2 * units], add[3 * units]);
    }
}

__device__ __forceinline__ void add_to(float4 &sum, const float4 &more)
{
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
}

template <typename T>
__device__ __forceinline__ void store(const struct recurrence &r, const struct part<T> &p,
                                      const struct gpuserve_lstm_sequence &s, int unit, int step,
                                      float h, float c)
{
    const int64_t row = row_at(s, p.direction, step);
    const int hidden = r.run.layer.hidden;

    p.states[(r.run.n_sequences + row) * r.run.layer.units + unit] = gsv_from_float<T>(h);
    if (unit >= hidden)
        return;
    r.run.out[(row * r.run.layer.directions + p.direction) * hidden + unit] = h;
    if (step == s.length - 1) {
        const int64_t state =
            (static_cast<int64_t>(p.direction) * r.run.n_sequences + s.number) * hidden + unit;

        r.run.h_n[state] = h;
        r.run.c_n[state] = c;
    }
}

template <typename T>
__device__ __forceinline__ void apply_gates(const struct recurrence &r, const struct part<T> &p,
                                            int row, int active, int step,
                                            const float4 (&inputs)[ELEMENTS])
{
    const int n = rows_of_pass(r, row, active) * p.n_units;
    const int64_t slice = static_cast<int64_t>(r.plan.tiles) * GSV_LSTM_TILE * 4 * r.plan.units;

#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        const int e = static_cast<int>(threadIdx.x + i * blockDim.x);

        if (e >= n)
            break;
        const int unit = e % p.n_units;
        const int of_pass = e / p.n_units;
        const float *const sums =
            p.sums + static_cast<int64_t>(of_pass) * 4 * r.plan.units + 4 * unit;
        float *const cell = p.cells + static_cast<int64_t>(row + of_pass) * r.plan.units + unit;
        float4 sum = inputs[i];
        float c = *cell;

        add_to(sum, *reinterpret_cast<const float4 *>(p.bias + 4 * unit));
        for (int k = 0; k < r.plan.slices; k++)
            add_to(sum, *reinterpret_cast<const float4 *>(sums + k * slice));
        const float h = gsv_lstm_unit(r.run.layer.cell, sum, &c);

        *cell = c;
        store(r, p, p.sequences[row + of_pass], p.first_unit + unit, step, h, c);
    }
}

/* --------------------------------------------------------------------------------------- begin */

template <typename T, bool resident>
__device__ __forceinline__ struct part<T> carve(const struct recurrence &r, char *shared,
                                                int thread_group, int block) {
    const struct gpuserve_lstm_layer &layer = r.run.layer;
    const struct gsv_lstm_plan &plan = r.plan;
    const int row_thread_group = thread_group % plan.row_blocks;
    const int64_t ld = static_cast<int64_t>(layer.in_up) + layer.units;
    const int left = r.run.n_sequences - r.first - row_thread_group;
    struct part<T> p;

    p.direction = r.direction + thread_group / plan.row_blocks;
    p.first_unit = block * plan.units;
    p.n_units = layer.units - p.first_unit < plan.units ? layer.units - p.first_unit : plan.units;
    p.first_state = r.first + row_thread_group;
    p.n_rows = left <= 0 ? 0 : (left - 1) / plan.row_blocks + 1;
    p.n_rows = p.n_rows < plan.rows ? p.n_rows : plan.rows;
    p.states = static_cast<T *>(r.at.states) +
               p.direction * (static_cast<int64_t>(r.run.n_sequences) + r.run.n_rows) * layer.units;
    p.weight =
        static_cast<const T *>(layer.weight) + p.direction * 4 * layer.units * ld + layer.in_up;
    p.weight_ld = ld;
    if (resident) {
        p.weight = reinterpret_cast<const T *>(shared);
        p.weight_ld = gsv_lstm_shared_ld(layer.units, sizeof(T) == sizeof(float));
        shared += 4 * plan.units * p.weight_ld * sizeof(T);
    }
    p.sums = reinterpret_cast<float *>(shared);
    p.bias =
        p.sums + static_cast<int64_t>(plan.slices) * plan.tiles * GSV_LSTM_TILE * 4 * plan.units;
    p.sequences = reinterpret_cast<struct gpuserve_lstm_sequence *>(p.bias + 4 * plan.units);
    p.cells = reinterpret_cast<float *>(p.sequences + plan.rows);
    return p;
}

/* Copies weights, biases, sequences and cells to shared memory. */
template <typename T, bool resident>
__device__ __forceinline__ void fill(const struct recurrence &r, const struct part<T> &p)
{
    const struct gpuserve_lstm_layer &layer = r.run.layer;
    const int thread = static_cast<int>(threadIdx.x);
    const int n_threads = static_cast<int>(blockDim.x);

    if (resident) {
        const int64_t ld = static_cast<int64_t>(layer.in_up) + layer.units;
        const T *const from =
            static_cast<const T *>(layer.weight) + p.direction * 4 * layer.units * ld + layer.in_up;
        const int chunks = layer.units / gsv_vector_chunk<T>::size;

        for (int i = thread; i < 4 * p.n_units * chunks; i += n_threads) {
            const int column = i / chunks;
            const int at = i % chunks * gsv_vector_chunk<T>::size;

            *reinterpret_cast<uint4 *>(const_cast<T *>(p.weight) + column * p.weight_ld + at) =
                *reinterpret_cast<const uint4 *>(
                    from + global_row(column, p.first_unit, layer.units) * ld + at);
        }
    }
    for (int i = thread; i < 4 * p.n_units; i += n_threads)
        p.bias[i] =
            layer.bias[p.direction * 4 * layer.units + global_row(i, p.first_unit, layer.units)];
    for (int i = thread; i < p.n_rows; i += n_threads)
        p.sequences[i] =
            r.run.sequences[p.first_state + static_cast<int64_t>(i) * r.plan.row_blocks];
    __syncthreads();
    const float *const initial = layer.cell == GPUSERVE_CELL_LSTM ? r.run.c_0 : r.run.h_0;
    for (int i = thread; i < p.n_rows * p.n_units; i += n_threads) {
        const int row = i / p.n_units;
        const int unit = i % p.n_units;
        const int64_t state =
            (static_cast<int64_t>(p.direction) * r.run.n_sequences + p.sequences[row].number) *
                layer.hidden +
            p.first_unit + unit;

        p.cells[static_cast<int64_t>(row) * r.plan.units + unit] =
            p.first_unit + unit < layer.hidden && initial ? initial[state] : 0.f;
    }
    __syncthreads();
}

/* --------------------------------------------------------------------------------------- steps */

template <typename T, bool resident>
__global__ void __launch_bounds__(THREADS) lstm_fused(const struct recurrence r)
{
    GSV_SHARED(char, shared);
    const int thread_group = static_cast<int>(blockIdx.x) / r.plan.unit_blocks;
    const struct part<T> p = carve<T, resident>(r, shared, thread_group,
                                                static_cast<int>(blockIdx.x) % r.plan.unit_blocks);
    unsigned *const counter = r.at.counters + thread_group;
    float4 inputs[ELEMENTS] = {};
    int active = p.n_rows;

    if (p.n_rows == 0)
        return; /* uniform over the thread group */
    fill<T, resident>(r, p);
    const int n_steps = p.sequences[0].length;
    load_inputs(r, p, 0, active, 0, inputs);
    for (int step = 0; step < n_steps; step++) {
        while (p.sequences[active - 1].length <= step)
            active--;
        if (step > 0 && r.plan.unit_blocks > 1) {
            if (threadIdx.x == 0)
                gsv_wait_for(counter, static_cast<unsigned>(step) *
                                          static_cast<unsigned>(r.plan.unit_blocks));
            __syncthreads();
        }
        for (int row = 0; row < active;) {
            const int next = row + r.plan.tiles * GSV_LSTM_TILE;

            multiply_pass<T, resident>(r, p, row, active, step);
            __syncthreads();
            apply_gates(r, p, row, active, step, inputs);
            load_inputs(r, p, next < active ? next : 0, active, next < active ? step : step + 1,
                        inputs);
            __syncthreads();
            row = next;
        }
        if (threadIdx.x == 0 && r.plan.unit_blocks > 1 && step + 1 < n_steps)
            gsv_signal(counter);
    }
}

template <typename T, bool resident>
cudaError_t launch(const struct recurrence *r, cudaStream_t stream)
{
    const unsigned blocks =
        static_cast<unsigned>(r->plan.unit_blocks * r->plan.row_blocks * r->plan.directions);

    return GSV_LAUNCH_TOGETHER((lstm_fused<T, resident>), blocks,
                               static_cast<unsigned>(r->plan.warps * GSV_WARP),
                               r->plan.shared_bytes, stream, *r);
}

} /* namespace */

cudaError_t gsv_cuda_lstm_fused(const struct gsv_lstm_run *run, const struct gsv_lstm_fused *fused,
                                const struct gsv_lstm_plan *plan, int32_t direction, int32_t first,
                                cudaStream_t stream)
{
    const struct recurrence r = { *run, *fused, *plan, direction, first };

    if (run->layer.element == GSV_ELEMENT_F16)
        return plan->resident ? launch<half, true>(&r, stream) : launch<half, false>(&r, stream);
    return plan->resident ? launch<float, true>(&r, stream) : launch<float, false>(&r, stream);
}

cudaError_t gsv_cuda_lstm_fused_prepare(size_t shared_bytes)
{
    cudaError_t code = GSV_ALLOW_SHARED((lstm_fused<half, true>), shared_bytes);

    if (code == cudaSuccess)
        code = GSV_ALLOW_SHARED((lstm_fused<half, false>), shared_bytes);
    if (code == cudaSuccess)
        code = GSV_ALLOW_SHARED((lstm_fused<float, true>), shared_bytes);
    return code == cudaSuccess ? GSV_ALLOW_SHARED((lstm_fused<float, false>), shared_bytes) : code;
}
