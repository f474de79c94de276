/*
 * gemv: the product of a head in float32: few rows, at most GSV_GEMV_MAX_N outputs.
 *
 *   One warp per output element; its lanes share k, and the order of the sum depends on k only. The
 *   weights are read once per row, from L2 after the first.
 *
 *   Needs:  float32; any size.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"

namespace
{

const int WARPS = 4;

__global__ void __launch_bounds__(WARPS *GSV_WARP) gemv(const struct gsv_gemm gemm)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int column =
        static_cast<int>(blockIdx.x) * WARPS + static_cast<int>(threadIdx.x) / GSV_WARP;
    const size_t row = blockIdx.y;
    float sum = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (column >= gemm.n)
        return;
    const float *const x = static_cast<const float *>(gemm.in) + row * gemm.in_ld;
    const float *const w =
        static_cast<const float *>(gemm.weight) + static_cast<size_t>(column) * gemm.weight_ld;
    for (int i = lane; i < gemm.k; i += GSV_WARP)
        sum = fmaf(x[i], w[i], sum);
    sum = gsv_warp_reduce<gsv_sum>(sum);
    if (lane != 0)
        return;
    const size_t at = row * gemm.out_ld + column;
    sum = gsv_activate(gemm.bias ? sum + gemm.bias[column] : sum, gemm.activation);
    if (gemm.residual)
        sum += static_cast<const float *>(gemm.residual)[at];
    static_cast<float *>(gemm.out)[at] = sum;
}

} /* namespace */

cudaError_t gsv_cuda_gemv(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    const dim3 grid((gemm->n + WARPS - 1) / WARPS, gemm->m);

    return GSV_LAUNCH_OVERLAP(gemv, grid, WARPS * GSV_WARP, 0, stream, *gemm);
}
