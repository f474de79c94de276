/*
 * bias_act: activation(x + bias) + residual in place on the output of a product.
 *
 *   For products whose epilogue lacks the activation: cuBLASLt's GELU is the tanh form, and the
 *   rarer activations are not in our epilogue. 16 bytes per thread if alignment permits.
 *
 *   Needs:  any size. gemm->bias is NULL if the product has added the bias.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/rownorm.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int THREADS = 256;

/* `width` adjacent columns of one row. */
template <typename T, int width> struct alignas(width * sizeof(T)) packed {
    T v[width];
};

/* `at`: index of the first element; `column`: of its column. */
template <typename T, int width>
__device__ __forceinline__ void apply(const struct gsv_gemm &gemm, size_t at, int column)
{
    packed<T, width> *const to =
        reinterpret_cast<packed<T, width> *>(static_cast<T *>(gemm.out) + at);
    packed<T, width> x = *to;
    packed<T, width> residual = {};
    float y[width];

    if (gemm.residual)
        residual =
            *reinterpret_cast<const packed<T, width> *>(static_cast<const T *>(gemm.residual) + at);
#pragma unroll
    for (int j = 0; j < width; j++)
        y[j] = gsv_to_float(x.v[j]) + (gemm.bias ? gemm.bias[column + j] : 0.f);
    gsv_activate_all<T>(y, gemm.activation);
#pragma unroll
    for (int j = 0; j < width; j++)
        x.v[j] = gsv_from_float<T>(gemm.residual ? y[j] + gsv_to_float(residual.v[j]) : y[j]);
    *to = x;
}

/* `flat`: rows are dense and the product has added the bias, so that no division finds the column:
 * a division takes longer than the rest. */
template <typename T, int width, bool flat>
__global__ void __launch_bounds__(THREADS)
    bias_act(const struct gsv_gemm gemm, const uint32_t a_row, const uint32_t n_chunks)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (i >= n_chunks)
        return;
    if (flat) {
        apply<T, width>(gemm, static_cast<size_t>(i) * width, 0);
    } else {
        const uint32_t row = i / a_row;
        const int column = static_cast<int>(i - row * a_row) * width;

        apply<T, width>(gemm, static_cast<size_t>(row) * gemm.out_ld + column, column);
    }
}

template <typename T, int width>
cudaError_t launch_width(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    const uint32_t a_row = static_cast<uint32_t>(gemm->n / width);
    const size_t chunks = static_cast<size_t>(gemm->m) * a_row;
    const unsigned blocks = static_cast<unsigned>((chunks + THREADS - 1) / THREADS);

    if (chunks > UINT32_MAX - THREADS)
        return cudaErrorInvalidValue;
    if (gemm->out_ld == gemm->n && !gemm->bias)
        return GSV_LAUNCH_OVERLAP((bias_act<T, width, true>), blocks, THREADS, 0, stream, *gemm,
                                  a_row, static_cast<uint32_t>(chunks));
    return GSV_LAUNCH_OVERLAP((bias_act<T, width, false>), blocks, THREADS, 0, stream, *gemm, a_row,
                              static_cast<uint32_t>(chunks));
}

template <typename T> cudaError_t launch(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    constexpr int width = gsv_vector_chunk<T>::size;

    if (gemm->n % width == 0 && gemm->out_ld % width == 0 && gsv_aligned_16(gemm->out) &&
        gsv_aligned_16(gemm->residual))
        return launch_width<T, width>(gemm, stream);
    return launch_width<T, 1>(gemm, stream);
}

} /* namespace */

cudaError_t gsv_cuda_bias_act(const struct gsv_gemm *gemm, enum gsv_element element,
                              cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(gemm, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(gemm, stream);
    default:
        return launch<float>(gemm, stream);
    }
}
