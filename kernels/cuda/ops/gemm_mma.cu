/*
 * gemm_mma: out = activation(in * weight^T + bias) + residual on tensor cores.
 *
 *   gemm_mma.cuh computes the sums, gemm_epilogue.cuh stores them.
 *
 *   Needs:  rows of `in` and `weight` aligned to 16 bytes; any m and n.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/ops/gemm_epilogue.cuh"

namespace
{

struct as_it_is {
    __device__ __forceinline__ float operator()(int, int, float sum) const
    {
        return sum;
    }
};

template <class Math, class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads)
    gemm_mma(const struct gsv_gemm gemm, const bool pairs)
{
    GSV_SHARED(char, shared);
    typedef typename Math::element T;
    const gsv_mma_operands operands = { static_cast<const char *>(gemm.in),
                                        static_cast<const char *>(gemm.weight),
                                        gemm.in_ld * sizeof(T),
                                        gemm.weight_ld * sizeof(T),
                                        gemm.m,
                                        gemm.n,
                                        gemm.k * static_cast<int>(sizeof(T)) };
    gsv_mma_sums<Math, Shape> sums = {};

    gsv_mma_product<Math, Shape>(sums, operands, shared, gsv_wait_for_rows());
    gsv_store_sums<T, gelu>(sums, gemm, pairs, as_it_is());
}

template <class Math, class Shape>
cudaError_t launch_shape(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    const bool pairs = gsv_gemm_pairs(gemm, sizeof(typename Math::element));
    const dim3 grid = gsv_mma_grid<Shape>(gemm->m, gemm->n);

    if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_mma<Math, Shape, true>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, *gemm, pairs);
    return GSV_LAUNCH_OVERLAP((gemm_mma<Math, Shape, false>), grid, Shape::threads,
                              Shape::shared_bytes, stream, *gemm, pairs);
}

template <class Math>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    switch (gsv_mma_choose(gemm->m, gemm->n, n_processors)) {
    case GSV_MMA_LARGE:
        return launch_shape<Math, gsv_mma_large>(gemm, stream);
    case GSV_MMA_MEDIUM:
        return launch_shape<Math, gsv_mma_medium>(gemm, stream);
    default:
        return launch_shape<Math, gsv_mma_small>(gemm, stream);
    }
}

template <class Math> cudaError_t allow_shared(void)
{
    const cudaError_t error =
        GSV_ALLOW_SHARED((gemm_mma<Math, gsv_mma_large, false>), gsv_mma_large::shared_bytes);

    return error == cudaSuccess ? GSV_ALLOW_SHARED((gemm_mma<Math, gsv_mma_large, true>),
                                                   gsv_mma_large::shared_bytes)
                                : error;
}

} /* namespace */

bool gsv_cuda_gemm_has_mma(const struct gsv_gemm *gemm, enum gsv_math math)
{
    const int size = math == GSV_MATH_TF32 ? 4 : 2;

    return math != GSV_MATH_F32 && gemm->k * size % 16 == 0 && gemm->in_ld * size % 16 == 0 &&
           gemm->weight_ld * size % 16 == 0 && reinterpret_cast<uintptr_t>(gemm->in) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(gemm->weight) % 16 == 0;
}

cudaError_t gsv_cuda_gemm_mma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                              cudaStream_t stream)
{
    switch (math) {
    case GSV_MATH_F16:
        return launch<gsv_math_f16>(gemm, n_processors, stream);
    case GSV_MATH_BF16:
        return launch<gsv_math_bf16>(gemm, n_processors, stream);
    default:
        return launch<gsv_math_tf32>(gemm, n_processors, stream);
    }
}

cudaError_t gsv_cuda_gemm_mma_prepare(void)
{
    cudaError_t error = allow_shared<gsv_math_f16>();

    if (error == cudaSuccess)
        error = allow_shared<gsv_math_bf16>();
    return error == cudaSuccess ? allow_shared<gsv_math_tf32>() : error;
}
