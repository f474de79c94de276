/*
 * attention_naive: softmax(scale * Q K^T + bias) V for any type, head size and option.
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
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int WARPS = 4;

struct naive_args {
    const void *qkv;
    void *out;
    const int32_t *cu_seqlens;
    const int32_t *key_counts;
    const float *relative_bias;    /* or NULL */
    const void *position_key;      /* or NULL */
    const void *position_query;    /* or NULL */
    const int32_t *position_index; /* not NULL with one of these two */
    int32_t n_sequences;
    int32_t n_rows;
    int32_t bias_span;
    int32_t n_heads;
    int32_t n_kv_heads;
    int32_t head_size;
    int32_t causal;
    int32_t window;
    float scale;
    float softcap;
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

/* Rows of the keys that a query attends to; none if it belongs to no sequence. */
__device__ struct gsv_key_bounds keys_of(const struct naive_args &args, int row)
{
    const int sequence = find_sequence(args.cu_seqlens, args.n_sequences, row);
    const int first = sequence < args.n_sequences ? args.cu_seqlens[sequence] : row;
    const int n_keys = sequence < args.n_sequences ? args.key_counts[sequence] : 0;
    struct gsv_key_bounds keys(args.causal, args.window, row - first, row - first, n_keys);

    keys.begin += first;
    keys.end += first;
    return keys;
}

/* One query of one head; q is scaled, and each lane accesses its own columns of it only. */
template <typename T> struct query {
    const struct naive_args &args;
    const float *q;
    int row;
    int head;

    /* Rows of the position matrices for a key `distance` rows before the query. */
    __device__ const T *position(const void *matrix, int distance) const
    {
        const size_t at = static_cast<size_t>(args.position_index[distance + args.bias_span - 1]);

        return static_cast<const T *>(matrix) + (at * args.n_heads + head) * args.head_size;
    }

    __device__ float score(const T *key, int distance) const
    {
        const T *const more = args.position_key ? position(args.position_key, distance)
                                                : static_cast<const T *>(NULL);
        const T *const other = args.position_query ? position(args.position_query, distance)
                                                   : static_cast<const T *>(NULL);
        float sum = 0.f;

        for (int i = static_cast<int>(threadIdx.x) % GSV_WARP; i < args.head_size; i += GSV_WARP) {
            const float k = gsv_to_float(key[i]);

            sum += q[i] * k;
            if (more)
                sum += q[i] * gsv_to_float(more[i]);
            if (other)
                sum += k * args.scale * gsv_to_float(other[i]);
        }
        sum = gsv_warp_reduce<gsv_sum>(sum);
        if (args.relative_bias)
            sum += args.relative_bias[static_cast<size_t>(head) * (2 * args.bias_span - 1) +
                                      args.bias_span - 1 - distance];
        return args.softcap != 0.f ? args.softcap * tanhf(sum / args.softcap) : sum;
    }
};

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

    const int key_head = args.n_heads + head / (args.n_heads / args.n_kv_heads);
    const size_t width = static_cast<size_t>(args.n_heads) * size;
    const size_t values = static_cast<size_t>(args.n_kv_heads) * size; /* behind the keys */
    const size_t stride = width + 2 * values;
    const T *const qkv = static_cast<const T *>(args.qkv);
    T *const out = static_cast<T *>(args.out) + row * width + static_cast<size_t>(head) * size;
    const struct gsv_key_bounds keys = keys_of(args, row);
    const struct query<T> query = {
        args, q, row, head
    };
    float maximum = -INFINITY;
    float total = 0.f;

    for (int i = lane; i < size; i += GSV_WARP) {
        q[i] = gsv_to_float(qkv[row * stride + static_cast<size_t>(head) * size + i]) * args.scale;
        sums[i] = 0.f;
    }
    for (int key = keys.begin; key < keys.end; key++) {
        const T *const k = qkv + key * stride + static_cast<size_t>(key_head) * size;
        const float score = query.score(k, row - key);
        const float higher = gsv_max::combine(score, maximum);
        const float rescale = expf(maximum - higher);
        const float p = expf(score - higher);

        total = total * rescale + p;
        for (int i = lane; i < size; i += GSV_WARP)
            sums[i] = sums[i] * rescale + p * gsv_to_float(k[values + i]);
        maximum = higher;
    }
    for (int i = lane; i < size; i += GSV_WARP)
        out[i] = gsv_from_float<T>(keys.end > keys.begin ? sums[i] / total : 0.f);
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
                                     op->batch->key_counts,
                                     op->relative_bias,
                                     op->position_key,
                                     op->position_query,
                                     op->position_index,
                                     op->batch->n_sequences,
                                     op->batch->n_rows,
                                     op->bias_span,
                                     op->n_heads,
                                     op->n_kv_heads > 0 ? op->n_kv_heads : op->n_heads,
                                     op->head_size,
                                     op->causal,
                                     op->window,
                                     op->scale,
                                     op->softcap };

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
