/*
 * attention_simt.cuh - tiles of attention in float32 without tensor cores: the common parts of
 * attention_simt.cu and attention_simt_options.cu.
 *
 *   Keys and values pass through shared memory 32 at a time. A lane scores one key against four
 *   rows, then sums SIZE / 32 columns of the values for them.
 */
#ifndef GSV_CUDA_ATTENTION_SIMT_CUH
#define GSV_CUDA_ATTENTION_SIMT_CUH

#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace attention_tiles
{

const int WARPS = 4;
const int THREADS = WARPS * GSV_WARP;
const int KEYS = 32;    /* per tile: one for each lane */
const int TOGETHER = 4; /* rows that share the values a lane loads */

/* Copies rows [0, n) of `from` to shared memory, times `by`; zeros up to `total`. */
template <int SIZE, typename T>
__device__ void load_rows(float *to, int to_ld, const T *from, size_t from_ld, int n, int total,
                          float by)
{
    constexpr int width = gsv_vector_chunk<T>::size;

    for (int i = static_cast<int>(threadIdx.x); i < total * (SIZE / width); i += THREADS) {
        const int row = i / (SIZE / width);
        const int column = i % (SIZE / width) * width;
        gsv_vector_chunk<T> x = {};

        if (row < n)
            x = *reinterpret_cast<const gsv_vector_chunk<T> *>(from + row * from_ld + column);
#pragma unroll
        for (int j = 0; j < width; j++)
            to[row * to_ld + column + j] = gsv_to_float(x.v[j]) * by;
    }
}

/* Scores this lane's key against TOGETHER rows of q. */
template <int SIZE>
__device__ void score_key(const float *q, const float *key, float (&scores)[TOGETHER])
{
#pragma unroll
    for (int r = 0; r < TOGETHER; r++)
        scores[r] = 0.f;
#pragma unroll 4
    for (int d = 0; d < SIZE; d += 4) {
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            const float4 x = *reinterpret_cast<const float4 *>(q + r * SIZE + d);

            scores[r] += x.x * key[d] + x.y * key[d + 1] + x.z * key[d + 2] + x.w * key[d + 3];
        }
    }
}

/* sums[r] += p[r] * v over a tile of values. */
template <int SIZE>
__device__ void add_values(const float *p, const float *v, float (*sums)[SIZE / GSV_WARP])
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;

#pragma unroll 2
    for (int key = 0; key < KEYS; key += 4) {
        float4 weight[TOGETHER];

#pragma unroll
        for (int r = 0; r < TOGETHER; r++)
            weight[r] = *reinterpret_cast<const float4 *>(p + r * KEYS + key);
#pragma unroll
        for (int c = 0; c < SIZE / GSV_WARP; c++) {
            const float *const value = v + key * SIZE + c * GSV_WARP + lane;
            const float a = value[0];
            const float b = value[SIZE];
            const float d = value[2 * SIZE];
            const float e = value[3 * SIZE];

#pragma unroll
            for (int r = 0; r < TOGETHER; r++)
                sums[r][c] += weight[r].x * a + weight[r].y * b + weight[r].z * d + weight[r].w * e;
        }
    }
}

} /* namespace attention_tiles */

#endif
