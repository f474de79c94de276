/*
 * route and add_scaled: a mixture of experts.
 *
 *   route         one warp per row: softmax over the experts; an expert stays if fewer than top_k
 *                 come before it. The row stays in L1.
 *   add_scaled    adds an expert's rows times their weights; 16 bytes per thread if alignment
 *                 permits. A row of weight 0 is not read.
 *
 *   Needs:  any size.
 *   Oracle: kernels/ref/gates.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/ops/rownorm.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int ROUTE_WARPS = 4;
const int THREADS = 256;

/* True if fewer than `top_k` experts come before `expert` by logit, then by index. */
template <typename T>
__device__ __forceinline__ bool is_chosen(const T *logits, int experts, int top_k, int expert)
{
    const float own = gsv_to_float(logits[expert]);
    int before = 0;

    for (int e = 0; e < experts; e++) {
        const float other = gsv_to_float(logits[e]);

        before += other > own || (other == own && e < expert);
    }
    return before < top_k;
}

template <typename T>
__global__ void __launch_bounds__(ROUTE_WARPS *GSV_WARP)
    route(const T *logits, float *weights, int n_rows, int experts, int top_k, int renormalize)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int row =
        static_cast<int>(blockIdx.x) * ROUTE_WARPS + static_cast<int>(threadIdx.x) / GSV_WARP;
    float maximum = gsv_max::identity();
    float sum = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (row >= n_rows)
        return;
    logits += static_cast<size_t>(row) * experts;
    weights += static_cast<size_t>(row) * experts;
    for (int e = lane; e < experts; e += GSV_WARP)
        maximum = gsv_max::combine(maximum, gsv_to_float(logits[e]));
    maximum = gsv_warp_reduce<gsv_max>(maximum);
    for (int e = lane; e < experts; e += GSV_WARP) {
        const float weight = expf(gsv_to_float(logits[e]) - maximum);
        const bool chosen = is_chosen(logits, experts, top_k, e);

        weights[e] = chosen ? weight : 0.f;
        sum += chosen || !renormalize ? weight : 0.f;
    }
    sum = gsv_warp_reduce<gsv_sum>(sum);
    for (int e = lane; e < experts; e += GSV_WARP)
        weights[e] /= sum;
}

struct scaled_args {
    void *out;
    const void *in;
    const float *weights; /* or NULL */
    int32_t weights_ld;
    int32_t rows;
    int32_t cols;
    int32_t first;
    float factor;
};

template <typename T, int width>
__global__ void __launch_bounds__(THREADS) add_scaled(const struct scaled_args args)
{
    const size_t a_row = args.cols / width;
    const size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (i >= args.rows * a_row)
        return;
    float weight = args.factor;
    if (args.weights)
        weight *= args.weights[i / a_row * args.weights_ld];
    T *const out = static_cast<T *>(args.out) + i * width;
    const T *const in = static_cast<const T *>(args.in) + i * width;
    float sum[width] = {};
    float x[width] = {};

    if (weight == 0.f && !args.first)
        return;
    if constexpr (width > 1) {
        if (!args.first)
            gsv_add_chunk(out, 0, sum);
        if (weight != 0.f)
            gsv_add_chunk(in, 0, x);
    } else {
        sum[0] = args.first ? 0.f : gsv_to_float(out[0]);
        x[0] = weight != 0.f ? gsv_to_float(in[0]) : 0.f;
    }
#pragma unroll
    for (int j = 0; j < width; j++)
        sum[j] = fmaf(weight, x[j], sum[j]);
    if constexpr (width > 1)
        gsv_store_chunk(out, 0, sum);
    else
        out[0] = gsv_from_float<T>(sum[0]);
}

template <typename T> cudaError_t launch_route(const struct gpuserve_op_route *op, cudaStream_t s)
{
    return GSV_LAUNCH_OVERLAP((route<T>), (op->rows + ROUTE_WARPS - 1) / ROUTE_WARPS,
                              ROUTE_WARPS * GSV_WARP, 0, s, static_cast<const T *>(op->logits),
                              op->weights, op->rows, op->experts, op->top_k, op->renormalize);
}

template <typename T, int width>
cudaError_t launch_width(const struct scaled_args &args, cudaStream_t stream)
{
    const size_t chunks = static_cast<size_t>(args.rows) * (args.cols / width);
    const unsigned blocks = static_cast<unsigned>((chunks + THREADS - 1) / THREADS);

    return GSV_LAUNCH_OVERLAP((add_scaled<T, width>), blocks, THREADS, 0, stream, args);
}

template <typename T>
cudaError_t launch_scaled(const struct gpuserve_op_add_scaled *op, cudaStream_t stream)
{
    constexpr int width = gsv_vector_chunk<T>::size;
    const struct scaled_args args = { op->out,  op->in,   op->weights, op->weights_ld,
                                      op->rows, op->cols, op->first,   op->factor };

    if (op->cols % width == 0 && gsv_aligned_16(op->in) && gsv_aligned_16(op->out))
        return launch_width<T, width>(args, stream);
    return launch_width<T, 1>(args, stream);
}

} /* namespace */

cudaError_t gsv_cuda_route(const struct gpuserve_op_route *op, enum gsv_element element,
                           cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch_route<half>(op, stream);
    case GSV_ELEMENT_BF16:
        return launch_route<__nv_bfloat16>(op, stream);
    default:
        return launch_route<float>(op, stream);
    }
}

cudaError_t gsv_cuda_add_scaled(const struct gpuserve_op_add_scaled *op, enum gsv_element element,
                                cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch_scaled<half>(op, stream);
    case GSV_ELEMENT_BF16:
        return launch_scaled<__nv_bfloat16>(op, stream);
    default:
        return launch_scaled<float>(op, stream);
    }
}
