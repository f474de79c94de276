/*
 * matmul_tiled: C = alpha * op(A) op(B) + beta * C in full float32, with tiling.
 *
 *   gemm_simt.cuh computes the sums: shared memory tiles per block, register tiles per thread. The
 *   operands are read in place, along their contiguous dimension.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/matmul.c.
 */
#include "kernels/cuda/ops/gemm_simt.cuh"
#include "kernels/cuda/compute/matmul.cuh"

namespace
{

template <int each, bool transpose_a, bool transpose_b>
__global__ void __launch_bounds__(GSV_SIMT_THREADS) matmul_tiled(const struct gsv_matmul of)
{
    GSV_SHARED(float, shared);
    const gsv_simt_operand<float, transpose_a> a = { of.a, of.a_stride, of.m, of.k };
    const gsv_simt_operand<float, !transpose_b> b = { of.b, of.b_stride, of.n, of.k };
    float sums[each][each] = {};

    gsv_simt_product<each>(sums, a, b, shared);
#pragma unroll
    for (int i = 0; i < each; i++) {
#pragma unroll
        for (int j = 0; j < each; j++) {
            const int row = gsv_simt_row<each>(i);
            const int column = gsv_simt_column<each>(j);
            float *const c = of.c + row * of.c_stride + column;

            if (row < of.m && column < of.n)
                *c = of.beta != 0.f ? of.alpha * sums[i][j] + of.beta * *c : of.alpha * sums[i][j];
        }
    }
}

template <int each> cudaError_t launch(const struct gsv_matmul *of, cudaStream_t stream)
{
    const dim3 grid = gsv_simt_grid<each>(of->m, of->n);
    const size_t shared_bytes = gsv_simt_tile<each>::shared_bytes;

    if (of->transpose_a && of->transpose_b)
        return GSV_LAUNCH((matmul_tiled<each, true, true>), grid, GSV_SIMT_THREADS, shared_bytes,
                          stream, *of);
    if (of->transpose_a)
        return GSV_LAUNCH((matmul_tiled<each, true, false>), grid, GSV_SIMT_THREADS, shared_bytes,
                          stream, *of);
    if (of->transpose_b)
        return GSV_LAUNCH((matmul_tiled<each, false, true>), grid, GSV_SIMT_THREADS, shared_bytes,
                          stream, *of);
    return GSV_LAUNCH((matmul_tiled<each, false, false>), grid, GSV_SIMT_THREADS, shared_bytes,
                      stream, *of);
}

} /* namespace */

cudaError_t gsv_cuda_matmul_tiled(const struct gsv_matmul *matmul, int n_processors,
                                  cudaStream_t stream)
{
    return gsv_simt_wants_large(matmul->m, matmul->n, n_processors) ? launch<8>(matmul, stream)
                                                                    : launch<4>(matmul, stream);
}
