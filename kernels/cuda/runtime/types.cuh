/*
 * types.cuh - element types of activations, conversions, and 16-byte accesses.
 *
 * Kernels are templates over float, half and __nv_bfloat16; all arithmetic is in float32.
 */
#ifndef GSV_CUDA_TYPES_CUH
#define GSV_CUDA_TYPES_CUH

#include "kernels/cuda/runtime/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ float gsv_to_float(float x)
{
    return x;
}

__device__ __forceinline__ float gsv_to_float(half x)
{
    return __half2float(x);
}

__device__ __forceinline__ float gsv_to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T gsv_from_float(float x);

template <> __device__ __forceinline__ float gsv_from_float<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ half gsv_from_float<half>(float x)
{
    return __float2half_rn(x);
}

template <> __device__ __forceinline__ __nv_bfloat16 gsv_from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Two adjacent elements as held in mma fragments and moved by 4-byte (8-byte) stores. */
template <typename T> struct alignas(2 * sizeof(T)) gsv_pair {
    T v[2];
};

__device__ __forceinline__ gsv_pair<float> gsv_make_pair(float a, float b, float)
{
    return { { a, b } };
}

__device__ __forceinline__ gsv_pair<half> gsv_make_pair(float a, float b, half)
{
    const half2 both = __floats2half2_rn(a, b); /* one instruction for both */
    return { { both.x, both.y } };
}

__device__ __forceinline__ gsv_pair<__nv_bfloat16> gsv_make_pair(float a, float b, __nv_bfloat16)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return { { both.x, both.y } };
}

template <typename T> __device__ __forceinline__ uint32_t gsv_pair_bits(float a, float b)
{
    const gsv_pair<T> pair = gsv_make_pair(a, b, T());
    uint32_t bits;

    static_assert(sizeof(pair) == sizeof(bits), "a pair of 16-bit elements");
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* The elements of one 16-byte access. */
template <typename T> struct alignas(16) gsv_vector_chunk {
    static constexpr int size = 16 / static_cast<int>(sizeof(T));
    T v[size];
};

#endif
