/*
 * quantize.cuh - rows of 16-bit elements to signed bytes, with a zero point (`min`) and a scale
 * (`step`) per row: for kernels that write such rows, and for quantize.cu.
 *
 *   One warp per row. A row in memory is read twice, for the range and for the bytes; the second
 *   read hits the L1 cache. A row in a kernel's registers stays there.
 *
 *   A row with a NaN or an infinity gets NaN as zero point and scale, so that its products are NaN.
 *
 *   If several blocks each write a part of some rows, the last block to arrive quantizes them
 *   (gsv_comes_last). No block waits, and the stored values are quantized, so the result does not
 *   depend on which block it is.
 */
#ifndef GSV_CUDA_QUANTIZE_CUH
#define GSV_CUDA_QUANTIZE_CUH

#include "kernels/cuda/runtime/int8.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

const float GSV_MIN_WIDTH = 1e-30f; /* minimum range to divide into steps: kernels/ref/linear.c */

/* Maximum over a warp, without NaN, by one integer instruction. Flipping the low 31 bits of
 * negative floats makes their integer order match. */
__device__ __forceinline__ float gsv_warp_largest(float x)
{
    const int bits = __float_as_int(x);
    const int largest = __reduce_max_sync(GSV_ALL_LANES, bits ^ (bits >> 31 & 0x7fffffff));

    return __int_as_float(largest ^ (largest >> 31 & 0x7fffffff));
}

/* Range of a row: over this lane's elements, after settle() over the warp. */
struct gsv_row_range {
    float max = -INFINITY;
    float min = INFINITY;
    bool finite = true;

    __device__ __forceinline__ void add(float x)
    {
        finite = finite && fabsf(x) < INFINITY; /* false for NaN */
        max = fmaxf(max, x);                    /* neither propagates NaN */
        min = fminf(min, x);
    }

    __device__ __forceinline__ void settle()
    {
        max = gsv_warp_largest(max);
        min = -gsv_warp_largest(-min);
        finite = __all_sync(GSV_ALL_LANES, finite);
    }

    /* Over the warps of the block, after settle(). `scratch` is shared memory, two floats per
     * warp. */
    __device__ __forceinline__ void settle_block(float *scratch)
    {
        const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;

        if (threadIdx.x % GSV_WARP == 0) {
            scratch[2 * warp] = finite ? max : INFINITY;
            scratch[2 * warp + 1] = min;
        }
        __syncthreads();
        for (int i = 0; i < static_cast<int>(blockDim.x) / GSV_WARP; i++) {
            finite = finite && scratch[2 * i] < INFINITY;
            max = fmaxf(max, scratch[2 * i]);
            min = fminf(min, scratch[2 * i + 1]);
        }
    }

    __device__ __forceinline__ float inverse() const
    {
        return max - min >= GSV_MIN_WIDTH ? 255.f / (max - min) : 0.f;
    }

    __device__ __forceinline__ int8_t quantized(float x, float by) const
    {
        return finite ? static_cast<int8_t>(__float2int_rn((x - min) * by) - 128)
                      : static_cast<int8_t>(0);
    }

    /* `min` for the byte 0, as int8.cuh defines. Called by one lane. */
    __device__ __forceinline__ void store(const gsv_int8_rows &rows, size_t row) const
    {
        const float step = (max - min) / 255.f;

        rows.step[row] = finite ? step : NAN;
        rows.min[row] = finite ? fmaf(128.f, step, min) : NAN;
    }
};

/* The value of an integer sum: of a product of a row, step * byte + min, and a column's weights.
 * Nothing fuses the last product with what follows, so that all kernels give the same bits. */
__device__ __forceinline__ float gsv_dequantized(int32_t sum, float step, float min,
                                                 float column_sum, float scale)
{
    return __fmul_rn(fmaf(step, static_cast<float>(sum), min * column_sum), scale);
}

/* A rounded product: fusing it into a difference would give other integers. */
__device__ __forceinline__ float gsv_scaled_input(float x, const float *scale, int column)
{
    return scale ? __fmul_rn(x, scale[column]) : x;
}

/* `width` adjacent elements of a row times their scales. */
template <int width, typename T>
__device__ __forceinline__ void gsv_load_scaled(float (&x)[width], const T *row, const float *scale,
                                                int at)
{
    if (width == 1) {
        x[0] = gsv_scaled_input(gsv_to_float(row[at]), scale, at);
        return;
    }
    const gsv_vector_chunk<T> chunk = *reinterpret_cast<const gsv_vector_chunk<T> *>(row + at);

#pragma unroll
    for (int i = 0; i < width; i++)
        x[i] = gsv_scaled_input(gsv_to_float(chunk.v[i]), scale, at + i);
}

template <int width>
__device__ __forceinline__ void gsv_store_bytes(int8_t *to, const int8_t (&q)[width])
{
    if (width == 8)
        *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(q);
    else
        to[0] = q[0];
}

/* Writes the bytes of a row from memory whose range is known: `width` at `first`, then each `step`
 * further. */
template <int width, typename T>
__device__ __forceinline__ void gsv_quantize_bytes(const gsv_int8_target &to, const T *from,
                                                   size_t row, const gsv_row_range &range,
                                                   int first, int step)
{
    int8_t *const values = to.rows.values + row * to.rows.ld;
    const float inverse = range.inverse();
    float x[width];

#pragma unroll 2
    for (int at = first; at < to.rows.ld; at += step) {
        alignas(8) int8_t q[width] = {}; /* zeros past k */

        if (at < to.k) {
            gsv_load_scaled<width>(x, from, to.input_scale, at);
#pragma unroll
            for (int i = 0; i < width; i++)
                q[i] = range.quantized(x[i], inverse);
        }
        gsv_store_bytes<width>(values + at, q);
    }
}

/* Quantizes row `row` from memory by the lanes of a warp. `width` is 8 if rows are 16-byte aligned
 * and k is a multiple of 8, else 1. With gsv_quantize_bytes() here gemm_s8 spills registers on some
 * targets. */
template <int width, typename T>
__device__ __forceinline__ void gsv_quantize_row(const gsv_int8_target &to, const T *from,
                                                 size_t row, int lane)
{
    int8_t *const values = to.rows.values + row * to.rows.ld;
    gsv_row_range range;
    float x[width];

#pragma unroll 2
    for (int at = lane * width; at < to.k; at += GSV_WARP * width) {
        gsv_load_scaled<width>(x, from, to.input_scale, at);
#pragma unroll
        for (int i = 0; i < width; i++)
            range.add(x[i]);
    }
    range.settle();
    const float inverse = range.inverse();
#pragma unroll 2
    for (int at = lane * width; at < to.rows.ld; at += GSV_WARP * width) {
        alignas(8) int8_t q[width] = {}; /* zeros past k */

        if (at < to.k) {
            gsv_load_scaled<width>(x, from, to.input_scale, at);
#pragma unroll
            for (int i = 0; i < width; i++)
                q[i] = range.quantized(x[i], inverse);
        }
        gsv_store_bytes<width>(values + at, q);
    }
    if (lane == 0)
        range.store(to.rows, row);
}

/* The same from registers: x holds the row's 8 elements from column (slot * 32 + lane) * 8 on for
 * each slot, and is modified. k is a multiple of 8. */
template <int slots>
__device__ __forceinline__ void gsv_quantize_registers(const gsv_int8_target &to,
                                                       float (&x)[slots * 8], size_t row, int lane)
{
    int8_t *const values = to.rows.values + row * to.rows.ld;
    gsv_row_range range;

#pragma unroll
    for (int i = 0; i < slots * 8; i++) {
        const int column = (i / 8 * GSV_WARP + lane) * 8 + i % 8;

        if (column >= to.k)
            continue;
        x[i] = gsv_scaled_input(x[i], to.input_scale, column);
        range.add(x[i]);
    }
    range.settle();
    const float inverse = range.inverse();
#pragma unroll
    for (int slot = 0; slot < slots; slot++) {
        const int column = (slot * GSV_WARP + lane) * 8;
        alignas(8) int8_t q[8] = {};

#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = column < to.k ? range.quantized(x[slot * 8 + i], inverse) : q[i];
        if (column < to.rows.ld)
            gsv_store_bytes<8>(values + column, q);
    }
    if (lane == 0)
        range.store(to.rows, row);
}

/* True in the last of `n_blocks` blocks to call this; the stores of all of them are then visible to
 * its threads. Called by all threads of the block; `shared` is one free word of shared memory. The
 * counter is zero before and after. */
__device__ __forceinline__ bool gsv_comes_last(unsigned *counter, unsigned n_blocks,
                                               unsigned *shared)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        *shared = gsv_arrive(counter) + 1 == n_blocks;
        if (*shared)
            *counter = 0;
    }
    __syncthreads();
    return *shared != 0;
}

/* Quantizes rows [first, end) of the output, row stride `ld` elements, if this block is the last of
 * the `n_blocks` that write them. `always_wide`: all rows are wide (int8.cuh). */
template <bool always_wide, typename T>
__device__ __forceinline__ void
gsv_quantize_stored(const gsv_int8_target &to, const T *rows, size_t ld, int first, int end,
                    unsigned *counter, unsigned n_blocks, unsigned *shared)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;

    if (!gsv_comes_last(counter, n_blocks, shared))
        return;
    for (int row = first + static_cast<int>(threadIdx.x) / GSV_WARP; row < end;
         row += static_cast<int>(blockDim.x) / GSV_WARP) {
        if (always_wide || to.wide)
            gsv_quantize_row<8>(to, rows + row * ld, static_cast<size_t>(row), lane);
        else
            gsv_quantize_row<1>(to, rows + row * ld, static_cast<size_t>(row), lane);
    }
}

#endif
