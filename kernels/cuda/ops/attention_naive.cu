/*
 * attention_naive: softmax(scale * Q K^T + bias) V for any type and head size.
 *
 *   One warp per query row and head loops over the keys of its sequence; the lanes share the
 *   columns. Online softmax: one pass, and the sum is rescaled when the maximum rises. The fallback
 *   of attention_mma and attention_simt.
 *
 *       grid = (rows / 4, heads), shared = (q, out)[head_size] floats for each warp
 *
 *   Needs:  head size up to GSV_ATTENTION_NAIVE_MAX_HEAD.
 *   Oracle: kernels/ref/attention.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int WARPS = 4;

struct naive_args {
    const void *qkv;
    void *out;
    const int32_t *cu_seqlens;
    const float *relative_bias; /* or NULL */
    int32_t n_sequences;
    int32_t n_rows;
    int32_t bias_span;
    int32_t n_heads;
    int32_t head_size;
    float scale;
};

/* Binary search for the sequence that contains `row`; n_sequences if none does. */
__device__ int find_sequence(const int32_t *cu_seqlens, int n_sequences, int row)
{
    int low = 0;
    int high = n_sequences;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (cu_seqlens[middle + 1] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <typename T> __device__ float dot_with_key(const float *q, const T *key, int size)
{
    float sum = 0.f;

    for (int i = static_cast<int>(threadIdx.x) % GSV_WARP; i < size; i += GSV_WARP)
        sum += q[i] * gsv_to_float(key[i]);
    return gsv_warp_reduce<gsv_sum>(sum);
}

template <typename T>
__global__ void __launch_bounds__(WARPS *GSV_WARP) attention_naive(const struct naive_args args)
{
    GSV_SHARED(float, shared);
    const int size = args.head_size;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int row = static_cast<int>(blockIdx.x) * WARPS + warp;
    const int head = static_cast<int>(blockIdx.y);
    float *const q = shared + 2 * warp * size; /* each lane accesses its own columns only */
    float *const sums = q + size;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (row >= args.n_rows)
        return;

    const size_t width = static_cast<size_t>(args.n_heads) * size;
    const T *const qkv = static_cast<const T *>(args.qkv) + static_cast<size_t>(head) * size;
    T *const out = static_cast<T *>(args.out) + row * width + static_cast<size_t>(head) * size;
    const int sequence = find_sequence(args.cu_seqlens, args.n_sequences, row);
    const int begin = sequence < args.n_sequences ? args.cu_seqlens[sequence] : 0;
    const int end = sequence < args.n_sequences ? args.cu_seqlens[sequence + 1] : 0;
    const float *bias = args.relative_bias;
    float maximum = -INFINITY;
    float total = 0.f;

    if (bias)
        bias += static_cast<size_t>(head) * (2 * args.bias_span - 1) + args.bias_span - 1;
    for (int i = lane; i < size; i += GSV_WARP) {
        q[i] = gsv_to_float(qkv[row * 3 * width + i]) * args.scale;
        sums[i] = 0.f;
    }
    for (int key = begin; key < end; key++) {
        const T *const k = qkv + key * 3 * width + width;
        const float score = dot_with_key(q, k, size) + (bias ? bias[key - row] : 0.f);
        const float higher = gsv_max::combine(score, maximum);
        const float rescale = expf(maximum - higher);
        const float p = expf(score - higher);

        total = total * rescale + p;
        for (int i = lane; i < size; i += GSV_WARP)
            sums[i] = sums[i] * rescale + p * gsv_to_float(k[width + i]);
        maximum = higher;
    }
    for (int i = lane; i < size; i += GSV_WARP)
        out[i] = gsv_from_float<T>(end > begin ? sums[i] / total : 0.f);
}

template <typename T> cudaError_t launch(const struct naive_args &args, cudaStream_t stream)
{
    const dim3 grid((args.n_rows + WARPS - 1) / WARPS, args.n_heads);

    return GSV_LAUNCH_OVERLAP((attention_naive<T>), grid, WARPS * GSV_WARP,
                              sizeof(float) * 2 * WARPS * args.head_size, stream, args);
}

} /* namespace */

cudaError_t gsv_cuda_attention_naive(const struct gpuserve_op_attention *op,
                                     enum gsv_element element, cudaStream_t stream)
{
    const struct naive_args args = { op->qkv,
                                     op->out,
                                     op->batch->cu_seqlens,
                                     op->relative_bias,
                                     op->batch->n_sequences,
                                     op->batch->n_rows,
                                     op->bias_span,
                                     op->n_heads,
                                     op->head_size,
                                     op->scale };

    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(args, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(args, stream);
    default:
        return launch<float>(args, stream);
    }
}

cudaError_t gsv_cuda_attention_naive_prepare(void)
{
    const size_t bytes = sizeof(float) * 2 * WARPS * GSV_ATTENTION_NAIVE_MAX_HEAD;
    cudaError_t error = GSV_ALLOW_SHARED((attention_naive<float>), bytes);

    if (error == cudaSuccess)
        error = GSV_ALLOW_SHARED((attention_naive<half>), bytes);
    if (error == cudaSuccess)
        error = GSV_ALLOW_SHARED((attention_naive<__nv_bfloat16>), bytes);
    return error;
}
