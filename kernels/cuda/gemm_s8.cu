/*
 * gemm_s8: out = activation(rows * weights^T + bias) + residual over signed bytes, on tensor cores.
 *
 *   gemm_mma.cuh has the sums, in whole numbers and so exact. The epilogue brings them back:
 *
 *       (step of the row * sum + least of the row * sum of the column's weights) * its scale
 *
 *   and adds bias, erf GELU and residual before the one rounding to float16.
 *
 *   Needs:  rows padded with zeros to multiples of 16 bytes, k up to 65536.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/gemm_mma.cuh"
#include "kernels/cuda/int8.cuh"
#include "kernels/cuda/math.cuh"

namespace
{

struct operands {
    struct gsv_gemm gemm;
    struct gsv_int8_weights weights;
    struct gsv_int8_rows rows;
};

template <bool gelu>
__device__ __forceinline__ float finish(const operands &of, int row, int column, int32_t sum)
{
    float x = fmaf(of.rows.step[row], static_cast<float>(sum),
                   of.rows.least[row] * of.weights.column_sum[column]) *
              of.weights.scale[column];

    if (of.gemm.bias)
        x += of.gemm.bias[column];
    if (gelu)
        x = gsv_gelu(x);
    if (of.gemm.residual)
        x += gsv_to_float(static_cast<const half *>(
            of.gemm.residual)[static_cast<size_t>(row) * of.gemm.out_ld + column]);
    return x;
}

/* Two neighbouring outputs. `pairs`: columns come in aligned twos. */
template <bool gelu>
__device__ __forceinline__ void store_pair(const operands &of, int row, int column, int32_t x,
                                           int32_t y, bool pairs)
{
    half *const out =
        static_cast<half *>(of.gemm.out) + static_cast<size_t>(row) * of.gemm.out_ld + column;

    if (row >= of.gemm.m || column >= of.gemm.n)
        return;
    if (pairs) {
        *reinterpret_cast<gsv_pair<half> *>(out) = gsv_make_pair(
            finish<gelu>(of, row, column, x), finish<gelu>(of, row, column + 1, y), half());
        return;
    }
    out[0] = gsv_from_float<half>(finish<gelu>(of, row, column, x));
    if (column + 1 < of.gemm.n)
        out[1] = gsv_from_float<half>(finish<gelu>(of, row, column + 1, y));
}

template <class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads) gemm_s8(const operands of, const bool pairs)
{
    GSV_SHARED(char, shared);
    const gsv_mma_operands tiles = { reinterpret_cast<const char *>(of.rows.values),
                                     reinterpret_cast<const char *>(of.weights.values),
                                     static_cast<size_t>(of.rows.ld),
                                     static_cast<size_t>(of.weights.k_up),
                                     of.gemm.m,
                                     of.gemm.n,
                                     of.weights.k_up };
    gsv_mma_sums<gsv_math_s8, Shape> sums = {};

    gsv_grid_wait();
    gsv_grid_launch_next();
    gsv_mma_product<gsv_math_s8, Shape>(sums, tiles, shared);
#pragma unroll
    for (int i = 0; i < Shape::warp_rows / 16; i++) {
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j++) {
            const int row = gsv_mma_row<Shape>(i);
            const int column = gsv_mma_column<Shape>(j);
            const int32_t(&x)[4] = sums.at[i][j];

            store_pair<gelu>(of, row, column, x[0], x[1], pairs);
            store_pair<gelu>(of, row + 8, column, x[2], x[3], pairs);
        }
    }
}

template <class Shape> cudaError_t launch(const operands *of, cudaStream_t stream)
{
    const struct gsv_gemm *const gemm = &of->gemm;
    const bool pairs = gemm->n % 2 == 0 && gemm->out_ld % 2 == 0 &&
                       reinterpret_cast<uintptr_t>(gemm->out) % sizeof(half2) == 0;
    const dim3 grid = gsv_mma_grid<Shape>(gemm->m, gemm->n);

    if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_s8<Shape, true>), grid, Shape::threads, Shape::shared_bytes,
                                  stream, *of, pairs);
    return GSV_LAUNCH_OVERLAP((gemm_s8<Shape, false>), grid, Shape::threads, Shape::shared_bytes,
                              stream, *of, pairs);
}

} /* namespace */

cudaError_t gsv_cuda_gemm_s8(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                             const struct gsv_int8_rows *rows, int n_processors,
                             cudaStream_t stream)
{
    const operands of = { *gemm, *weights, *rows };

    switch (gsv_mma_choose(gemm->m, gemm->n, n_processors)) {
    case GSV_MMA_LARGE:
        return launch<gsv_mma_large>(&of, stream);
    case GSV_MMA_MEDIUM:
        return launch<gsv_mma_medium>(&of, stream);
    default:
        return launch<gsv_mma_small>(&of, stream);
    }
}

cudaError_t gsv_cuda_gemm_s8_prepare(void)
{
    const cudaError_t error =
        GSV_ALLOW_SHARED((gemm_s8<gsv_mma_large, false>), gsv_mma_large::shared_bytes);

    return error == cudaSuccess
               ? GSV_ALLOW_SHARED((gemm_s8<gsv_mma_large, true>), gsv_mma_large::shared_bytes)
               : error;
}
