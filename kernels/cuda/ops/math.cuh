/*
 * math.cuh - the activation functions, in float32.
 */
#ifndef GSV_CUDA_MATH_CUH
#define GSV_CUDA_MATH_CUH

#include "kernels/cuda/runtime/launch.cuh"

#include <gpuserve/sys/backend.h>

/* erf, not the tanh approximation: they differ by 3e-4, more than the error of fp16. */
__device__ __forceinline__ float gsv_gelu(float x)
{
    return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
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

#endif
