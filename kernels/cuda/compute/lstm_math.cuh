/*
 * lstm_math.cuh - the LSTM cell: from the sums of four gates to the states of a unit, in float32.
 */
#ifndef GSV_CUDA_LSTM_MATH_CUH
#define GSV_CUDA_LSTM_MATH_CUH

#include "kernels/cuda/runtime/launch.cuh"

__device__ __forceinline__ float gsv_lstm_sigmoid(float x)
{
    return 1.f / (1.f + expf(-x));
}

/* x, y, z, w: input, forget, cell and output gate. Updates the cell *c and returns h. */
__device__ __forceinline__ float gsv_lstm_unit(const float4 &sums, float *c)
{
    const float in = gsv_lstm_sigmoid(sums.x);
    const float forget = gsv_lstm_sigmoid(sums.y);

    *c = fmaf(forget, *c, in * tanhf(sums.z));
    return gsv_lstm_sigmoid(sums.w) * tanhf(*c);
}

#endif
