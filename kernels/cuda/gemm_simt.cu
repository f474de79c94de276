/*
 * gemm_simt: out = activation(in * weight^T + bias) + residual without tensor cores.
 *
 *   Full float32, and whatever alignment: the fallback of gemm_mma and the float32 mode. A block
 *   of 16 x 16 threads computes a tile of 128 x 128 (64 x 64 when that fills the device better),
 *   each thread 8 x 8 (4 x 4) outputs. Tiles of 8 columns of k lie in shared memory transposed, so
 *   that a thread reads its operands as float4; while one is computed, the next waits in
 *   registers.
 *
 *       shared = (A, B)[2 stages][8][tile + 4] floats
 *
 *   Every element is accumulated over k in one order, with fused multiply-adds, whatever the tile.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref.
 */
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/types.cuh"

namespace
{

const int DEPTH = 8; /* columns of k in a tile */
const int SIDE = 16; /* threads down and across a block */
const int THREADS = SIDE * SIDE;

template <int each> struct tile {
    static constexpr int size = SIDE * each;
    static constexpr int row = size + 4; /* floats: transposed stores meet fewer common banks */
    static constexpr int loads = size * DEPTH / THREADS; /* elements a thread brings */
    static constexpr size_t shared_bytes = sizeof(float) * 2 * 2 * DEPTH * row;
};

/* The thread's share of rows [first, first + size) x columns [k, k + DEPTH), zeros outside. */
template <typename T, int each>
__device__ __forceinline__ void fetch(float (&x)[tile<each>::loads], const T *from, int ld,
                                      int first, int n_rows, int k, int n_k)
{
#pragma unroll
    for (int i = 0; i < tile<each>::loads; i++) {
        const int at = static_cast<int>(threadIdx.x) + i * THREADS;
        const int row = first + at / DEPTH;
        const int column = k + at % DEPTH;

        x[i] = row < n_rows && column < n_k
                   ? gsv_to_float(from[static_cast<size_t>(row) * ld + column])
                   : 0.f;
    }
}

template <int each>
__device__ __forceinline__ void put(float *to, const float (&x)[tile<each>::loads])
{
#pragma unroll
    for (int i = 0; i < tile<each>::loads; i++) {
        const int at = static_cast<int>(threadIdx.x) + i * THREADS;

        to[at % DEPTH * tile<each>::row + at / DEPTH] = x[i];
    }
}

/* A thread's rows (columns) are groups of four, 64 apart: neighbours read neighbouring float4s. */
__device__ __forceinline__ int own(int thread, int i)
{
    return i / 4 * (4 * SIDE) + thread * 4 + i % 4;
}

template <int each>
__device__ __forceinline__ void multiply(float (&sums)[each][each], const float *a, const float *b,
                                         int down, int across)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float x[each];
        float y[each];

#pragma unroll
        for (int i = 0; i < each; i += 4) {
            const float4 u =
                *reinterpret_cast<const float4 *>(a + k * tile<each>::row + own(down, i));
            const float4 v =
                *reinterpret_cast<const float4 *>(b + k * tile<each>::row + own(across, i));

            x[i] = u.x, x[i + 1] = u.y, x[i + 2] = u.z, x[i + 3] = u.w;
            y[i] = v.x, y[i + 1] = v.y, y[i + 2] = v.z, y[i + 3] = v.w;
        }
#pragma unroll
        for (int i = 0; i < each; i++) {
#pragma unroll
            for (int j = 0; j < each; j++)
                sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
    }
}

template <typename T>
__device__ __forceinline__ void store(const struct gsv_gemm &gemm, int row, int column, float x)
{
    const size_t at = static_cast<size_t>(row) * gemm.out_ld + column;

    if (row >= gemm.m || column >= gemm.n)
        return;
    if (gemm.bias)
        x += gemm.bias[column];
    x = gsv_activate(x, gemm.activation);
    if (gemm.residual)
        x += gsv_to_float(static_cast<const T *>(gemm.residual)[at]);
    static_cast<T *>(gemm.out)[at] = gsv_from_float<T>(x);
}

template <typename T, int each>
__global__ void __launch_bounds__(THREADS) gemm_simt(const struct gsv_gemm gemm)
{
    GSV_SHARED(float, shared);
    typedef tile<each> tiling;
    const T *const in = static_cast<const T *>(gemm.in);
    const T *const weight = static_cast<const T *>(gemm.weight);
    const int stage_size = DEPTH * tiling::row;
    const int first_row = static_cast<int>(blockIdx.y) * tiling::size;
    const int first_column = static_cast<int>(blockIdx.x) * tiling::size;
    const int down = static_cast<int>(threadIdx.x) / SIDE;
    const int across = static_cast<int>(threadIdx.x) % SIDE;
    float *const a = shared;
    float *const b = shared + 2 * stage_size;
    float next_a[tiling::loads];
    float next_b[tiling::loads];
    float sums[each][each] = {};

    gsv_grid_wait();
    gsv_grid_launch_next();
    fetch<T, each>(next_a, in, gemm.in_ld, first_row, gemm.m, 0, gemm.k);
    fetch<T, each>(next_b, weight, gemm.weight_ld, first_column, gemm.n, 0, gemm.k);
    for (int k = 0, stage = 0; k < gemm.k; k += DEPTH, stage ^= 1) {
        put<each>(a + stage * stage_size, next_a);
        put<each>(b + stage * stage_size, next_b);
        __syncthreads(); /* one is enough: two turns ago everyone had passed this stage */
        if (k + DEPTH < gemm.k) {
            fetch<T, each>(next_a, in, gemm.in_ld, first_row, gemm.m, k + DEPTH, gemm.k);
            fetch<T, each>(next_b, weight, gemm.weight_ld, first_column, gemm.n, k + DEPTH, gemm.k);
        }
        multiply<each>(sums, a + stage * stage_size, b + stage * stage_size, down, across);
    }
#pragma unroll
    for (int i = 0; i < each; i++) {
#pragma unroll
        for (int j = 0; j < each; j++)
            store<T>(gemm, first_row + own(down, i), first_column + own(across, j), sums[i][j]);
    }
}

template <typename T, int each>
cudaError_t launch_tile(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    const int size = tile<each>::size;
    const dim3 grid((gemm->n + size - 1) / size, (gemm->m + size - 1) / size);

    return GSV_LAUNCH_OVERLAP((gemm_simt<T, each>), grid, THREADS, tile<each>::shared_bytes, stream,
                              *gemm);
}

template <typename T>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    const int64_t large = static_cast<int64_t>((gemm->m + 127) / 128) * ((gemm->n + 127) / 128);

    return large >= n_processors ? launch_tile<T, 8>(gemm, stream)
                                 : launch_tile<T, 4>(gemm, stream);
}

} /* namespace */

cudaError_t gsv_cuda_gemm_simt(const struct gsv_gemm *gemm, enum gsv_element element,
                               int n_processors, cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(gemm, n_processors, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(gemm, n_processors, stream);
    default:
        return launch<float>(gemm, n_processors, stream);
    }
}
