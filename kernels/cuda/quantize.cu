/*
 * quantize: rows of float16 to signed bytes, each with its own least value and step.
 *
 *   One warp a row, which it reads twice: for the range, then for the bytes. The second time the
 *   row comes from the first-level cache. Eight elements a lane where rows allow it.
 *
 *   A row that holds a NaN or an infinity gets NaN for its least value and step, so that its
 *   products are NaN.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/int8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/types.cuh"

namespace
{

const int WARPS = 4;
const float LEAST_WIDTH = 1e-30f; /* of a range that is divided into steps */

/* `width` neighbours of a row times their scales; zeros past k. */
template <int width>
__device__ __forceinline__ void load(float (&x)[width], const half *row, const float *scale, int at,
                                     int k)
{
    if (width == 8) {
        const gsv_chunk<half> chunk = *reinterpret_cast<const gsv_chunk<half> *>(row + at);

#pragma unroll
        for (int i = 0; i < width; i++)
            x[i] = gsv_to_float(chunk.v[i]);
    } else {
        x[0] = gsv_to_float(row[at]);
    }
    /* A rounded product: fused into a difference it would give other whole numbers. */
#pragma unroll
    for (int i = 0; i < width; i++)
        x[i] = scale && at + i < k ? __fmul_rn(x[i], scale[at + i]) : x[i];
}

template <int width>
__global__ void __launch_bounds__(WARPS *GSV_WARP)
    quantize(const struct gsv_gemm gemm, const float *input_scale, const struct gsv_int8_rows rows)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const size_t row = static_cast<size_t>(blockIdx.x) * WARPS + threadIdx.x / GSV_WARP;
    float most = -INFINITY;
    float least = INFINITY;
    float x[width];
    bool finite = true;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (row >= static_cast<size_t>(gemm.m))
        return;
    const half *const from = static_cast<const half *>(gemm.in) + row * gemm.in_ld;
    int8_t *const to = rows.values + row * rows.ld;
    for (int at = lane * width; at < gemm.k; at += GSV_WARP * width) {
        load<width>(x, from, input_scale, at, gemm.k);
#pragma unroll
        for (int i = 0; i < width; i++) {
            finite = finite && fabsf(x[i]) < INFINITY; /* false for NaN */
            most = fmaxf(most, x[i]);
            least = fminf(least, x[i]);
        }
    }
    most = gsv_warp_reduce<gsv_max>(most);
    least = -gsv_warp_reduce<gsv_max>(-least);
    finite = __all_sync(GSV_ALL_LANES, finite);
    const float spread = most - least;
    const float inverse = spread >= LEAST_WIDTH ? 255.f / spread : 0.f;
    const float step = spread / 255.f;

    for (int at = lane * width; at < rows.ld; at += GSV_WARP * width) {
        alignas(8) int8_t q[width];

        if (at < gemm.k)
            load<width>(x, from, input_scale, at, gemm.k);
#pragma unroll
        for (int i = 0; i < width; i++)
            q[i] = at + i < gemm.k && finite
                       ? static_cast<int8_t>(__float2int_rn((x[i] - least) * inverse) - 128)
                       : static_cast<int8_t>(0);
        if (width == 8)
            *reinterpret_cast<uint2 *>(to + at) = *reinterpret_cast<const uint2 *>(q);
        else
            to[at] = q[0];
    }
    if (lane == 0) {
        rows.step[row] = finite ? step : NAN;
        rows.least[row] = finite ? fmaf(128.f, step, least) : NAN;
    }
}

} /* namespace */

cudaError_t gsv_cuda_quantize(const struct gsv_gemm *gemm, const struct gsv_int8_weights *weights,
                              const struct gsv_int8_rows *rows, cudaStream_t stream)
{
    const unsigned blocks = static_cast<unsigned>((gemm->m + WARPS - 1) / WARPS);
    const bool wide =
        gemm->k % 8 == 0 && gemm->in_ld % 8 == 0 && reinterpret_cast<uintptr_t>(gemm->in) % 16 == 0;

    if (wide)
        return GSV_LAUNCH_OVERLAP(quantize<8>, blocks, WARPS * GSV_WARP, 0, stream, *gemm,
                                  weights->input_scale, *rows);
    return GSV_LAUNCH_OVERLAP(quantize<1>, blocks, WARPS * GSV_WARP, 0, stream, *gemm,
                              weights->input_scale, *rows);
}
