/*
 * math.cuh - the activation functions, in float32.
 */
#ifndef GSV_CUDA_MATH_CUH
#define GSV_CUDA_MATH_CUH

#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/runtime/launch.cuh"

#include <gpuserve/sys/backend.h>

/* erf, not the tanh approximation: they differ by 3e-4, more than the error of fp16. */
__device__ __forceinline__ float gsv_gelu(float x)
{
    return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
}

/* For rows of 16 bits: the same within 2e-7, by polynomial 7.1.26 of Abramowitz and Stegun
 * (Handbook of Mathematical Functions), without branches. */
__device__ __forceinline__ float gsv_gelu_short(float x)
{
    const float t = gsv_reciprocal(fmaf(0.3275911f * 0.70710678118654752f, fabsf(x), 1.f));
    const float power = gsv_exp2(-0.72134752044448170f * x * x);
    float p = fmaf(0.5f * 1.061405429f, t, 0.5f * -1.453152027f);

    p = fmaf(p, t, 0.5f * 1.421413741f);
    p = fmaf(p, t, 0.5f * -0.284496736f);
    p = fmaf(p, t, 0.5f * 0.254829592f);
    p = p * t * power; /* (1 - erf(|x| / sqrt(2))) / 2 */
    return fmaf(-fabsf(x), p, fmaxf(x, 0.f));
}

template <typename T> __device__ __forceinline__ float gsv_gelu_of(float x)
{
    return sizeof(T) == 2 ? gsv_gelu_short(x) : gsv_gelu(x);
}

/* GPUSERVE_ACT_NONE to GPUSERVE_ACT_SIGMOID. */
__device__ __forceinline__ float gsv_activate(float x, int activation)
{
    switch (activation) {
    case GPUSERVE_ACT_GELU:
        return gsv_gelu(x);
    case GPUSERVE_ACT_GELU_TANH:
        return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case GPUSERVE_ACT_RELU:
        return x != x || x > 0.f ? x : 0.f; /* NaN stays NaN */
    case GPUSERVE_ACT_TANH:
        return tanhf(x);
    case GPUSERVE_ACT_SILU:
        return x / (1.f + expf(-x));
    case GPUSERVE_ACT_QUICK_GELU:
        return x / (1.f + expf(-1.702f * x));
    case GPUSERVE_ACT_SIGMOID:
        return 1.f / (1.f + expf(-x));
    default:
        return x;
    }
}

template <typename T, int activation, int width>
__device__ __forceinline__ void gsv_activate_as(float (&x)[width])
{
#pragma unroll
    for (int j = 0; j < width; j++)
        x[j] =
            activation == GPUSERVE_ACT_GELU ? gsv_gelu_of<T>(x[j]) : gsv_activate(x[j], activation);
}

/* All elements. The choice is outside of the loop, so that the elements' instructions interleave.
 */
template <typename T, int width>
__device__ __forceinline__ void gsv_activate_all(float (&x)[width], int activation)
{
    switch (activation) {
    case GPUSERVE_ACT_GELU:
        gsv_activate_as<T, GPUSERVE_ACT_GELU>(x);
        break;
    case GPUSERVE_ACT_GELU_TANH:
        gsv_activate_as<T, GPUSERVE_ACT_GELU_TANH>(x);
        break;
    case GPUSERVE_ACT_RELU:
        gsv_activate_as<T, GPUSERVE_ACT_RELU>(x);
        break;
    case GPUSERVE_ACT_TANH:
        gsv_activate_as<T, GPUSERVE_ACT_TANH>(x);
        break;
    case GPUSERVE_ACT_SILU:
        gsv_activate_as<T, GPUSERVE_ACT_SILU>(x);
        break;
    case GPUSERVE_ACT_QUICK_GELU:
        gsv_activate_as<T, GPUSERVE_ACT_QUICK_GELU>(x);
        break;
    case GPUSERVE_ACT_SIGMOID:
        gsv_activate_as<T, GPUSERVE_ACT_SIGMOID>(x);
        break;
    default:
        break;
    }
}

#endif
