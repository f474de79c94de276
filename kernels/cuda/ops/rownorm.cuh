/*
 * rownorm.cuh - LayerNorm, RMSNorm or neither of a row that a Source supplies chunk by chunk: the
 * common body of embed.cu and add_norm.cu.
 *
 *   One warp per row. The row stays in registers as float32: it is read once and written once with
 *   16-byte accesses, so the kernel is bound by memory. Two-pass variance of (x - mean): E[x^2] -
 *   mean^2 loses all digits when |mean| >> std.
 *
 *   A width without a template instance uses one block per row: up to GSV_NORM_WIDE columns in
 *   registers too, if rows are aligned; else the row is read three times.
 *
 *   If an int8 product reads the rows next, they are also quantized here, from the registers.
 *
 * A Source<T> offers
 *     bind(row)          choose the row
 *     add_chunk(i, x)    x[0..] += the row's i-th 16 bytes
 *     keep_chunk(i, x)   stores x[0..] as the i-th 16 bytes of the sum, if it is wanted
 *     at(column)         one element
 *     keep(column, x)    stores one element of the sum, if it is wanted
 */
#ifndef GSV_CUDA_ROWNORM_CUH
#define GSV_CUDA_ROWNORM_CUH

#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/quantize.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

#define GSV_NORM_THREADS 128
#define GSV_NORM_WIDE 4096 /* columns of a row in the registers of a block: 32 for each thread */

struct gsv_norm {
    const float *gamma; /* or NULL: ones */
    const float *beta;  /* or NULL: zeros */
    float eps;
    int32_t rows;
    int32_t cols;
    int32_t kind; /* gpuserve_norm */
    int32_t ld;   /* of the output */
};

__device__ __forceinline__ float4 gsv_load_4(const float *from, int at, float otherwise)
{
    return from ? *reinterpret_cast<const float4 *>(from + at)
                : float4{ otherwise, otherwise, otherwise, otherwise };
}

/* x[0..size) += 16 bytes of a row. */
template <typename T> __device__ __forceinline__ void gsv_add_chunk(const T *row, int i, float *x)
{
    const gsv_vector_chunk<T> chunk = reinterpret_cast<const gsv_vector_chunk<T> *>(row)[i];

#pragma unroll
    for (int j = 0; j < gsv_vector_chunk<T>::size; j++)
        x[j] += gsv_to_float(chunk.v[j]);
}

template <typename T> __device__ __forceinline__ void gsv_store_chunk(T *row, int i, const float *x)
{
    gsv_vector_chunk<T> chunk;

#pragma unroll
    for (int j = 0; j < gsv_vector_chunk<T>::size; j++)
        chunk.v[j] = gsv_from_float<T>(x[j]);
    reinterpret_cast<gsv_vector_chunk<T> *>(row)[i] = chunk;
}

/* The 16 bytes of the output for columns [column, column + size). */
template <typename T>
__device__ __forceinline__ gsv_vector_chunk<T>
gsv_norm_chunk(const float *x, float mean, float scale, const gsv_norm &norm, int column)
{
    gsv_vector_chunk<T> chunk;

#pragma unroll
    for (int j = 0; j < gsv_vector_chunk<T>::size; j += 4) {
        const float4 g = gsv_load_4(norm.gamma, column + j, 1.f);
        const float4 b = gsv_load_4(norm.beta, column + j, 0.f);

        chunk.v[j] = gsv_from_float<T>((x[j] - mean) * scale * g.x + b.x);
        chunk.v[j + 1] = gsv_from_float<T>((x[j + 1] - mean) * scale * g.y + b.y);
        chunk.v[j + 2] = gsv_from_float<T>((x[j + 2] - mean) * scale * g.z + b.z);
        chunk.v[j + 3] = gsv_from_float<T>((x[j + 3] - mean) * scale * g.w + b.w);
    }
    return chunk;
}

/* Policies for a row besides storing it: none, or quantization. */
struct gsv_norm_only {
    template <int n> __device__ __forceinline__ void finish(float (&)[n], size_t, int) const
    {
    }
    template <int n, typename T>
    __device__ __forceinline__ void finish_wide(const float (&)[n], const T *, size_t,
                                                float *) const
    {
    }
    template <typename T> __device__ __forceinline__ void finish_stored(const T *, size_t) const
    {
    }
};

struct gsv_norm_quantized {
    gsv_int8_target to;

    template <int n>
    __device__ __forceinline__ void finish(float (&x)[n], size_t row, int lane) const
    {
        gsv_quantize_registers<n / 8>(to, x, row, lane);
    }

    /* x holds the chunks threadIdx.x, threadIdx.x + GSV_NORM_THREADS ... of the row at `from`,
     * which this thread has stored. `scratch`: two floats for each warp. */
    template <int n, typename T>
    __device__ __forceinline__ void finish_wide(const float (&x)[n], const T *from, size_t row,
                                                float *scratch) const
    {
        constexpr int width = gsv_vector_chunk<T>::size;
        gsv_row_range range;

#pragma unroll
        for (int i = 0; i < n; i++) {
            const int chunk = i / width * GSV_NORM_THREADS + static_cast<int>(threadIdx.x);
            const int column = chunk * width + i % width;

            if (column < to.k)
                range.add(gsv_scaled_input(x[i], to.input_scale, column));
        }
        range.settle();
        __syncthreads();
        range.settle_block(scratch);
        gsv_quantize_bytes<width>(to, from, row, range, static_cast<int>(threadIdx.x) * width,
                                  GSV_NORM_THREADS * width);
        if (threadIdx.x == 0)
            range.store(to.rows, row);
    }

    /* By the block's first warp only: widths without a template instance are rare. */
    template <typename T>
    __device__ __forceinline__ void finish_stored(const T *from, size_t row) const
    {
        __syncthreads();
        if (threadIdx.x < GSV_WARP)
            gsv_quantize_row<1>(to, from, row, static_cast<int>(threadIdx.x));
    }
};

/* The launch bound keeps ptxas from spilling registers to fit more blocks on some targets. */
template <typename T, int cols, typename Source, typename After>
__global__ void __launch_bounds__(GSV_NORM_THREADS, cols < 1024 ? 6 : 5)
    gsv_norm_warp(Source source, T *out, const gsv_norm norm, const After after)
{
    constexpr int width = gsv_vector_chunk<T>::size;
    constexpr int n_chunks = cols / width;
    constexpr int slots = (n_chunks + GSV_WARP - 1) / GSV_WARP;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int row = static_cast<int>(blockIdx.x) * (GSV_NORM_THREADS / GSV_WARP) +
                    static_cast<int>(threadIdx.x) / GSV_WARP;
    float x[slots * width] = {};
    float sum = 0.f;
    float squares = 0.f;

    static_assert(cols % width == 0, "rows are whole chunks");
    gsv_grid_wait();
    gsv_grid_launch_next();
    if (row >= norm.rows)
        return;
    source.bind(row);
#pragma unroll
    for (int s = 0; s < slots; s++) {
        if (s * GSV_WARP + lane < n_chunks) {
            source.add_chunk(s * GSV_WARP + lane, x + s * width);
            source.keep_chunk(s * GSV_WARP + lane, x + s * width);
        }
    }
#pragma unroll
    for (int i = 0; i < slots * width; i++)
        sum += x[i]; /* slots past the row hold 0 */
    const float mean =
        norm.kind == GPUSERVE_NORM_LAYER ? gsv_warp_reduce<gsv_sum>(sum) / cols : 0.f;
#pragma unroll
    for (int s = 0; s < slots; s++) {
        if (s * GSV_WARP + lane >= n_chunks)
            continue;
#pragma unroll
        for (int j = 0; j < width; j++) {
            const float d = x[s * width + j] - mean;
            squares += d * d;
        }
    }
    float scale = 1.f;
    if (norm.kind != GPUSERVE_NORM_NONE)
        scale = 1.f / sqrtf(gsv_warp_reduce<gsv_sum>(squares) / cols + norm.eps);
    gsv_vector_chunk<T> *to =
        reinterpret_cast<gsv_vector_chunk<T> *>(out + static_cast<size_t>(row) * norm.ld);
#pragma unroll
    for (int s = 0; s < slots; s++) {
        const int chunk = s * GSV_WARP + lane;
        if (chunk >= n_chunks)
            continue;
        const gsv_vector_chunk<T> y =
            gsv_norm_chunk<T>(x + s * width, mean, scale, norm, chunk * width);
        to[chunk] = y;
#pragma unroll
        for (int j = 0; j < width; j++)
            x[s * width + j] = gsv_to_float(y.v[j]); /* rounded, as stored */
    }
    after.finish(x, static_cast<size_t>(row), lane);
}

/* One block per row, in registers: any whole number of chunks up to GSV_NORM_WIDE columns. */
template <typename T, typename Source, typename After>
__global__ void __launch_bounds__(GSV_NORM_THREADS, 4)
    gsv_norm_wide(Source source, T *out, const gsv_norm norm, const After after)
{
    GSV_SHARED(float, scratch); /* two floats for each warp */
    constexpr int width = gsv_vector_chunk<T>::size;
    constexpr int slots = GSV_NORM_WIDE / GSV_NORM_THREADS / width;
    const int row = static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(threadIdx.x);
    const int n_chunks = norm.cols / width;
    const float n = static_cast<float>(norm.cols);
    T *const to = out + static_cast<size_t>(row) * norm.ld;
    float x[slots * width] = {};
    float sum = 0.f;
    float squares = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    source.bind(row);
#pragma unroll
    for (int s = 0; s < slots; s++) {
        if (s * GSV_NORM_THREADS + first < n_chunks) {
            source.add_chunk(s * GSV_NORM_THREADS + first, x + s * width);
            source.keep_chunk(s * GSV_NORM_THREADS + first, x + s * width);
        }
    }
#pragma unroll
    for (int i = 0; i < slots * width; i++)
        sum += x[i]; /* slots past the row hold 0 */
    const float mean =
        norm.kind == GPUSERVE_NORM_LAYER ? gsv_block_reduce<gsv_sum>(sum, scratch) / n : 0.f;
#pragma unroll
    for (int i = 0; i < slots * width; i++) {
        const float d = x[i] - mean;

        squares += i / width * GSV_NORM_THREADS + first < n_chunks ? d * d : 0.f;
    }
    float scale = 1.f;
    if (norm.kind != GPUSERVE_NORM_NONE)
        scale = 1.f / sqrtf(gsv_block_reduce<gsv_sum>(squares, scratch) / n + norm.eps);
#pragma unroll
    for (int s = 0; s < slots; s++) {
        const int chunk = s * GSV_NORM_THREADS + first;

        if (chunk >= n_chunks)
            continue;
        const gsv_vector_chunk<T> y =
            gsv_norm_chunk<T>(x + s * width, mean, scale, norm, chunk * width);
        reinterpret_cast<gsv_vector_chunk<T> *>(to)[chunk] = y;
#pragma unroll
        for (int j = 0; j < width; j++)
            x[s * width + j] = gsv_to_float(y.v[j]); /* rounded, as stored */
    }
    after.finish_wide(x, to, static_cast<size_t>(row), scratch);
}

template <typename T, typename Source, typename After>
__global__ void __launch_bounds__(GSV_NORM_THREADS)
    gsv_norm_block(Source source, T *out, const gsv_norm norm, const After after)
{
    GSV_SHARED(float, scratch); /* one float for each warp */
    const int row = static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(threadIdx.x);
    const float n = static_cast<float>(norm.cols);
    float sum = 0.f;
    float squares = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    source.bind(row);
    for (int c = first; norm.kind == GPUSERVE_NORM_LAYER && c < norm.cols; c += GSV_NORM_THREADS)
        sum += source.at(c);
    const float mean =
        norm.kind == GPUSERVE_NORM_LAYER ? gsv_block_reduce<gsv_sum>(sum, scratch) / n : 0.f;
    for (int c = first; norm.kind != GPUSERVE_NORM_NONE && c < norm.cols; c += GSV_NORM_THREADS) {
        const float d = source.at(c) - mean;
        squares += d * d;
    }
    float scale = 1.f;
    if (norm.kind != GPUSERVE_NORM_NONE)
        scale = 1.f / sqrtf(gsv_block_reduce<gsv_sum>(squares, scratch) / n + norm.eps);
    /* Each thread reads only elements that it overwrites itself: `out` and the sum may be inputs.
     */
    for (int c = first; c < norm.cols; c += GSV_NORM_THREADS) {
        const float x = source.at(c);

        source.keep(c, x);
        out[static_cast<size_t>(row) * norm.ld + c] =
            gsv_from_float<T>((x - mean) * scale * (norm.gamma ? norm.gamma[c] : 1.f) +
                              (norm.beta ? norm.beta[c] : 0.f));
    }
    after.finish_stored(out + static_cast<size_t>(row) * norm.ld, static_cast<size_t>(row));
}

template <typename T, int cols, typename Source, typename After>
cudaError_t gsv_norm_launch_warp(const Source &source, T *out, const gsv_norm &norm,
                                 const After &after, cudaStream_t stream)
{
    const int rows_a_block = GSV_NORM_THREADS / GSV_WARP;

    return GSV_LAUNCH_OVERLAP((gsv_norm_warp<T, cols, Source, After>),
                              (norm.rows + rows_a_block - 1) / rows_a_block, GSV_NORM_THREADS, 0,
                              stream, source, out, norm, after);
}

/* `aligned`: each row of the source and of `out` begins at a 16-byte address if its columns are
 * whole chunks. */
/* A block for each row. */
template <typename T, typename Source, typename After>
cudaError_t gsv_norm_launch_block(const Source &source, T *out, const gsv_norm &norm, bool aligned,
                                  const After &after, cudaStream_t stream)
{
    const size_t bytes = 2 * sizeof(float) * GSV_NORM_THREADS / GSV_WARP;

    if (aligned && norm.cols % gsv_vector_chunk<T>::size == 0 && norm.cols <= GSV_NORM_WIDE)
        return GSV_LAUNCH_OVERLAP((gsv_norm_wide<T, Source, After>), norm.rows, GSV_NORM_THREADS,
                                  bytes, stream, source, out, norm, after);
    return GSV_LAUNCH_OVERLAP((gsv_norm_block<T, Source, After>), norm.rows, GSV_NORM_THREADS,
                              bytes / 2, stream, source, out, norm, after);
}

template <typename T, typename Source, typename After>
cudaError_t gsv_norm_launch(const Source &source, T *out, const gsv_norm &norm, bool aligned,
                            const After &after, cudaStream_t stream)
{
    switch (aligned ? norm.cols : 0) {
    case 128:
        return gsv_norm_launch_warp<T, 128>(source, out, norm, after, stream);
    case 256:
        return gsv_norm_launch_warp<T, 256>(source, out, norm, after, stream);
    case 312:
        return gsv_norm_launch_warp<T, 312>(source, out, norm, after, stream);
    case 384:
        return gsv_norm_launch_warp<T, 384>(source, out, norm, after, stream);
    case 512:
        return gsv_norm_launch_warp<T, 512>(source, out, norm, after, stream);
    case 768:
        return gsv_norm_launch_warp<T, 768>(source, out, norm, after, stream);
    case 1024:
        return gsv_norm_launch_warp<T, 1024>(source, out, norm, after, stream);
    default:
        return gsv_norm_launch_block<T>(source, out, norm, aligned, after, stream);
    }
}

static inline bool gsv_aligned_16(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

#endif
