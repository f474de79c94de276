/*
 * gemm_simt: out = activation(in * weight^T + bias) + residual without tensor cores.
 *
 *   Full float32 and any alignment: the fallback of gemm_mma, and the float32 mode. gemm_simt.cuh
 *   computes the sums.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/gemm_simt.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/ptx.cuh"

namespace
{

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
__global__ void __launch_bounds__(GSV_SIMT_THREADS) gemm_simt(const struct gsv_gemm gemm)
{
    GSV_SHARED(float, shared);
    const gsv_simt_operand<T, false> in = { static_cast<const T *>(gemm.in), gemm.in_ld, gemm.m,
                                            gemm.k };
    const gsv_simt_operand<T, false> weight = { static_cast<const T *>(gemm.weight), gemm.weight_ld,
                                                gemm.n, gemm.k };
    float sums[each][each] = {};

    gsv_grid_wait();
    gsv_grid_launch_next();
    gsv_simt_product<each>(sums, in, weight, shared);
#pragma unroll
    for (int i = 0; i < each; i++) {
#pragma unroll
        for (int j = 0; j < each; j++)
            store<T>(gemm, gsv_simt_row<each>(i), gsv_simt_column<each>(j), sums[i][j]);
    }
}

template <typename T, int each>
cudaError_t launch_tile(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    return GSV_LAUNCH_OVERLAP((gemm_simt<T, each>), gsv_simt_grid<each>(gemm->m, gemm->n),
                              GSV_SIMT_THREADS, gsv_simt_tile<each>::shared_bytes, stream, *gemm);
}

template <typename T>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    return gsv_simt_wants_large(gemm->m, gemm->n, n_processors) ? launch_tile<T, 8>(gemm, stream)
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
