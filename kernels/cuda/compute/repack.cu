/*
 * repack: converts a float32 matrix to rows of another element type, k contiguous and zero-padded.
 *
 *   Prepares an operand for tensor cores, independent of the caller's layout: rounded once,
 *   transposed through shared memory if needed, each row 16-byte aligned. A block moves 32 x 32
 *   elements; reads and writes are both coalesced.
 *
 *       shared = float[32][33]
 *
 *   Needs:  nothing.
 */
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/compute/matmul.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int SIDE = 32;
const int LINES = 8; /* rows of the tile per iteration */

template <typename T> __global__ void __launch_bounds__(SIDE *LINES) repack(struct gsv_repack of)
{
    GSV_SHARED(float, tile); /* [SIDE][SIDE + 1]: no bank conflicts in either direction */
    const unsigned across = static_cast<unsigned>((of.ld + SIDE - 1) / SIDE);
    const int first_row = static_cast<int>(blockIdx.x / across) * SIDE;
    const int first_k = static_cast<int>(blockIdx.x % across) * SIDE;
    const int x = static_cast<int>(threadIdx.x) % SIDE;

    for (int y = static_cast<int>(threadIdx.x) / SIDE; y < SIDE; y += LINES) {
        const int row = first_row + (of.turned ? x : y);
        const int k = first_k + (of.turned ? y : x);
        const int64_t at = of.turned ? k * of.stride + row : row * of.stride + k;

        tile[(row - first_row) * (SIDE + 1) + k - first_k] =
            row < of.rows && k < of.k ? of.from[at] : 0.f;
    }
    __syncthreads();
    for (int y = static_cast<int>(threadIdx.x) / SIDE; y < SIDE; y += LINES) {
        const int row = first_row + y;
        const int k = first_k + x;

        if (row < of.rows && k < of.ld)
            static_cast<T *>(of.to)[static_cast<int64_t>(row) * of.ld + k] =
                gsv_from_float<T>(tile[y * (SIDE + 1) + x]);
    }
}

} /* namespace */

cudaError_t gsv_cuda_repack(const struct gsv_repack *of, enum gsv_element element,
                            cudaStream_t stream)
{
    const unsigned blocks = static_cast<unsigned>((of->rows + SIDE - 1) / SIDE) *
                            static_cast<unsigned>((of->ld + SIDE - 1) / SIDE);
    const size_t shared_bytes = sizeof(float) * SIDE * (SIDE + 1);

    switch (element) {
    case GSV_ELEMENT_F16:
        return GSV_LAUNCH(repack<half>, blocks, SIDE * LINES, shared_bytes, stream, *of);
    case GSV_ELEMENT_BF16:
        return GSV_LAUNCH(repack<__nv_bfloat16>, blocks, SIDE * LINES, shared_bytes, stream, *of);
    default:
        return GSV_LAUNCH(repack<float>, blocks, SIDE * LINES, shared_bytes, stream, *of);
    }
}
