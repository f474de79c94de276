/*
 * lstm_steps: the kernels around the product of each LSTM step (STEPS variant).
 *
 *   begin    initial states as rows, one thread per unit; finishes sequences of length 0
 *   gather   the step's input rows of the active sequences, in the element type
 *   reset    h for the second product of a GRU whose reset gate comes before it
 *   gates    one thread per unit: gate sums to cell, output, and h for the next product
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/lstm.c.
 */
#include "kernels/cuda/compute/lstm.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int THREADS = 256;

/* This thread's element index in [rows, columns], -1 past the end. */
__device__ __forceinline__ int64_t element_number(int64_t rows, int64_t columns)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;

    return i < rows * columns ? i : -1;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    lstm_begin(const struct gsv_lstm_run run, const struct gsv_lstm_begin to)
{
    const int units = run.layer.units;
    const int hidden = run.layer.hidden;
    const int64_t n = static_cast<int64_t>(run.layer.directions) * run.n_sequences;
    const int64_t i = element_number(n, units);

    if (i < 0)
        return;
    const int unit = static_cast<int>(i % units);
    const int64_t at = i / units; /* in [directions, n_sequences] */
    const int direction = static_cast<int>(at / run.n_sequences);
    const struct gpuserve_lstm_sequence s = run.sequences[at % run.n_sequences];
    const int64_t state =
        (static_cast<int64_t>(direction) * run.n_sequences + s.number) * hidden + unit;
    const float h = unit < hidden && run.h_0 ? run.h_0[state] : 0.f;
    const bool has_cell = run.layer.cell == GPUSERVE_CELL_LSTM;
    const float c = !has_cell ? h : unit < hidden && run.c_0 ? run.c_0[state] : 0.f;

    static_cast<T *>(to.h)[direction * to.h_direction + at % run.n_sequences * to.h_ld + unit] =
        gsv_from_float<T>(h);
    if (to.cells)
        to.cells[i] = c;
    if (s.length == 0 && unit < hidden) {
        run.h_n[state] = h;
        run.c_n[state] = c;
    }
}

/* The input row of sequence s at a step. */
__device__ __forceinline__ int64_t row_of(const struct gpuserve_lstm_sequence &s, int direction,
                                          int step)
{
    return s.first + (direction ? s.length - 1 - step : step);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    lstm_gather(const struct gsv_lstm_run run, const struct gsv_lstm_by_steps by, int direction,
                int step, int active)
{
    const int in_up = run.layer.in_up;
    const int64_t i = element_number(active, in_up);

    if (i < 0)
        return;
    const int64_t at = i / in_up;
    const int column = static_cast<int>(i % in_up);
    const int64_t row = row_of(run.sequences[at], direction, step);
    const int64_t ld = static_cast<int64_t>(in_up) + run.layer.units;
    T *const rows = static_cast<T *>(by.rows) + direction * ld * run.n_sequences;

    rows[at * ld + column] =
        gsv_from_float<T>(column < run.layer.input ? run.in[row * run.layer.input + column] : 0.f);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    lstm_reset(const struct gsv_lstm_run run, const struct gsv_lstm_by_steps by, int direction,
               int active)
{
    const int units = run.layer.units;
    const int64_t i = element_number(active, units);

    if (i < 0)
        return;
    const int64_t at = i / units;
    const int unit = static_cast<int>(i % units);
    const int64_t row = static_cast<int64_t>(direction) * run.n_sequences + at;
    const int64_t ld = static_cast<int64_t>(run.layer.in_up) + units;
    const float sum = by.sums[at * 4 * units + unit] + run.layer.bias[direction * 4 * units + unit];

    static_cast<T *>(by.rows)[row * ld + run.layer.in_up + unit] =
        gsv_from_float<T>(gsv_lstm_sigmoid(sum) * by.cells[row * units + unit]);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    lstm_gates(const struct gsv_lstm_run run, const struct gsv_lstm_by_steps by, int direction,
               int step, int active)
{
    const int units = run.layer.units;
    const int hidden = run.layer.hidden;
    const int64_t i = element_number(active, units);

    if (i < 0)
        return;
    const int64_t at = i / units;
    const int unit = static_cast<int>(i % units);
    const struct gpuserve_lstm_sequence s = run.sequences[at];
    const int64_t row = row_of(s, direction, step);
    const int64_t ld = static_cast<int64_t>(run.layer.in_up) + units;
    const float *const sums = by.sums + at * 4 * units + unit;
    const float *const bias = run.layer.bias + direction * 4 * units + unit;
    float *const cell =
        by.cells + (static_cast<int64_t>(direction) * run.n_sequences + at) * units + unit;
    float c = *cell;
    const float h = gsv_lstm_unit(run.layer.cell,
                                  make_float4(sums[0] + bias[0], sums[units] + bias[units],
                                              sums[2 * units] + bias[2 * units],
                                              sums[3 * units] + bias[3 * units]),
                                  &c);

    *cell = c;
    static_cast<T *>(by.rows)[(static_cast<int64_t>(direction) * run.n_sequences + at) * ld +
                              run.layer.in_up + unit] = gsv_from_float<T>(h);
    if (unit >= hidden)
        return;
    run.out[(row * run.layer.directions + direction) * hidden + unit] = h;
    if (step == s.length - 1) {
        const int64_t state =
            (static_cast<int64_t>(direction) * run.n_sequences + s.number) * hidden + unit;

        run.h_n[state] = h;
        run.c_n[state] = c;
    }
}

unsigned blocks_for(int64_t rows, int64_t columns)
{
    return static_cast<unsigned>((rows * columns - 1) / THREADS + 1);
}

/* Calls `launch` with a zero of the layer's element type. */
template <typename Launch> cudaError_t in_type_of(const struct gsv_lstm_run *run, Launch launch)
{
    return run->layer.element == GSV_ELEMENT_F16 ? launch(half()) : launch(0.f);
}

} /* namespace */

cudaError_t gsv_cuda_lstm_begin(const struct gsv_lstm_run *run, const struct gsv_lstm_begin *begin,
                                cudaStream_t stream)
{
    const unsigned blocks = blocks_for(
        static_cast<int64_t>(run->layer.directions) * run->n_sequences, run->layer.units);

    return in_type_of(run, [&](auto zero) {
        return GSV_LAUNCH(lstm_begin<decltype(zero)>, blocks, THREADS, 0, stream, *run, *begin);
    });
}

cudaError_t gsv_cuda_lstm_gather(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                 int32_t direction, int32_t step, int32_t active,
                                 cudaStream_t stream)
{
    return in_type_of(run, [&](auto zero) {
        return GSV_LAUNCH(lstm_gather<decltype(zero)>, blocks_for(active, run->layer.in_up),
                          THREADS, 0, stream, *run, *by, direction, step, active);
    });
}

cudaError_t gsv_cuda_lstm_reset(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                int32_t direction, int32_t active, cudaStream_t stream)
{
    return in_type_of(run, [&](auto zero) {
        return GSV_LAUNCH(lstm_reset<decltype(zero)>, blocks_for(active, run->layer.units), THREADS,
                          0, stream, *run, *by, direction, active);
    });
}

cudaError_t gsv_cuda_lstm_gates(const struct gsv_lstm_run *run, const struct gsv_lstm_by_steps *by,
                                int32_t direction, int32_t step, int32_t active,
                                cudaStream_t stream)
{
    return in_type_of(run, [&](auto zero) {
        return GSV_LAUNCH(lstm_gates<decltype(zero)>, blocks_for(active, run->layer.units), THREADS,
                          0, stream, *run, *by, direction, step, active);
    });
}
