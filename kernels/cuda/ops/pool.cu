/*
 * pool: one vector per sequence from its token rows, truncated and normalized on output.
 *
 *   One block per sequence. A group of threads reads a row, 16 bytes per thread. Several groups
 *   take rows in turn, and their sums are added in group order, so the result depends on the
 *   sequence's own length only. cls and last read one row. The L2 norm covers the kept columns. A
 *   sequence without tokens gives zeros.
 *
 *       grid = sequences, shared = groups * hidden floats + 16 for the norm
 *
 *   Needs:  any hidden up to MAX_HIDDEN; 16-byte accesses if it is a multiple of them and rows
 *           are aligned, else single elements.
 *   Oracle: kernels/ref/rows.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/ops/rownorm.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

/* Threads of a block: the rows of one text are read by many groups. More pay for long texts. */
const int FEW_THREADS = 512;
const int MANY_THREADS = 1024;
const int LONG_ROWS = 64;     /* tokens */
const int MAX_HIDDEN = 11264; /* floats of a row in 48 KiB of shared memory, with the scratch */

/* Rows that a thread reads at once. ptxas spills registers of the large block on sm_120 with more.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
const int UNROLLED = 2;
#else
const int UNROLLED = 4;
#endif

struct pool_args {
    const void *in;
    float *out;
    const int32_t *cu_seqlens;
    int32_t pooling;
    int32_t hidden;
    int32_t columns;
    int32_t out_ld;
    int32_t normalize;
    int32_t n_groups; /* of threads; each takes whole rows */
};

/* Weight of token i. */
__device__ __forceinline__ float token_weight(int pooling, int i)
{
    return pooling == GPUSERVE_POOL_WEIGHTED_MEAN ? static_cast<float>(i + 1) : 1.f;
}

__device__ __forceinline__ float total_weight(int pooling, int n)
{
    const float count = static_cast<float>(n);

    switch (pooling) {
    case GPUSERVE_POOL_MEAN:
        return count;
    case GPUSERVE_POOL_MEAN_SQRT_LEN:
        return sqrtf(count);
    case GPUSERVE_POOL_WEIGHTED_MEAN:
        return count * (count + 1.f) * 0.5f;
    default:
        return 1.f;
    }
}

/* partial[group][..] = the pooled rows of this group; `width` elements per thread at a time. */
template <typename T, int width, int threads>
__device__ void pool_rows(const struct pool_args &args, const T *rows, int first, int end,
                          float *partial)
{
    const int group_size = threads / args.n_groups;
    const int group = static_cast<int>(threadIdx.x) / group_size;
    const bool is_max = args.pooling == GPUSERVE_POOL_MAX;

    if (group >= args.n_groups)
        return;
    for (int c = static_cast<int>(threadIdx.x) % group_size; c * width < args.hidden;
         c += group_size) {
        float x[width];

#pragma unroll
        for (int j = 0; j < width; j++)
            x[j] = is_max ? gsv_max::identity() : 0.f;
#pragma unroll UNROLLED
        for (int i = first + group; i < end; i += args.n_groups) {
            const float weight = token_weight(args.pooling, i);
            const T *from = rows + static_cast<size_t>(i) * args.hidden + c * width;
            float y[width] = {};

            if constexpr (width > 1)
                gsv_add_chunk(from, 0, y);
            else
                y[0] = gsv_to_float(from[0]);
#pragma unroll
            for (int j = 0; j < width; j++)
                x[j] = is_max ? gsv_max::combine(x[j], y[j]) : x[j] + weight * y[j];
        }
#pragma unroll
        for (int j = 0; j < width; j++)
            partial[group * args.hidden + c * width + j] = x[j];
    }
}

/* The launch bound keeps ptxas from spilling registers to fit more blocks on sm_110. */
template <typename T, int width, int threads>
__global__ void __launch_bounds__(threads, 1) pool_sequences(const struct pool_args args)
{
    GSV_SHARED(float, partial); /* [n_groups, hidden], then one float for each warp */
    float *const scratch = partial + args.n_groups * args.hidden;
    const int sequence = static_cast<int>(blockIdx.x);
    float *const out = args.out + static_cast<size_t>(sequence) * args.out_ld;
    float squares = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    const int begin = args.cu_seqlens[sequence];
    const int n = args.cu_seqlens[sequence + 1] - begin;
    const int first = args.pooling == GPUSERVE_POOL_LAST ? max(n - 1, 0) : 0;
    const int end = args.pooling == GPUSERVE_POOL_CLS ? min(n, 1) : n;

    pool_rows<T, width, threads>(
        args, static_cast<const T *>(args.in) + static_cast<size_t>(begin) * args.hidden, first,
        end, partial);
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < args.columns; c += threads) {
        float x = partial[c];

        for (int g = 1; g < args.n_groups; g++) {
            const float y = partial[g * args.hidden + c];
            x = args.pooling == GPUSERVE_POOL_MAX ? gsv_max::combine(x, y) : x + y;
        }
        x = n > 0 ? x / total_weight(args.pooling, n) : 0.f;
        partial[c] = x;
        squares += x * x;
    }
    float divisor = 1.f;
    if (args.normalize)
        divisor = gsv_max::combine(sqrtf(gsv_block_reduce<gsv_sum>(squares, scratch)), 1e-12f);
    for (int c = static_cast<int>(threadIdx.x); c < args.columns; c += threads)
        out[c] = partial[c] / divisor;
}

template <typename T, int width, int threads>
cudaError_t launch_threads(struct pool_args args, int n_sequences, cudaStream_t stream)
{
    const int threads_a_row = (args.hidden + width - 1) / width;

    args.n_groups = threads_a_row < threads ? threads / threads_a_row : 1;
    /* More than 16 groups cost more time in the final sum than they save. */
    args.n_groups = args.n_groups < 16 ? args.n_groups : 16;
    if (args.n_groups * args.hidden > MAX_HIDDEN)
        args.n_groups = MAX_HIDDEN / args.hidden;
    if (args.n_groups == 0)
        return cudaErrorInvalidValue;
    return GSV_LAUNCH_OVERLAP((pool_sequences<T, width, threads>), n_sequences, threads,
                              sizeof(float) * (args.n_groups * args.hidden + threads / GSV_WARP),
                              stream, args);
}

template <typename T, int width>
cudaError_t launch_width(const struct pool_args &args, const struct gpuserve_batch &batch,
                         cudaStream_t stream)
{
    if (batch.n_rows / LONG_ROWS >= batch.n_sequences)
        return launch_threads<T, width, MANY_THREADS>(args, batch.n_sequences, stream);
    return launch_threads<T, width, FEW_THREADS>(args, batch.n_sequences, stream);
}

template <typename T>
cudaError_t launch(const struct pool_args &args, const struct gpuserve_batch &batch,
                   cudaStream_t stream)
{
    constexpr int width = gsv_vector_chunk<T>::size;

    if (args.hidden % width == 0 && gsv_aligned_16(args.in))
        return launch_width<T, width>(args, batch, stream);
    return launch_width<T, 1>(args, batch, stream);
}

} /* namespace */

cudaError_t gsv_cuda_pool(const struct gpuserve_op_pool *op, enum gsv_element element,
                          cudaStream_t stream)
{
    const struct pool_args args = { op->in,      op->out,       op->batch->cu_seqlens,
                                    op->pooling, op->hidden,    op->columns,
                                    op->out_ld,  op->normalize, 0 };
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(args, *op->batch, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(args, *op->batch, stream);
    default:
        return launch<float>(args, *op->batch, stream);
    }
}
