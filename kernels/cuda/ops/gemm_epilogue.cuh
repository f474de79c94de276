/*
 * gemm_epilogue.cuh - the fused epilogue of gemm_mma.cu and gemm_s8.cu: bias, erf GELU and residual
 * on the accumulators, then the store. It saves a further pass over memory.
 */
#ifndef GSV_CUDA_GEMM_EPILOGUE_CUH
#define GSV_CUDA_GEMM_EPILOGUE_CUH

#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/gemm_mma.cuh"
#include "kernels/cuda/ops/math.cuh"

/* Waits for the kernel that writes the rows. The weights are constant, so their copies begin
 * before. */
struct gsv_wait_for_rows {
    __device__ __forceinline__ void operator()() const
    {
        gsv_grid_wait();
        gsv_grid_launch_next();
    }
};

/* Stores two adjacent outputs, of which at least the first is inside the matrix. `pairs`: columns
 * form aligned pairs. */
template <typename T, bool gelu>
__device__ __forceinline__ void gsv_store_pair(const struct gsv_gemm &gemm, int row, int column,
                                               float x, float y, bool pairs)
{
    const size_t at = static_cast<size_t>(row) * gemm.out_ld + column;
    T *const out = static_cast<T *>(gemm.out) + at;
    const T *const residual = static_cast<const T *>(gemm.residual) + at;
    const bool both = column + 1 < gemm.n;

    if (gemm.bias) {
        x += gemm.bias[column];
        y += both ? gemm.bias[column + 1] : 0.f;
    }
    if (gelu) {
        x = gsv_gelu_of<T>(x);
        y = gsv_gelu_of<T>(y);
    }
    if (pairs) {
        if (gemm.residual) {
            const gsv_pair<T> more = *reinterpret_cast<const gsv_pair<T> *>(residual);
            x += gsv_to_float(more.v[0]);
            y += gsv_to_float(more.v[1]);
        }
        *reinterpret_cast<gsv_pair<T> *>(out) = gsv_make_pair(x, y, T());
        return;
    }
    out[0] = gsv_from_float<T>(gemm.residual ? x + gsv_to_float(residual[0]) : x);
    if (both)
        out[1] = gsv_from_float<T>(gemm.residual ? y + gsv_to_float(residual[1]) : y);
}

/* Stores this thread's sums. scale(row, column, sum) converts a sum to float. */
template <typename T, bool gelu, class Math, class Shape, class Scale>
__device__ __forceinline__ void gsv_store_sums(const gsv_mma_sums<Math, Shape> &sums,
                                               const struct gsv_gemm &gemm, bool pairs,
                                               const Scale &scale)
{
#pragma unroll
    for (int i = 0; i < Shape::warp_rows / 16; i++) {
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j++) {
            const int column = gsv_mma_column<Shape>(j);

#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = gsv_mma_row<Shape>(i) + half * 8;

                if (row >= gemm.m || column >= gemm.n)
                    continue;
                const int second = column + 1 < gemm.n ? column + 1 : column;
                gsv_store_pair<T, gelu>(gemm, row, column,
                                        scale(row, column, sums.at[i][j][2 * half]),
                                        scale(row, second, sums.at[i][j][2 * half + 1]), pairs);
            }
        }
    }
}

/* True if columns form pairs that one access moves. */
inline bool gsv_gemm_pairs(const struct gsv_gemm *gemm, size_t element_bytes)
{
    return gemm->n % 2 == 0 && gemm->out_ld % 2 == 0 &&
           reinterpret_cast<uintptr_t>(gemm->out) % (2 * element_bytes) == 0 &&
           reinterpret_cast<uintptr_t>(gemm->residual) % (2 * element_bytes) == 0;
}

#endif
