/*
 * attention_simt_options: attention without tensor cores with grouped queries, causal mask, window,
 * soft cap and disentangled positions, and with heads of 256.
 *
 *   A block computes 16 query rows of one work item and one head, four rows per warp
 *   (attention_simt.cuh). All sums are float32. A row's bits depend on its own sequence only.
 *
 *   Disentangled positions: 16 queries and 32 keys have 47 distances. The rows of both position
 *   matrices for them pass through shared memory with each tile of keys. Adjacent lanes read
 *   adjacent rows.
 *
 *       grid = (tiles, heads, height / 16)
 *       shared = q[16][size] k[32][size + 1] v[32][size] p[4][4][32]
 *                disentangled: key rows [47][size + 1], query rows [47][size + 1]
 *
 *   Needs:  head size 32, 64, 128, or 256 without disentangled positions; rows 16-byte aligned;
 *           float32, or disentangled positions.
 *   Oracle: kernels/ref/attention.c.
 */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_simt.cuh"

namespace
{

using namespace attention_tiles;

const int HEIGHT = WARPS * TOGETHER;     /* rows of a block */
const int DISTANCES = HEIGHT + KEYS - 1; /* between its rows and a tile of keys */
const int NEAREST = KEYS - 1;            /* slot of the distance between first row and first key */

struct options_args {
    const void *qkv;
    void *out;
    const struct gsv_attention_tile *tiles;
    const float *relative_bias; /* or NULL */
    const void *position_key;   /* or NULL */
    const void *position_query; /* or NULL */
    const int32_t *position_index;
    int32_t bias_span;
    int32_t n_heads;
    int32_t n_kv_heads;
    int32_t causal;
    int32_t window;
    float scale;
    float softcap;
};

__host__ __device__ constexpr int shared_floats(int size, bool disentangled)
{
    return HEIGHT * size + KEYS * (size + 1) + KEYS * size + WARPS * TOGETHER * KEYS +
           (disentangled ? 2 * DISTANCES * (size + 1) : 0);
}

/* Rows of a position matrix for each slot, times `by`; zeros without a matrix. `distance` is that
 * of slot 0. Distances that no pair of tokens has are clamped to the index. */
template <int SIZE, typename T>
__device__ void load_positions(float *to, const struct options_args &args, const T *matrix,
                               int distance, float by)
{
    constexpr int width = gsv_vector_chunk<T>::size;
    const int span = args.bias_span - 1;

    for (int i = static_cast<int>(threadIdx.x); i < DISTANCES * (SIZE / width); i += THREADS) {
        const int slot = i / (SIZE / width);
        const int column = i % (SIZE / width) * width;
        gsv_vector_chunk<T> x = {};

        if (matrix) {
            const int at = max(-span, min(span, distance + slot)) + span;
            const size_t row =
                static_cast<size_t>(args.position_index[at]) * args.n_heads + blockIdx.y;

            x = *reinterpret_cast<const gsv_vector_chunk<T> *>(matrix + row * SIZE + column);
        }
#pragma unroll
        for (int j = 0; j < width; j++)
            to[slot * (SIZE + 1) + column + j] = gsv_to_float(x.v[j]) * by;
    }
}

/* scores[r] += q[r] more[r] + key other[r], where the rows of more and other belong to the distance
 * between row r and this lane's key. */
template <int SIZE>
__device__ void score_positions(const float *q, const float *key, const float *more,
                                const float *other, float (&scores)[TOGETHER])
{
#pragma unroll 4
    for (int d = 0; d < SIZE; d++) {
#pragma unroll
        for (int r = 0; r < TOGETHER; r++)
            scores[r] +=
                q[r * SIZE + d] * more[r * (SIZE + 1) + d] + key[d] * other[r * (SIZE + 1) + d];
    }
}

/* State of the four rows of a warp. */
template <int SIZE> struct rows_state {
    float sums[TOGETHER][SIZE / GSV_WARP];
    float maxima[TOGETHER];
    float totals[TOGETHER];

    /* Replaces row r's previous maximum; returns the weight of this lane's key. A row may have had
     * no key yet: its maximum is -infinity then. */
    __device__ __forceinline__ float step(int r, float score)
    {
        const float higher = gsv_max::combine(gsv_warp_reduce<gsv_max>(score), maxima[r]);
        const float above = higher == -INFINITY ? 0.f : higher;
        const float rescale = expf(maxima[r] - above);
        const float weight = expf(score - above);

        totals[r] = totals[r] * rescale + gsv_warp_reduce<gsv_sum>(weight);
        maxima[r] = higher;
#pragma unroll
        for (int c = 0; c < SIZE / GSV_WARP; c++)
            sums[r][c] *= rescale;
        return weight;
    }
};

/* The scores of a lane's key, as the softmax takes them. `first` is the warp's first query and
 * `key` the lane's key, relative to the sequence. */
__device__ __forceinline__ void finish_scores(float (&scores)[TOGETHER],
                                              const struct options_args &args, int first, int key,
                                              int n_keys)
{
    const int span = args.bias_span - 1;

#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
        const struct gsv_key_bounds own(args.causal, args.window, first + r, first + r, n_keys);
        float x = scores[r];

        if (args.relative_bias && key < own.end)
            x += args.relative_bias[static_cast<size_t>(blockIdx.y) * (2 * span + 1) + span +
                                    max(-span, min(span, key - first - r))];
        if (args.softcap != 0.f)
            x = args.softcap * tanhf(x / args.softcap);
        scores[r] = key >= own.begin && key < own.end ? x : -INFINITY;
    }
}

/* The launch bound keeps ptxas from spilling registers to fit more blocks on some targets. */
template <typename T, int SIZE, bool DISENTANGLED>
__global__ void __launch_bounds__(THREADS, SIZE < 256 ? 4 : 3)
    attention_simt_options(const struct options_args args)
{
    GSV_SHARED(float, q);
    float *const k = q + HEIGHT * SIZE;
    float *const v = k + KEYS * (SIZE + 1);
    float *const more = v + KEYS * SIZE + WARPS * TOGETHER * KEYS;
    float *const other = more + DISTANCES * (SIZE + 1);
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    float *const p = v + KEYS * SIZE + warp * TOGETHER * KEYS;
    const float *const own_q = q + warp * TOGETHER * SIZE;
    rows_state<SIZE> state = {};

    gsv_grid_wait();
    gsv_grid_launch_next();

    const struct gsv_attention_tile tile = args.tiles[blockIdx.x];
    const int row = tile.first_row + static_cast<int>(blockIdx.z) * HEIGHT;
    const int n_rows = min(HEIGHT, tile.first_row + tile.n_rows - row);
    if (n_rows <= 0)
        return;
    const int head = static_cast<int>(blockIdx.y);
    const int key_head = args.n_heads + head / (args.n_heads / args.n_kv_heads);
    const size_t width = static_cast<size_t>(args.n_heads) * SIZE;
    const size_t values = static_cast<size_t>(args.n_kv_heads) * SIZE; /* behind the keys */
    const size_t stride = width + 2 * values;
    const T *const qkv = static_cast<const T *>(args.qkv);
    const T *const keys = qkv + tile.first_key * stride + static_cast<size_t>(key_head) * SIZE;
    const int first = row - tile.first_key; /* the block's first query in its sequence */
    const struct gsv_key_bounds range(args.causal, args.window, first, first + n_rows - 1,
                                      tile.n_keys);

#pragma unroll
    for (int r = 0; r < TOGETHER; r++)
        state.maxima[r] = -INFINITY;
    load_rows<SIZE>(q, SIZE, qkv + row * stride + static_cast<size_t>(head) * SIZE, stride, n_rows,
                    HEIGHT, args.scale);
    for (int at = range.begin / KEYS * KEYS; at < range.end; at += KEYS) {
        const int n = min(KEYS, range.end - at);
        float scores[TOGETHER];

        __syncthreads();
        load_rows<SIZE>(k, SIZE + 1, keys + at * stride, stride, n, KEYS, 1.f);
        load_rows<SIZE>(v, SIZE, keys + values + at * stride, stride, n, KEYS, 1.f);
        if constexpr (DISENTANGLED) {
            const int distance = first - at - NEAREST;

            load_positions<SIZE>(more, args, static_cast<const T *>(args.position_key), distance,
                                 1.f);
            load_positions<SIZE>(other, args, static_cast<const T *>(args.position_query), distance,
                                 args.scale);
        }
        __syncthreads();
        score_key<SIZE>(own_q, k + lane * (SIZE + 1), scores);
        if constexpr (DISENTANGLED) {
            const int slot = (warp * TOGETHER - lane + NEAREST) * (SIZE + 1);

            score_positions<SIZE>(own_q, k + lane * (SIZE + 1), more + slot, other + slot, scores);
        }
        finish_scores(scores, args, first + warp * TOGETHER, at + lane, range.end);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < TOGETHER; r++)
            p[r * KEYS + lane] = state.step(r, scores[r]);
        __syncwarp();
        add_values<SIZE>(p, v, state.sums);
    }
#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
        if (warp * TOGETHER + r >= n_rows)
            continue;
        T *const out = static_cast<T *>(args.out) + (row + warp * TOGETHER + r) * width +
                       static_cast<size_t>(head) * SIZE;
#pragma unroll
        for (int c = 0; c < SIZE / GSV_WARP; c++)
            out[c * GSV_WARP + lane] =
                gsv_from_float<T>(tile.n_keys > 0 ? state.sums[r][c] / state.totals[r] : 0.f);
    }
}

template <typename T, int SIZE, bool DISENTANGLED>
cudaError_t launch_kernel(const struct options_args &args, const struct gsv_tiles *tiles,
                          cudaStream_t stream)
{
    const dim3 grid(tiles->n_tiles, args.n_heads, tiles->height / HEIGHT);

    return GSV_LAUNCH_OVERLAP((attention_simt_options<T, SIZE, DISENTANGLED>), grid, THREADS,
                              sizeof(float) * shared_floats(SIZE, DISENTANGLED), stream, args);
}

template <typename T>
cudaError_t launch_disentangled(const struct gpuserve_op_attention *op,
                                const struct options_args &args, const struct gsv_tiles *tiles,
                                cudaStream_t stream)
{
    switch (op->head_size) {
    case 32:
        return launch_kernel<T, 32, true>(args, tiles, stream);
    case 64:
        return launch_kernel<T, 64, true>(args, tiles, stream);
    default:
        return launch_kernel<T, 128, true>(args, tiles, stream);
    }
}

cudaError_t launch_float(const struct gpuserve_op_attention *op, const struct options_args &args,
                         const struct gsv_tiles *tiles, cudaStream_t stream)
{
    switch (op->head_size) {
    case 32:
        return launch_kernel<float, 32, false>(args, tiles, stream);
    case 64:
        return launch_kernel<float, 64, false>(args, tiles, stream);
    case 128:
        return launch_kernel<float, 128, false>(args, tiles, stream);
    default:
        return launch_kernel<float, 256, false>(args, tiles, stream);
    }
}

bool is_disentangled(const struct gpuserve_op_attention *op)
{
    return op->position_key || op->position_query;
}

template <typename T, int SIZE, bool DISENTANGLED> cudaError_t allow(void)
{
    return GSV_ALLOW_SHARED((attention_simt_options<T, SIZE, DISENTANGLED>),
                            sizeof(float) * shared_floats(SIZE, DISENTANGLED));
}

} /* namespace */

bool gsv_cuda_attention_has_simt_options(const struct gpuserve_op_attention *op,
                                         enum gsv_element element)
{
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(op->qkv) |
                                reinterpret_cast<uintptr_t>(op->out) |
                                reinterpret_cast<uintptr_t>(op->position_key) |
                                reinterpret_cast<uintptr_t>(op->position_query);
    const bool size = op->head_size == 32 || op->head_size == 64 || op->head_size == 128;

    if (addresses % 16 != 0)
        return false;
    return is_disentangled(op) ? size
                               : element == GSV_ELEMENT_F32 && (size || op->head_size == 256);
}

cudaError_t gsv_cuda_attention_simt_options(const struct gpuserve_op_attention *op,
                                            const struct gsv_tiles *tiles, enum gsv_element element,
                                            cudaStream_t stream)
{
    const struct options_args args = { op->qkv,
                                       op->out,
                                       tiles->tiles,
                                       op->relative_bias,
                                       op->position_key,
                                       op->position_query,
                                       op->position_index,
                                       op->bias_span,
                                       op->n_heads,
                                       op->n_kv_heads > 0 ? op->n_kv_heads : op->n_heads,
                                       op->causal,
                                       op->window,
                                       op->scale,
                                       op->softcap };

    if (!is_disentangled(op))
        return launch_float(op, args, tiles, stream);
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch_disentangled<half>(op, args, tiles, stream);
    case GSV_ELEMENT_BF16:
        return launch_disentangled<__nv_bfloat16>(op, args, tiles, stream);
    default:
        return launch_disentangled<float>(op, args, tiles, stream);
    }
}

cudaError_t gsv_cuda_attention_simt_options_prepare(void)
{
    cudaError_t error = allow<float, 256, false>();

    if (error == cudaSuccess)
        error = allow<float, 128, false>();
    if (error == cudaSuccess)
        error = allow<float, 128, true>();
    if (error == cudaSuccess)
        error = allow<half, 128, true>();
    return error == cudaSuccess ? allow<__nv_bfloat16, 128, true>() : error;
}
