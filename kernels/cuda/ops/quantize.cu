/*
 * quantize: rows of float16 to signed bytes, for rows that their kernel did not quantize itself.
 *
 *   quantize.cuh has the body; eight elements per lane if alignment permits.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/ops/quantize.cuh"

namespace
{

const int WARPS = 4;

template <int width>
__global__ void __launch_bounds__(WARPS *GSV_WARP)
    quantize(const half *in, size_t in_ld, int n_rows, const gsv_int8_target to)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const size_t row = static_cast<size_t>(blockIdx.x) * WARPS + threadIdx.x / GSV_WARP;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (row < static_cast<size_t>(n_rows))
        gsv_quantize_row<width>(to, in + row * in_ld, row, lane);
}

} /* namespace */

cudaError_t gsv_cuda_quantize(const struct gsv_gemm *gemm, const struct gsv_int8_target *to,
                              cudaStream_t stream)
{
    const unsigned blocks = static_cast<unsigned>((gemm->m + WARPS - 1) / WARPS);
    const half *const in = static_cast<const half *>(gemm->in);

    if (to->wide)
        return GSV_LAUNCH_OVERLAP(quantize<8>, blocks, WARPS * GSV_WARP, 0, stream, in, gemm->in_ld,
                                  gemm->m, *to);
    return GSV_LAUNCH_OVERLAP(quantize<1>, blocks, WARPS * GSV_WARP, 0, stream, in, gemm->in_ld,
                              gemm->m, *to);
}
