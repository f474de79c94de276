/*
 * reduce.cuh - sum and maximum over a warp and over a block, always in the same order.
 */
#ifndef GSV_CUDA_REDUCE_CUH
#define GSV_CUDA_REDUCE_CUH

#include "kernels/cuda/runtime/launch.cuh"

#define GSV_WARP 32
#define GSV_ALL_LANES 0xffffffffu

struct gsv_sum {
    static __device__ __forceinline__ float identity()
    {
        return 0.f;
    }
    static __device__ __forceinline__ float combine(float a, float b)
    {
        return a + b;
    }
};

/* Propagates NaN, so that it reaches the result and the row is reported. */
struct gsv_max {
    static __device__ __forceinline__ float identity()
    {
        return -INFINITY;
    }
    static __device__ __forceinline__ float combine(float a, float b)
    {
        return a != a || a > b ? a : b;
    }
};

/* All lanes get the result. */
template <typename Op> __device__ __forceinline__ float gsv_warp_reduce(float x)
{
#pragma unroll
    for (int distance = GSV_WARP / 2; distance > 0; distance /= 2)
        x = Op::combine(x, __shfl_xor_sync(GSV_ALL_LANES, x, distance));
    return x;
}

/* All threads get the result. `scratch` is shared memory, one float per warp. The function begins
 * with a barrier, so `scratch` may be reused at once. */
template <typename Op> __device__ __forceinline__ float gsv_block_reduce(float x, float *scratch)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int n_warps = static_cast<int>(blockDim.x) / GSV_WARP;
    float all = Op::identity();

    x = gsv_warp_reduce<Op>(x);
    __syncthreads();
    if (threadIdx.x % GSV_WARP == 0)
        scratch[warp] = x;
    __syncthreads();
    for (int i = 0; i < n_warps; i++)
        all = Op::combine(all, scratch[i]);
    return all;
}

#endif
