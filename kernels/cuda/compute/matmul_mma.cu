/*
 * matmul_mma: C = alpha * A B^T + beta * C on tensor cores, over packed rows of A and B.
 *
 *   gemm_mma.cuh computes the sums; repack.cu makes the rows. C is float32.
 *
 *   Needs:  rows aligned to 16 bytes, k zero-padded to 16 bytes; any m and n.
 *   Oracle: kernels/ref/matmul.c.
 */
#include "kernels/cuda/ops/gemm_mma.cuh"
#include "kernels/cuda/compute/matmul.cuh"

namespace
{

__device__ __forceinline__ void store(const struct gsv_matmul &of, int row, int column, float sum)
{
    float *const c = of.c + row * of.c_stride + column;

    if (row < of.m && column < of.n)
        *c = of.beta != 0.f ? of.alpha * sum + of.beta * *c : of.alpha * sum;
}

template <class Math, class Shape>
__global__ void __launch_bounds__(Shape::threads)
    matmul_mma(const struct gsv_matmul of, const struct gsv_packed packed)
{
    GSV_SHARED(char, shared);
    constexpr size_t size = sizeof(typename Math::element);
    const gsv_mma_operands operands = { static_cast<const char *>(packed.a),
                                        static_cast<const char *>(packed.b),
                                        packed.a_ld * size,
                                        packed.b_ld * size,
                                        of.m,
                                        of.n,
                                        packed.k * static_cast<int>(size) };
    gsv_mma_sums<Math, Shape> sums = {};

    gsv_mma_product<Math, Shape>(sums, operands, shared, [] {});
#pragma unroll
    for (int i = 0; i < Shape::warp_rows / 16; i++) {
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j++) {
            const int row = gsv_mma_row<Shape>(i);
            const int column = gsv_mma_column<Shape>(j);

            store(of, row, column, sums.at[i][j][0]);
            store(of, row, column + 1, sums.at[i][j][1]);
            store(of, row + 8, column, sums.at[i][j][2]);
            store(of, row + 8, column + 1, sums.at[i][j][3]);
        }
    }
}

template <class Math, class Shape>
cudaError_t launch_shape(const struct gsv_matmul *of, const struct gsv_packed *packed,
                         cudaStream_t stream)
{
    return GSV_LAUNCH((matmul_mma<Math, Shape>), gsv_mma_grid<Shape>(of->m, of->n), Shape::threads,
                      Shape::shared_bytes, stream, *of, *packed);
}

template <class Math>
cudaError_t launch(const struct gsv_matmul *of, const struct gsv_packed *packed, int n_processors,
                   cudaStream_t stream)
{
    switch (gsv_mma_choose(of->m, of->n, n_processors)) {
    case GSV_MMA_LARGE:
        return launch_shape<Math, gsv_mma_large>(of, packed, stream);
    case GSV_MMA_MEDIUM:
        return launch_shape<Math, gsv_mma_medium>(of, packed, stream);
    default:
        return launch_shape<Math, gsv_mma_small>(of, packed, stream);
    }
}

template <class Math> cudaError_t allow_shared(void)
{
    return GSV_ALLOW_SHARED((matmul_mma<Math, gsv_mma_large>), gsv_mma_large::shared_bytes);
}

} /* namespace */

cudaError_t gsv_cuda_matmul_mma(const struct gsv_matmul *matmul, const struct gsv_packed *packed,
                                enum gsv_math math, int n_processors, cudaStream_t stream)
{
    switch (math) {
    case GSV_MATH_F16:
        return launch<gsv_math_f16>(matmul, packed, n_processors, stream);
    case GSV_MATH_BF16:
        return launch<gsv_math_bf16>(matmul, packed, n_processors, stream);
    default:
        return launch<gsv_math_tf32>(matmul, packed, n_processors, stream);
    }
}

cudaError_t gsv_cuda_matmul_mma_prepare(void)
{
    cudaError_t error = allow_shared<gsv_math_f16>();

    if (error == cudaSuccess)
        error = allow_shared<gsv_math_bf16>();
    return error == cudaSuccess ? allow_shared<gsv_math_tf32>() : error;
}
