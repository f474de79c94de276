/*
 * attention_mma_options: attention on tensor cores with grouped queries, causal mask, window and
 * soft cap, and with heads of 256.
 *
 *   attention_mma.cuh has the body. Heads of 256 leave no registers for Q and no shared memory for
 *   two tiles of keys and values: Q stays in shared memory, tiles have 32 keys, the values of a
 *   tile arrive during the product with its keys, and the next keys during that with its values.
 *
 *       shared of heads of 256 = K[32][264] V[32][264] Q[height][264]
 *
 *   Needs:  16-bit elements; head size 32, 64, 128 or 256; rows 16-byte aligned; no disentangled
 *           positions.
 *   Oracle: kernels/ref/attention.c.
 */
#include "kernels/cuda/attention/attention_mma.cuh"

namespace
{

using namespace attention;

template <typename T, int head_size, int warps>
__global__ void __launch_bounds__(warps *GSV_WARP, 8 / warps)
    attention_mma_options(const struct attention_args args)
{
    GSV_SHARED(T, shared);

    run_block<T, head_size, warps>(
        args, shared, [&](const struct gsv_attention_tile &tile, T *out, size_t out_stride) {
            attend<true, T, head_size, warps>(args, tile, shared, out, out_stride);
        });
}

/* ---------------------------------------------------------------------------- heads of 256 */

const int WIDE = 256;
const int WIDE_KEYS = 32; /* per tile */

size_t wide_bytes(const struct gsv_tiles *tiles)
{
    return sizeof(half) * static_cast<size_t>(layout<WIDE>::row) * (2 * WIDE_KEYS + tiles->height);
}

/* scores[j] = Q K^T as multiply_keys(), with the warp's rows of Q in shared memory. */
template <typename T>
__device__ __forceinline__ void multiply_wide_keys(float (&scores)[WIDE_KEYS / 8][4],
                                                   const T *queries, const T *keys, int lane)
{
    const T *q = queries + (lane % 16) * layout<WIDE>::row + lane / 16 * 8;
    const T *from = keys + (lane / 16 * 8 + lane % 8) * layout<WIDE>::row + lane / 8 % 2 * 8;

#pragma unroll
    for (int j = 0; j < WIDE_KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[j][i] = 0.f;
    }
#pragma unroll 4
    for (int k = 0; k < WIDE / 16; k++) {
        uint32_t a[4];

        gsv_ldmatrix_x4(a, q + k * 16);
#pragma unroll
        for (int j = 0; j < WIDE_KEYS / 8; j += 2) {
            uint32_t b[4];

            gsv_ldmatrix_x4(b, from + j * 8 * layout<WIDE>::row + k * 16);
            const uint32_t low[2] = { b[0], b[1] };
            const uint32_t high[2] = { b[2], b[3] };
            gsv_mma_m16n8k16(scores[j], a, low, T());
            gsv_mma_m16n8k16(scores[j + 1], a, high, T());
        }
    }
}

/* Computes the rows of one work item for this block's head. */
template <typename T, int warps>
__device__ __forceinline__ void attend_wide(const struct attention_args &args,
                                            const struct gsv_attention_tile &tile, T *shared,
                                            T *out, size_t out_stride)
{
    constexpr int threads = warps * GSV_WARP;
    constexpr int row_size = layout<WIDE>::row;
    T *const keys = shared;
    T *const values = keys + WIDE_KEYS * row_size;
    T *const queries = values + WIDE_KEYS * row_size;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int first = tile.first_row - tile.first_key;
    const int last = first + tile.n_rows - 1;
    const int row = first + warp * 16; /* the warp's first query */
    const struct gsv_key_bounds all = range_of(args, first, last, tile.n_keys);
    const struct gsv_key_bounds own = range_of(args, row, min(row + 15, last), tile.n_keys);
    row_state<WIDE> state = {};
    head_rows<T> from;

    from.template find<true, WIDE>(args, tile.first_key);
    state.maximum[0] = state.maximum[1] = -INFINITY;
    int key = all.begin / WIDE_KEYS * WIDE_KEYS;
    row_loader<T, WIDE, threads> query_rows(from.queries + tile.first_row * from.stride,
                                            from.stride);
    row_loader<T, WIDE, threads> key_rows(from.keys + key * from.stride, from.stride);
    row_loader<T, WIDE, threads> value_rows(from.values + key * from.stride, from.stride);

    query_rows.template load<warps * 16>(queries, tile.n_rows);
    key_rows.template load<WIDE_KEYS>(keys, all.end - key);
    gsv_cp_async_commit();
    for (; key < all.end; key += WIDE_KEYS) {
        const bool works = warp * 16 < tile.n_rows && key < own.end && key + WIDE_KEYS > own.begin;
        float scores[WIDE_KEYS / 8][4];

        value_rows.template load<WIDE_KEYS>(values, all.end - key);
        gsv_cp_async_commit();
        gsv_cp_async_wait<1>();
        __syncthreads(); /* the keys are there */
        if (works) {
            multiply_wide_keys(scores, queries + warp * 16 * row_size, keys, lane);
            mask_with_options(scores, args, row + lane / 4, key, own, lane);
            softmax_step<true>(state, scores);
        }
        __syncthreads(); /* the keys have been read */
        if (key + WIDE_KEYS < all.end)
            key_rows.template load<WIDE_KEYS>(keys, all.end - key - WIDE_KEYS);
        gsv_cp_async_commit();
        gsv_cp_async_wait<1>();
        __syncthreads(); /* the values are there */
        if (works)
            multiply_values<T, WIDE>(state, scores, values, own.end - key, lane);
        __syncthreads(); /* the values have been read */
    }
    if (warp * 16 < tile.n_rows)
        finish_rows<T, WIDE>(state, queries + warp * 16 * row_size, lane);
    __syncthreads();
    store_rows<T, WIDE, threads>(out, out_stride, queries, tile.n_rows);
}

template <typename T, int warps>
__global__ void __launch_bounds__(warps *GSV_WARP, 8 / warps)
    attention_mma_wide(const struct attention_args args)
{
    GSV_SHARED(T, shared);

    run_block<T, WIDE, warps>(
        args, shared, [&](const struct gsv_attention_tile &tile, T *out, size_t out_stride) {
            attend_wide<T, warps>(args, tile, shared, out, out_stride);
        });
}

/* -------------------------------------------------------------------------------- launches */

template <typename T, int head_size>
cudaError_t launch_size(const struct attention_args &args, const struct gsv_tiles *tiles,
                        cudaStream_t stream)
{
    const dim3 grid(tiles->n_tiles, args.n_heads);

    return launch_height(tiles, [&](auto warps) {
        return GSV_LAUNCH_OVERLAP((attention_mma_options<T, head_size, decltype(warps)::value>),
                                  grid, warps * GSV_WARP, layout<head_size>::bytes(tiles), stream,
                                  args);
    });
}

template <typename T>
cudaError_t launch_wide(const struct attention_args &args, const struct gsv_tiles *tiles,
                        cudaStream_t stream)
{
    const dim3 grid(tiles->n_tiles, args.n_heads);

    return launch_height(tiles, [&](auto warps) {
        return GSV_LAUNCH_OVERLAP((attention_mma_wide<T, decltype(warps)::value>), grid,
                                  warps * GSV_WARP, wide_bytes(tiles), stream, args);
    });
}

template <typename T>
cudaError_t launch(const struct gpuserve_op_attention *op, const struct gsv_tiles *tiles,
                   const struct gsv_int8_target *next, cudaStream_t stream)
{
    const struct attention_args args = args_of(op, tiles, next);

    switch (op->head_size) {
    case 32:
        return launch_size<T, 32>(args, tiles, stream);
    case 64:
        return launch_size<T, 64>(args, tiles, stream);
    case 128:
        return launch_size<T, 128>(args, tiles, stream);
    default:
        return launch_wide<T>(args, tiles, stream);
    }
}

template <typename T, int warps> cudaError_t allow_height(void)
{
    const struct gsv_tiles tiles = { NULL, 0, warps * 16, false };
    const cudaError_t error =
        GSV_ALLOW_SHARED((attention_mma_options<T, 128, warps>), layout<128>::max_bytes);

    return error == cudaSuccess
               ? GSV_ALLOW_SHARED((attention_mma_wide<T, warps>), wide_bytes(&tiles))
               : error;
}

template <typename T> cudaError_t allow_shared(void)
{
    cudaError_t error = allow_height<T, 1>();

    if (error == cudaSuccess)
        error = allow_height<T, 2>();
    return error == cudaSuccess ? allow_height<T, 4>() : error;
}

} /* namespace */

bool gsv_cuda_attention_has_mma_options(const struct gpuserve_op_attention *op,
                                        enum gsv_element element)
{
    const bool size =
        op->head_size == 32 || op->head_size == 64 || op->head_size == 128 || op->head_size == WIDE;

    return size && !op->position_key && !op->position_query && element != GSV_ELEMENT_F32 &&
           reinterpret_cast<uintptr_t>(op->qkv) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(op->out) % 16 == 0;
}

cudaError_t gsv_cuda_attention_mma_options(const struct gpuserve_op_attention *op,
                                           const struct gsv_tiles *tiles, enum gsv_element element,
                                           const struct gsv_int8_target *next, cudaStream_t stream)
{
    return element == GSV_ELEMENT_F16 ? launch<half>(op, tiles, next, stream)
                                      : launch<__nv_bfloat16>(op, tiles, next, stream);
}

cudaError_t gsv_cuda_attention_mma_options_prepare(void)
{
    const cudaError_t error = allow_shared<half>();

    return error == cudaSuccess ? allow_shared<__nv_bfloat16>() : error;
}
