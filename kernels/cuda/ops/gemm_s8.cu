/*
 * gemm_s8: out = activation(rows * weights^T + bias) + residual over signed bytes, on tensor cores.
 *
 *   gemm_mma.cuh computes exact integer sums; this file dequantizes them:
 *
 *       (step of the row * sum + least of the row * sum of the column's weights) * column scale
 *
 *   gemm_epilogue.cuh follows, with a single rounding to float16. If another int8 product reads the
 *   rows, the block that stores the last part of them quantizes them: each block has only some
 *   columns, and a row's range needs all.
 *
 *   Needs:  rows zero-padded to multiples of 16 bytes, k up to 65536.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/ops/gemm_epilogue.cuh"
#include "kernels/cuda/ops/quantize.cuh"

namespace
{

struct operands {
    struct gsv_gemm gemm;
    struct gsv_int8_weights weights;
    struct gsv_int8_rows rows;
    struct gsv_int8_target next;
};

struct scale {
    const operands &of;

    __device__ __forceinline__ float operator()(int row, int column, int32_t sum) const
    {
        return gsv_dequantized(sum, of.rows.step[row], of.rows.min[row],
                               of.weights.column_sum[column], of.weights.scale[column]);
    }
};

/* Minimum blocks per SM; 0: chosen by ptxas, which for the small shape spills registers to fit more
 * blocks on sm_100, sm_103 and sm_110. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
#define MIN_BLOCKS(Shape) (Shape::rows == gsv_mma_small::rows ? 2 : 0)
#else
#define MIN_BLOCKS(Shape) 0
#endif

template <class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads, MIN_BLOCKS(Shape))
    gemm_s8(const operands of, const bool pairs)
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

    gsv_mma_product<gsv_math_s8, Shape>(sums, tiles, shared, gsv_wait_for_rows());
    gsv_store_sums<half, gelu>(sums, of.gemm, pairs, scale{ of });
    if (of.next.rows.values) {
        const int first = static_cast<int>(blockIdx.y) * Shape::rows;

        gsv_quantize_stored<false>(of.next, static_cast<const half *>(of.gemm.out), of.gemm.out_ld,
                                   first, min(first + Shape::rows, of.gemm.m),
                                   of.next.arrived + blockIdx.y, gridDim.x,
                                   reinterpret_cast<unsigned *>(shared));
    }
}

template <class Shape> cudaError_t launch(const operands *of, cudaStream_t stream)
{
    const struct gsv_gemm *const gemm = &of->gemm;
    const bool pairs = gsv_gemm_pairs(gemm, sizeof(half));
    const dim3 grid = gsv_mma_grid<Shape>(gemm->m, gemm->n);

    if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_s8<Shape, true>), grid, Shape::threads, Shape::shared_bytes,
                                  stream, *of, pairs);
    return GSV_LAUNCH_OVERLAP((gemm_s8<Shape, false>), grid, Shape::threads, Shape::shared_bytes,
                              stream, *of, pairs);
}

} /* namespace */

cudaError_t gsv_cuda_gemm_s8(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                             const struct gsv_int8_rows *rows, const struct gsv_int8_target *next,
                             int n_processors, cudaStream_t stream)
{
    const operands of = { *gemm, *weights, *rows, *next };

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
