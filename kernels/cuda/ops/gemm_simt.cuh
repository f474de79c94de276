/*
 * gemm_simt.cuh - the sums of a matrix product without tensor cores, in float32.
 *
 *   A block of 16 x 16 threads computes a tile of 128 x 128 (64 x 64 if that fills the device
 *   better), each thread 8 x 8 (4 x 4) outputs. Tiles of 8 columns of k are stored transposed in
 *   shared memory, so that a thread reads its operands as float4. The next tile is prefetched into
 *   registers meanwhile.
 *
 *       shared = (A, B)[2 stages][8][tile + 4] floats
 *
 *   Every element is accumulated over k in the same order, with fused multiply-adds, for every
 *   tile.
 */
#ifndef GSV_CUDA_GEMM_SIMT_CUH
#define GSV_CUDA_GEMM_SIMT_CUH

#include "kernels/cuda/runtime/types.cuh"

const int GSV_SIMT_DEPTH = 8; /* columns of k in a tile */
const int GSV_SIMT_SIDE = 16; /* threads per block in each dimension */
const int GSV_SIMT_THREADS = GSV_SIMT_SIDE * GSV_SIMT_SIDE;

template <int each> struct gsv_simt_tile {
    static constexpr int size = GSV_SIMT_SIDE * each;
    static constexpr int row = size + 4; /* floats; padding against bank conflicts */
    static constexpr int loads = size * GSV_SIMT_DEPTH / GSV_SIMT_THREADS; /* elements per thread */
    static constexpr int stage = GSV_SIMT_DEPTH * row;
    static constexpr size_t shared_bytes = sizeof(float) * 2 * 2 * stage;
};

/* One operand: n vectors of k elements. Adjacent threads load adjacent addresses: along k if the
 * vectors are rows, across the vectors if they are columns (`turned`). */
template <typename T, bool turned> struct gsv_simt_operand {
    const T *from;
    int64_t stride; /* between stored rows */
    int n;
    int k;

    template <int each> static __device__ __forceinline__ int vector_of(int at)
    {
        return turned ? at % gsv_simt_tile<each>::size : at / GSV_SIMT_DEPTH;
    }

    template <int each> static __device__ __forceinline__ int step_of(int at)
    {
        return turned ? at / gsv_simt_tile<each>::size : at % GSV_SIMT_DEPTH;
    }

    /* Loads the thread's part of vectors [first, first + size) at [k_at, k_at + DEPTH), zeros
     * outside. */
    template <int each>
    __device__ __forceinline__ void fetch(float (&x)[gsv_simt_tile<each>::loads], int first,
                                          int k_at) const
    {
#pragma unroll
        for (int i = 0; i < gsv_simt_tile<each>::loads; i++) {
            const int at = static_cast<int>(threadIdx.x) + i * GSV_SIMT_THREADS;
            const int vector = first + vector_of<each>(at);
            const int step = k_at + step_of<each>(at);

            x[i] = vector < n && step < k ? gsv_to_float(turned ? from[step * stride + vector]
                                                                : from[vector * stride + step])
                                          : 0.f;
        }
    }

    template <int each>
    static __device__ __forceinline__ void put(float *to,
                                               const float (&x)[gsv_simt_tile<each>::loads])
    {
#pragma unroll
        for (int i = 0; i < gsv_simt_tile<each>::loads; i++) {
            const int at = static_cast<int>(threadIdx.x) + i * GSV_SIMT_THREADS;

            to[step_of<each>(at) * gsv_simt_tile<each>::row + vector_of<each>(at)] = x[i];
        }
    }
};

/* A thread's rows (columns) are groups of four, 64 apart: adjacent threads read adjacent float4. */
__device__ __forceinline__ int gsv_simt_own(int thread, int i)
{
    return i / 4 * (4 * GSV_SIMT_SIDE) + thread * 4 + i % 4;
}

/* Row and column of sums[i][.] and sums[.][j]. */
template <int each> __device__ __forceinline__ int gsv_simt_row(int i)
{
    return static_cast<int>(blockIdx.y) * gsv_simt_tile<each>::size +
           gsv_simt_own(static_cast<int>(threadIdx.x) / GSV_SIMT_SIDE, i);
}

template <int each> __device__ __forceinline__ int gsv_simt_column(int j)
{
    return static_cast<int>(blockIdx.x) * gsv_simt_tile<each>::size +
           gsv_simt_own(static_cast<int>(threadIdx.x) % GSV_SIMT_SIDE, j);
}

template <int each>
__device__ __forceinline__ void gsv_simt_multiply(float (&sums)[each][each], const float *a,
                                                  const float *b)
{
    constexpr int row = gsv_simt_tile<each>::row;
    const int down = static_cast<int>(threadIdx.x) / GSV_SIMT_SIDE;
    const int across = static_cast<int>(threadIdx.x) % GSV_SIMT_SIDE;

#pragma unroll
    for (int k = 0; k < GSV_SIMT_DEPTH; k++) {
        float x[each];
        float y[each];

#pragma unroll
        for (int i = 0; i < each; i += 4) {
            const float4 u = *reinterpret_cast<const float4 *>(a + k * row + gsv_simt_own(down, i));
            const float4 v =
                *reinterpret_cast<const float4 *>(b + k * row + gsv_simt_own(across, i));

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

/* Computes the sums of this block's tile; `shared` has gsv_simt_tile<each>::shared_bytes. */
template <int each, class A, class B>
__device__ __forceinline__ void gsv_simt_product(float (&sums)[each][each], const A &a_of,
                                                 const B &b_of, float *shared)
{
    typedef gsv_simt_tile<each> tiling;
    const int first_row = static_cast<int>(blockIdx.y) * tiling::size;
    const int first_column = static_cast<int>(blockIdx.x) * tiling::size;
    float *const a = shared;
    float *const b = shared + 2 * tiling::stage;
    float next_a[tiling::loads];
    float next_b[tiling::loads];

    a_of.template fetch<each>(next_a, first_row, 0);
    b_of.template fetch<each>(next_b, first_column, 0);
    for (int k = 0, stage = 0; k < a_of.k; k += GSV_SIMT_DEPTH, stage ^= 1) {
        A::template put<each>(a + stage * tiling::stage, next_a);
        B::template put<each>(b + stage * tiling::stage, next_b);
        __syncthreads(); /* one barrier suffices: all threads left this stage two iterations ago */
        if (k + GSV_SIMT_DEPTH < a_of.k) {
            a_of.template fetch<each>(next_a, first_row, k + GSV_SIMT_DEPTH);
            b_of.template fetch<each>(next_b, first_column, k + GSV_SIMT_DEPTH);
        }
        gsv_simt_multiply<each>(sums, a + stage * tiling::stage, b + stage * tiling::stage);
    }
}

/* True if tiles of 128 x 128 occupy the device. */
inline bool gsv_simt_wants_large(int m, int n, int n_processors)
{
    return static_cast<int64_t>((m + 127) / 128) * ((n + 127) / 128) >= n_processors;
}

template <int each> dim3 gsv_simt_grid(int m, int n)
{
    const int size = gsv_simt_tile<each>::size;

    return dim3((n + size - 1) / size, (m + size - 1) / size);
}

#endif
