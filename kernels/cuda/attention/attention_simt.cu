/*
 * attention_simt: softmax(scale * Q K^T + bias) V in float32 throughout, without tensor cores.
 *
 *   A block computes one work item (16, 32 or 64 query rows of one sequence) and one head. Each
 * warp has a part of the rows, four at a time: attention_simt.cuh. Softmax is online. A row's bits
 *   depend on its own sequence only, not on the height of the work item.
 *
 *       grid = (tiles, heads), shared = q[height][size] k[32][size + 1] v[32][size] p[4][4][32]
 *
 *   Needs:  float32; head size 32, 64 or 128; rows 16-byte aligned; no options.
 *   Oracle: kernels/ref/attention.c.
 */
#include "kernels/cuda/attention/attention_simt.cuh"

namespace
{

using namespace attention_tiles;

struct simt_args {
    const float *qkv;
    float *out;
    const struct gsv_attention_tile *tiles;
    const float *relative_bias; /* or NULL */
    int32_t bias_span;
    int32_t n_heads;
    float scale;
};

__host__ __device__ constexpr int shared_floats(int size, int height)
{
    return height * size + KEYS * (size + 1) + KEYS * size + WARPS * TOGETHER * KEYS;
}

/* Minimum blocks per SM for __launch_bounds__; 0: chosen by ptxas. That of CUDA 12.4 spills a
 * register to fit an eighth block of 64 x 16 on sm_90. */
#if CUDART_VERSION < 13000 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define MIN_BLOCKS(size, height) ((size) == 64 && (height) == 16 ? 7 : 0)
#else
#define MIN_BLOCKS(size, height) 0
#endif

template <int SIZE, int HEIGHT>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS(SIZE, HEIGHT))
    attention_simt(const struct simt_args args)
{
    GSV_SHARED(float, q);
    constexpr int ROWS = HEIGHT / WARPS; /* per warp */
    float *const k = q + HEIGHT * SIZE;
    float *const v = k + KEYS * (SIZE + 1);
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    float *const p = v + KEYS * SIZE + warp * TOGETHER * KEYS;
    float sums[ROWS][SIZE / GSV_WARP];
    float maxima[ROWS];
    float totals[ROWS];

    gsv_grid_wait();
    gsv_grid_launch_next();

    const struct gsv_attention_tile tile = args.tiles[blockIdx.x];
    if (tile.n_rows == 0)
        return;
    const int head = static_cast<int>(blockIdx.y);
    const size_t width = static_cast<size_t>(args.n_heads) * SIZE;
    const float *const qkv = args.qkv + static_cast<size_t>(head) * SIZE;
    const float *bias = args.relative_bias;

    if (bias)
        bias += static_cast<size_t>(head) * (2 * args.bias_span - 1) + args.bias_span - 1;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        maxima[r] = -INFINITY;
        totals[r] = 0.f;
#pragma unroll
        for (int c = 0; c < SIZE / GSV_WARP; c++)
            sums[r][c] = 0.f;
    }
    load_rows<SIZE>(q, SIZE, qkv + tile.first_row * 3 * width, 3 * width, tile.n_rows, HEIGHT,
                    args.scale);
    for (int first = 0; first < tile.n_keys; first += KEYS) {
        const int n = tile.n_keys - first < KEYS ? tile.n_keys - first : KEYS;
        const float *const keys = qkv + (tile.first_key + first) * 3 * width + width;

        __syncthreads();
        load_rows<SIZE>(k, SIZE + 1, keys, 3 * width, n, KEYS, 1.f);
        load_rows<SIZE>(v, SIZE, keys + width, 3 * width, n, KEYS, 1.f);
        __syncthreads();
#pragma unroll
        for (int group = 0; group < ROWS; group += TOGETHER) {
            float scores[TOGETHER];

            score_key<SIZE>(q + (warp * ROWS + group) * SIZE, k + lane * (SIZE + 1), scores);
            __syncwarp();
#pragma unroll
            for (int r = 0; r < TOGETHER; r++) {
                const int row = tile.first_row + warp * ROWS + group + r;
                const bool counts = lane < n;
                float score = counts ? scores[r] : -INFINITY;

                if (bias && counts && row < tile.first_row + tile.n_rows)
                    score += bias[tile.first_key + first + lane - row];
                const float higher =
                    gsv_max::combine(gsv_warp_reduce<gsv_max>(score), maxima[group + r]);
                const float rescale = expf(maxima[group + r] - higher);
                const float weight = counts ? expf(score - higher) : 0.f;

                p[r * KEYS + lane] = weight;
                totals[group + r] = totals[group + r] * rescale + gsv_warp_reduce<gsv_sum>(weight);
                maxima[group + r] = higher;
#pragma unroll
                for (int c = 0; c < SIZE / GSV_WARP; c++)
                    sums[group + r][c] *= rescale;
            }
            __syncwarp();
            add_values<SIZE>(p, v, &sums[group]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = warp * ROWS + r;

        if (row >= tile.n_rows)
            continue;
        float *const out =
            args.out + (tile.first_row + row) * width + static_cast<size_t>(head) * SIZE;
#pragma unroll
        for (int c = 0; c < SIZE / GSV_WARP; c++)
            out[c * GSV_WARP + lane] = tile.n_keys > 0 ? sums[r][c] / totals[r] : 0.f;
    }
}

template <int SIZE, int HEIGHT>
cudaError_t launch(const struct simt_args &args, int n_tiles, cudaStream_t stream)
{
    return GSV_LAUNCH_OVERLAP((attention_simt<SIZE, HEIGHT>), dim3(n_tiles, args.n_heads), THREADS,
                              sizeof(float) * shared_floats(SIZE, HEIGHT), stream, args);
}

template <int SIZE>
cudaError_t launch_height(const struct simt_args &args, const struct gsv_tiles *tiles,
                          cudaStream_t stream)
{
    switch (tiles->height) {
    case 16:
        return launch<SIZE, 16>(args, tiles->n_tiles, stream);
    case 32:
        return launch<SIZE, 32>(args, tiles->n_tiles, stream);
    default:
        return launch<SIZE, 64>(args, tiles->n_tiles, stream);
    }
}

template <int SIZE> cudaError_t prepare_size(void)
{
    cudaError_t error =
        GSV_ALLOW_SHARED((attention_simt<SIZE, 16>), sizeof(float) * shared_floats(SIZE, 16));

    if (error == cudaSuccess)
        error =
            GSV_ALLOW_SHARED((attention_simt<SIZE, 32>), sizeof(float) * shared_floats(SIZE, 32));
    if (error == cudaSuccess)
        error =
            GSV_ALLOW_SHARED((attention_simt<SIZE, 64>), sizeof(float) * shared_floats(SIZE, 64));
    return error;
}

} /* namespace */

bool gsv_cuda_attention_has_simt(const struct gpuserve_op_attention *op, enum gsv_element element)
{
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(op->qkv) | reinterpret_cast<uintptr_t>(op->out);

    return !gsv_cuda_attention_has_options(op) && element == GSV_ELEMENT_F32 &&
           addresses % 16 == 0 &&
           (op->head_size == 32 || op->head_size == 64 || op->head_size == 128);
}

cudaError_t gsv_cuda_attention_simt(const struct gpuserve_op_attention *op,
                                    const struct gsv_tiles *tiles, cudaStream_t stream)
{
    const struct simt_args args = { static_cast<const float *>(op->qkv),
                                    static_cast<float *>(op->out),
                                    tiles->tiles,
                                    op->relative_bias,
                                    op->bias_span,
                                    op->n_heads,
                                    op->scale };

    switch (op->head_size) {
    case 32:
        return launch_height<32>(args, tiles, stream);
    case 64:
        return launch_height<64>(args, tiles, stream);
    default:
        return launch_height<128>(args, tiles, stream);
    }
}

cudaError_t gsv_cuda_attention_simt_prepare(void)
{
    cudaError_t error = prepare_size<32>();

    if (error == cudaSuccess)
        error = prepare_size<64>();
    return error == cudaSuccess ? prepare_size<128>() : error;
}
