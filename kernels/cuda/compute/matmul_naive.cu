/*
 * matmul_naive: C = alpha * op(A) op(B) + beta * C, one thread per output.
 *
 *   Each thread loops over k and reads both operands from memory; data is reused only as far as the
 *   caches hold it. The baseline for the other variants.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/matmul.c.
 */
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/compute/matmul.cuh"

namespace
{

const int SIDE = 16;

__global__ void __launch_bounds__(SIDE *SIDE) matmul_naive(const struct gsv_matmul of)
{
    const unsigned across = static_cast<unsigned>((of.n + SIDE - 1) / SIDE);
    const int row =
        static_cast<int>(blockIdx.x / across) * SIDE + static_cast<int>(threadIdx.x) / SIDE;
    const int column =
        static_cast<int>(blockIdx.x % across) * SIDE + static_cast<int>(threadIdx.x) % SIDE;
    const int64_t a_step = of.transpose_a ? of.a_stride : 1;
    const int64_t b_step = of.transpose_b ? 1 : of.b_stride;
    float sum = 0.f;

    if (row >= of.m || column >= of.n)
        return;
    const float *a = of.a + (of.transpose_a ? row : row * of.a_stride);
    const float *b = of.b + (of.transpose_b ? column * of.b_stride : column);
    for (int i = 0; i < of.k; i++) {
        sum = fmaf(*a, *b, sum);
        a += a_step;
        b += b_step;
    }
    float *const c = of.c + row * of.c_stride + column;
    *c = of.beta != 0.f ? of.alpha * sum + of.beta * *c : of.alpha * sum;
}

} /* namespace */

cudaError_t gsv_cuda_matmul_naive(const struct gsv_matmul *matmul, cudaStream_t stream)
{
    const unsigned blocks = static_cast<unsigned>((matmul->m + SIDE - 1) / SIDE) *
                            static_cast<unsigned>((matmul->n + SIDE - 1) / SIDE);

    return GSV_LAUNCH(matmul_naive, blocks, SIDE * SIDE, 0, stream, *matmul);
}
