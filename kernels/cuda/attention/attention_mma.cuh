/*
 * attention_mma.cuh - the body of attention on tensor cores: attention_mma.cu is the plain form,
 * attention_mma_options.cu has the options.
 *
 *   One block computes `height` query rows of one sequence and one head, 16 rows per warp. Keys and
 *   values stream through shared memory in tiles of 64 rows, double-buffered with cp.async. Q stays
 *   in registers, and so do the scores: their accumulator layout, packed to 16 bits, is the A
 *   operand of the product with V. Softmax is online, in float32, base 2.
 *
 *       grid = (work items of the batch, heads)
 *       shared = K[2][64][row] V[2][64][row], row = head_size + 8 elements: no bank conflicts
 *                in ldmatrix; Q passes through K[1] before the loop uses it.
 *                If one tile of keys suffices for all texts: K[64][row] V[64][row]
 *                Q[height][row], so that an SM holds about twice as many blocks
 *
 *   A row's bits depend on its own sequence only: the key tiles are the same for every height, and
 *   keys that a query does not attend to add exact zeros. Keys past the end are zero-filled, not
 *   just masked, since 0 x NaN is NaN. Tiles without a key for any row of the block are skipped,
 * and so are parts of a tile without a key for any row of a warp.
 */
#ifndef GSV_CUDA_ATTENTION_MMA_CUH
#define GSV_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/ops/quantize.cuh"
#include "kernels/cuda/runtime/backend.cuh"

#include <type_traits>

namespace attention
{

const int KEYS = GSV_ATTENTION_KEYS; /* per tile; larger tiles waste work on short texts */
/* Minimum blocks per SM for __launch_bounds__; 0: chosen by ptxas. Without it ptxas spills
 * registers to fit more blocks, with heads of 128, where shared memory has no capacity for more,
 * and on sm_100, sm_103 and sm_110. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
#define MIN_BLOCKS(head_size, warps) (8 / (warps))
#else
#define MIN_BLOCKS(head_size, warps) ((head_size) == 128 ? 8 / (warps) : 0)
#endif
const float LOG2E = 1.4426950408889634f;

struct attention_args {
    const void *qkv;
    void *out;
    const struct gsv_attention_tile *tiles;
    const float *relative_bias; /* or NULL */
    int32_t bias_span;
    int32_t n_heads;
    float scale;        /* of the scores, times log2(e) */
    int32_t tiles_deep; /* K and V tiles in shared memory: 2 or 1 */
    struct gsv_int8_target next;
    /* Read by the kernels with options only. */
    int32_t n_kv_heads;
    int32_t causal;
    int32_t window;
    float softcap;      /* times log2(e) */
    float softcap_rate; /* 2 log2(e) / softcap; 0: no soft cap */
};

inline struct attention_args args_of(const struct gpuserve_op_attention *op,
                                     const struct gsv_tiles *tiles,
                                     const struct gsv_int8_target *next)
{
    return { op->qkv,
             op->out,
             tiles->tiles,
             op->relative_bias,
             op->bias_span,
             op->n_heads,
             op->scale * LOG2E,
             tiles->short_texts ? 1 : 2,
             *next,
             op->n_kv_heads > 0 ? op->n_kv_heads : op->n_heads,
             op->causal,
             op->window,
             op->softcap * LOG2E,
             op->softcap != 0.f ? 2.f / op->softcap : 0.f };
}

/* Calls launch() with the warps of a block as a constant. */
template <typename Launch>
cudaError_t launch_height(const struct gsv_tiles *tiles, const Launch &launch)
{
    switch (tiles->height) {
    case 16:
        return launch(std::integral_constant<int, 1>());
    case 32:
        return launch(std::integral_constant<int, 2>());
    default:
        return launch(std::integral_constant<int, 4>());
    }
}

__device__ __forceinline__ struct gsv_key_bounds range_of(const struct attention_args &args,
                                                          int first, int last, int n)
{
    return gsv_key_bounds(args.causal, args.window, first, last, n);
}

template <int head_size> struct layout {
    static constexpr int row = head_size + 8;    /* elements */
    static constexpr int chunks = head_size / 8; /* 16-byte chunks in a row */
    static constexpr int tile = KEYS * row;      /* elements */
    static constexpr size_t max_bytes = 4 * tile * 2;

    static size_t bytes(const struct gsv_tiles *tiles)
    {
        return tiles->short_texts ? (2 * tile + tiles->height * row) * 2 : max_bytes;
    }
};

/* Copies rows of head_size elements to shared memory, one group after the other. A thread copies
 * the same chunk of each of its rows, so that a copy only advances a pointer. */
template <typename T, int head_size, int threads> struct row_loader {
    static constexpr int chunks = layout<head_size>::chunks;
    static constexpr int step = threads / chunks; /* rows that all threads copy at once */

    const T *from;
    size_t stride; /* elements from one of this thread's rows to the next */
    int row;
    int to; /* elements from the tile's begin */

    __device__ __forceinline__ row_loader(const T *rows, size_t row_stride)
    {
        const int chunk = static_cast<int>(threadIdx.x) % chunks * 8;

        row = static_cast<int>(threadIdx.x) / chunks;
        from = rows + row * row_stride + chunk;
        stride = step * row_stride;
        to = row * layout<head_size>::row + chunk;
    }

    /* Starts the copy of the next `rows` rows; those from `valid` on become zeros, and are not
     * read. */
    template <int rows> __device__ __forceinline__ void load(T *tile, int valid)
    {
        static_assert(rows % step == 0, "all threads copy as many rows");
        /* ptxas would keep the addresses of many copies in registers, and spill others. A host
         * compiler ignores the pragma. */
        [[maybe_unused]] constexpr int unrolled = rows / step > 16 ? 8 : rows / step;

#pragma unroll unrolled
        for (int i = 0; i < rows / step; i++) {
            gsv_cp_async_16(tile + to + i * step * layout<head_size>::row, from,
                            row + i * step < valid);
            from += stride;
        }
    }
};

/* Per-lane state of the warp's 16 rows: rows g and g + 8, as in the accumulators. */
template <int head_size> struct row_state {
    float out[head_size / 8][4];
    float maximum[2];
    float sum[2]; /* over this lane's columns; reduced over the lanes at the end */
};

/* scores[j] = Q K^T for keys 8 j .. 8 j + 7 of the tile. */
template <typename T, int head_size>
__device__ __forceinline__ void multiply_keys(float (&scores)[KEYS / 8][4],
                                              const uint32_t (&q)[head_size / 16][4], const T *keys,
                                              int n_keys, int lane)
{
    /* Four 8x8 matrices: keys j..j+7 and j+8..j+15, each with the lower and upper 8 columns. */
    const T *from = keys + (lane / 16 * 8 + lane % 8) * layout<head_size>::row + lane / 8 % 2 * 8;

#pragma unroll
    for (int j = 0; j < KEYS / 8; j += 2) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[j][i] = scores[j + 1][i] = 0.f;
        if (j * 8 >= n_keys)
            continue;
#pragma unroll
        for (int k = 0; k < head_size / 16; k++) {
            uint32_t b[4];

            gsv_ldmatrix_x4(b, from + j * 8 * layout<head_size>::row + k * 16);
            const uint32_t low[2] = { b[0], b[1] };
            const uint32_t high[2] = { b[2], b[3] };
            gsv_mma_m16n8k16(scores[j], q[k], low, T());
            gsv_mma_m16n8k16(scores[j + 1], q[k], high, T());
        }
    }
}

/* Scales, adds the bias, and masks the keys past the end. `row` is the lane's first query and `key`
 * the tile's first key, both relative to the sequence. */
__device__ __forceinline__ void mask_scores(float (&scores)[KEYS / 8][4],
                                            const struct attention_args &args, int row, int key,
                                            int n_keys, int lane)
{
    const float *bias = args.relative_bias;

    if (bias)
        bias += static_cast<size_t>(blockIdx.y) * (2 * args.bias_span - 1) + args.bias_span - 1;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = j * 8 + lane % 4 * 2 + i % 2;
            const int query = row + i / 2 * 8;
            float x = scores[j][i] * args.scale;

            if (bias && column < n_keys) {
                /* Clamps rows past the sequence's end to the table. */
                const int span = args.bias_span - 1;
                x += bias[max(-span, min(span, key + column - query))] * LOG2E;
            }
            scores[j][i] = column < n_keys ? x : -INFINITY;
        }
    }
}

/* softcap * tanh(x / softcap). tanhf() would take more registers than the kernels have; here the
 * error is 1e-7 of the cap, for small x too. */
__device__ __forceinline__ float soft_cap(const struct attention_args &args, float x)
{
    return args.softcap - __fdividef(2.f * args.softcap, gsv_exp2(x * args.softcap_rate) + 1.f);
}

/* The same with the options. `range` is that of the warp's rows. */
template <int n>
__device__ __forceinline__ void
mask_with_options(float (&scores)[n][4], const struct attention_args &args, int row, int key,
                  const struct gsv_key_bounds &range, int lane)
{
    const int span = args.bias_span - 1;
    const float *bias = args.relative_bias;

    if (bias)
        bias += static_cast<size_t>(blockIdx.y) * (2 * span + 1) + span;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = row + half * 8;
        const struct gsv_key_bounds own = range_of(args, query, query, range.end);

#pragma unroll
        for (int j = 0; j < n; j++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                const int at = key + j * 8 + lane % 4 * 2 + i % 2;
                float x = scores[j][i] * args.scale;

                if (bias && at < own.end)
                    x += bias[max(-span, min(span, at - query))] * LOG2E;
                if (args.softcap_rate != 0.f)
                    x = soft_cap(args, x);
                scores[j][i] = at >= own.begin && at < own.end ? x : -INFINITY;
            }
        }
    }
}

/* Replaces scores by exp2(scores - maximum), and rescales the sums of the previous maximum.
 * `may_be_empty`: a row may have had no key yet, so its maximum is -infinity and its sums are 0. */
template <bool may_be_empty, int head_size, int n>
__device__ __forceinline__ void softmax_step(row_state<head_size> &state, float (&scores)[n][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float maximum = state.maximum[half];
        float sum = 0.f;

#pragma unroll
        for (int j = 0; j < n; j++)
            maximum = fmaxf(maximum, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
        /* Reduces over the four lanes of a row; a tile without a mask has at least one key, so this
         * is not -infinity. */
        maximum = fmaxf(maximum, __shfl_xor_sync(GSV_ALL_LANES, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(GSV_ALL_LANES, maximum, 2));
        const float above = may_be_empty && maximum == -INFINITY ? 0.f : maximum;
        const float rescale = gsv_exp2(state.maximum[half] - above);
        state.maximum[half] = maximum;
#pragma unroll
        for (int j = 0; j < n; j++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[j][i] = gsv_exp2(scores[j][i] - above);
                sum += scores[j][i];
            }
        }
        state.sum[half] = state.sum[half] * rescale + sum;
#pragma unroll
        for (int j = 0; j < head_size / 8; j++) {
            state.out[j][2 * half] *= rescale;
            state.out[j][2 * half + 1] *= rescale;
        }
    }
}

/* out += P V. */
template <typename T, int head_size, int n>
__device__ __forceinline__ void multiply_values(row_state<head_size> &state, const float (&p)[n][4],
                                                const T *values, int n_keys, int lane)
{
    /* Four transposed 8x8 matrices: keys k..k+7, k+8..k+15, each of columns j..j+7, j+8..j+15. */
    const T *from = values + (lane % 16) * layout<head_size>::row + lane / 16 * 8;

#pragma unroll
    for (int k = 0; k < n / 2; k++) {
        if (k * 16 >= n_keys)
            continue;
        const uint32_t a[4] = { gsv_pair_bits<T>(p[2 * k][0], p[2 * k][1]),
                                gsv_pair_bits<T>(p[2 * k][2], p[2 * k][3]),
                                gsv_pair_bits<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                                gsv_pair_bits<T>(p[2 * k + 1][2], p[2 * k + 1][3]) };
#pragma unroll
        for (int j = 0; j < head_size / 8; j += 2) {
            uint32_t b[4];

            gsv_ldmatrix_x4_trans(b, from + k * 16 * layout<head_size>::row + j * 8);
            const uint32_t low[2] = { b[0], b[1] };
            const uint32_t high[2] = { b[2], b[3] };
            gsv_mma_m16n8k16(state.out[j], a, low, T());
            gsv_mma_m16n8k16(state.out[j + 1], a, high, T());
        }
    }
}

/* Divides by the sum and writes the warp's 16 rows to shared memory, for 16-byte stores later. */
template <typename T, int head_size>
__device__ __forceinline__ void finish_rows(const row_state<head_size> &state, T *rows, int lane)
{
    float inverse[2];

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = state.sum[half];

        sum += __shfl_xor_sync(GSV_ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(GSV_ALL_LANES, sum, 2);
        inverse[half] = 1.f / sum;
    }
#pragma unroll
    for (int j = 0; j < head_size / 8; j++) {
        T *to = rows + lane / 4 * layout<head_size>::row + j * 8 + lane % 4 * 2;

        *reinterpret_cast<gsv_pair<T> *>(to) =
            gsv_make_pair(state.out[j][0] * inverse[0], state.out[j][1] * inverse[0], T());
        *reinterpret_cast<gsv_pair<T> *>(to + 8 * layout<head_size>::row) =
            gsv_make_pair(state.out[j][2] * inverse[1], state.out[j][3] * inverse[1], T());
    }
}

/* Stores the first `n` of the block's rows, or zeros if `rows` is NULL. */
template <typename T, int head_size, int threads>
__device__ __forceinline__ void store_rows(T *to, size_t stride, const T *rows, int n)
{
    constexpr int chunks = layout<head_size>::chunks;

    for (int i = static_cast<int>(threadIdx.x); i < n * chunks; i += threads) {
        uint4 chunk = make_uint4(0, 0, 0, 0);

        if (rows)
            chunk = *reinterpret_cast<const uint4 *>(rows + i / chunks * layout<head_size>::row +
                                                     i % chunks * 8);
        *reinterpret_cast<uint4 *>(to + i / chunks * stride + i % chunks * 8) = chunk;
    }
}

/* Addresses of this block's head. */
template <typename T> struct head_rows {
    const T *queries;
    const T *keys;
    const T *values;
    size_t stride;

    template <bool options, int head_size>
    __device__ __forceinline__ void find(const struct attention_args &args, int first_key)
    {
        const int head = static_cast<int>(blockIdx.y);
        const size_t out_stride = static_cast<size_t>(args.n_heads) * head_size;

        queries = static_cast<const T *>(args.qkv) + head * head_size;
        if (options) {
            const int key_head = args.n_heads + head / (args.n_heads / args.n_kv_heads);

            stride = out_stride + 2 * static_cast<size_t>(args.n_kv_heads) * head_size;
            keys = static_cast<const T *>(args.qkv) + key_head * head_size + first_key * stride;
            values = keys + static_cast<size_t>(args.n_kv_heads) * head_size;
        } else {
            stride = 3 * out_stride;
            keys = queries + out_stride + first_key * stride;
            values = keys + out_stride;
        }
    }
};

/* Adds a tile of keys to the warp's rows. `row` is the warp's first query and `key` the tile's
 * first key, relative to the sequence. */
template <bool options, typename T, int head_size>
__device__ __forceinline__ void
add_tile(row_state<head_size> &state, const uint32_t (&q)[head_size / 16][4], const T *keys,
         const T *values, const struct attention_args &args, const struct gsv_attention_tile &tile,
         int row, int key, int lane)
{
    float scores[KEYS / 8][4];

    if constexpr (options) {
        const int last = tile.first_row - tile.first_key + tile.n_rows - 1;
        const struct gsv_key_bounds range = range_of(args, row, min(row + 15, last), tile.n_keys);
        const int n_keys = min(KEYS, range.end - key);

        if (n_keys <= 0 || key + KEYS <= range.begin)
            return;
        multiply_keys<T, head_size>(scores, q, keys, n_keys, lane);
        mask_with_options(scores, args, row + lane / 4, key, range, lane);
        softmax_step<true>(state, scores);
        multiply_values<T, head_size>(state, scores, values, n_keys, lane);
    } else {
        const int n_keys = min(KEYS, tile.n_keys - key);

        multiply_keys<T, head_size>(scores, q, keys, n_keys, lane);
        mask_scores(scores, args, row + lane / 4, key, n_keys, lane);
        softmax_step<false>(state, scores);
        multiply_values<T, head_size>(state, scores, values, n_keys, lane);
    }
}

/* Computes the rows of one work item for this block's head. */
template <bool options, typename T, int head_size, int warps>
__device__ __forceinline__ void attend(const struct attention_args &args,
                                       const struct gsv_attention_tile &tile, T *shared, T *out,
                                       size_t out_stride)
{
    constexpr int threads = warps * GSV_WARP;
    constexpr int tile_size = layout<head_size>::tile;
    T *const keys = shared;
    T *const values = shared + args.tiles_deep * tile_size;
    T *const queries = args.tiles_deep == 2 ? keys + tile_size : values + tile_size;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int first_row = tile.first_row - tile.first_key;
    int begin = 0;
    int end = tile.n_keys;
    head_rows<T> from;

    from.template find<options, head_size>(args, tile.first_key);
    if constexpr (options) {
        const struct gsv_key_bounds range =
            range_of(args, first_row, first_row + tile.n_rows - 1, tile.n_keys);

        begin = range.begin / KEYS;
        end = range.end;
    }
    const int n_tiles = (end + KEYS - 1) / KEYS;

    row_loader<T, head_size, threads> query_rows(from.queries + tile.first_row * from.stride,
                                                 from.stride);
    row_loader<T, head_size, threads> key_rows(from.keys + begin * KEYS * from.stride, from.stride);
    row_loader<T, head_size, threads> value_rows(from.values + begin * KEYS * from.stride,
                                                 from.stride);

    query_rows.template load<warps * 16>(queries, tile.n_rows);
    gsv_cp_async_commit();
    key_rows.template load<KEYS>(keys, end - begin * KEYS);
    value_rows.template load<KEYS>(values, end - begin * KEYS);
    gsv_cp_async_commit();

    uint32_t fragments[head_size / 16][4];
    gsv_cp_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < head_size / 16; i++)
        gsv_ldmatrix_x4(fragments[i], queries + (warp * 16 + lane % 16) * layout<head_size>::row +
                                          i * 16 + lane / 16 * 8);
    __syncthreads(); /* Q is in registers: K[1] is free if it held Q */

    row_state<head_size> state = {};
    state.maximum[0] = state.maximum[1] = -INFINITY;
    int stage = 0; /* elements to the tiles that are computed */
#pragma unroll 1
    for (int t = begin; t < n_tiles; t++) {
        const int next = tile_size - stage;

        if (t + 1 < n_tiles) {
            key_rows.template load<KEYS>(keys + next, end - (t + 1) * KEYS);
            value_rows.template load<KEYS>(values + next, end - (t + 1) * KEYS);
        }
        gsv_cp_async_commit();
        gsv_cp_async_wait<1>();
        __syncthreads();
        if (warp * 16 < tile.n_rows)
            add_tile<options>(state, fragments, keys + stage, values + stage, args, tile,
                              first_row + warp * 16, t * KEYS, lane);
        __syncthreads(); /* the next iteration overwrites this stage */
        stage = next;
    }

    /* The K tiles are free now, and a block has at most as many rows as a tile has keys. */
    if (warp * 16 < tile.n_rows)
        finish_rows<T, head_size>(state, keys + warp * 16 * layout<head_size>::row, lane);
    __syncthreads();
    store_rows<T, head_size, threads>(out, out_stride, keys, tile.n_rows);
}

/* Work of one block. run(tile, out, out_stride) computes the rows of a work item that has keys. The
 * work list is read before the wait: it is complete before the first kernel of a batch starts. */
template <typename T, int head_size, int warps, typename Run>
__device__ __forceinline__ void run_block(const struct attention_args &args, T *shared,
                                          const Run &run)
{
    const struct gsv_attention_tile tile = args.tiles[blockIdx.x];
    const size_t out_stride = static_cast<size_t>(args.n_heads) * head_size;
    T *const out =
        static_cast<T *>(args.out) + tile.first_row * out_stride + blockIdx.y * head_size;

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (tile.n_keys == 0)
        store_rows<T, head_size, warps * GSV_WARP>(out, out_stride, NULL, tile.n_rows);
    else
        run(tile, out, out_stride);
    /* Done by the last block of all heads: a row's range needs all heads. */
    if (std::is_same<T, half>::value && args.next.rows.values)
        gsv_quantize_stored<true>(args.next, static_cast<const T *>(args.out), out_stride,
                                  tile.first_row, tile.first_row + tile.n_rows,
                                  args.next.arrived + blockIdx.x, gridDim.y,
                                  reinterpret_cast<unsigned *>(shared));
}

} /* namespace attention */

#endif
