/*
 * rotate: RMSNorm and rotary positions of the query and key heads, in place, in one pass.
 *
 *   A group of 1 to 32 lanes takes one head of one row; a warp has several groups. An item of a
 *   lane is two chunks of `width` elements whose elements pair with each other, so no lane needs
 *   another one's values. With a norm the head is read twice, the second time from L1.
 *
 *   Needs:  nothing. 16 bytes per access if the halves of the rotary part are whole chunks and
 *           all rows are aligned, else single elements.
 *   Oracle: kernels/ref/gates.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/ops/rownorm.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int THREADS = 128;

struct rotate_args {
    void *qkv;
    const int32_t *positions;
    const float *query_gamma; /* or NULL */
    const float *key_gamma;   /* or NULL */
    const float *table;       /* or NULL: `rotary` is 0 */
    float eps;
    int32_t n_rows;
    int32_t n_heads;    /* query heads */
    int32_t n_kv_heads; /* key heads */
    int32_t head_size;
    int32_t rotary;
    int32_t interleaved;
    int32_t group; /* lanes of a head: a power of two */
};

/* Two chunks: elements [first, first + width) and [second, second + width). The second chunk of the
 * last item of an odd head size lies past the end: width is 1 then. */
struct item {
    int first;
    int second;
    int angle; /* of the first pair, or -1: not rotated */
};

template <int width>
__device__ __forceinline__ struct item item_of(const struct rotate_args &args, int i)
{
    const int half = args.rotary / 2;

    if (i * width >= half) {
        const int first = args.rotary + (i * width - half) * 2;

        return { first, first + width, -1 };
    }
    if (args.interleaved)
        return { 2 * i * width, 2 * i * width + width, i * width };
    return { i * width, half + i * width, i * width };
}

template <typename T, int width>
__device__ __forceinline__ void load(float *x, const T *from, bool exists)
{
    if constexpr (width > 1) {
        const gsv_vector_chunk<T> chunk = *reinterpret_cast<const gsv_vector_chunk<T> *>(from);

#pragma unroll
        for (int j = 0; j < width; j++)
            x[j] = gsv_to_float(chunk.v[j]);
    } else {
        x[0] = exists ? gsv_to_float(from[0]) : 0.f;
    }
}

template <typename T, int width>
__device__ __forceinline__ void store(T *to, const float *x, bool exists)
{
    if constexpr (width > 1)
        gsv_store_chunk(to, 0, x);
    else if (exists)
        to[0] = gsv_from_float<T>(x[0]);
}

/* `width` floats at `from`. */
template <int width> __device__ __forceinline__ void load_floats(float *x, const float *from)
{
    if constexpr (width > 1) {
#pragma unroll
        for (int j = 0; j < width; j += 4) {
            const float4 four = *reinterpret_cast<const float4 *>(from + j);

            x[j] = four.x;
            x[j + 1] = four.y;
            x[j + 2] = four.z;
            x[j + 3] = four.w;
        }
    } else {
        x[0] = from[0];
    }
}

/* 1 / root mean square of the head, in all lanes of the group. */
template <typename T, int width>
__device__ __forceinline__ float norm_factor(const struct rotate_args &args, const T *head,
                                             int n_items, int lane, bool has_work)
{
    float squares = 0.f;

    for (int i = lane; has_work && i < n_items; i += args.group) {
        const struct item at = item_of<width>(args, i);
        float x[2 * width];

        load<T, width>(x, head + at.first, true);
        load<T, width>(x + width, head + at.second, at.second < args.head_size);
#pragma unroll
        for (int j = 0; j < 2 * width; j++)
            squares += x[j] * x[j];
    }
    for (int distance = args.group / 2; distance > 0; distance /= 2)
        squares += __shfl_xor_sync(GSV_ALL_LANES, squares, distance);
    return 1.f / sqrtf(squares / args.head_size + args.eps);
}

template <int width>
__device__ __forceinline__ void apply_gamma(float *x, const struct item &at, const float *gamma,
                                            float factor, int head_size)
{
    float g[2 * width] = {};

    load_floats<width>(g, gamma + at.first);
    if (width > 1 || at.second < head_size)
        load_floats<width>(g + width, gamma + at.second);
#pragma unroll
    for (int j = 0; j < 2 * width; j++)
        x[j] = x[j] * factor * g[j];
}

__device__ __forceinline__ void turn_pair(float &x, float &y, float c, float s)
{
    const float before = x;

    x = before * c - y * s;
    y = y * c + before * s;
}

/* Turns the item's pairs by the angles of `position`: cosines [rotary / 2], then sines. */
template <int width>
__device__ __forceinline__ void turn(float *x, const struct rotate_args &args, int angle,
                                     int position)
{
    const float *const cosines = args.table + static_cast<size_t>(position) * args.rotary + angle;
    float c[width];
    float s[width];

    load_floats<width>(c, cosines);
    load_floats<width>(s, cosines + args.rotary / 2);
    if (args.interleaved) {
#pragma unroll
        for (int j = 0; j < width; j++)
            turn_pair(x[2 * j], x[2 * j + 1], c[j], s[j]);
    } else {
#pragma unroll
        for (int j = 0; j < width; j++)
            turn_pair(x[j], x[width + j], c[j], s[j]);
    }
}

template <typename T, int width>
__global__ void __launch_bounds__(THREADS) rotate(const struct rotate_args args)
{
    const size_t thread = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    const size_t job = thread / args.group; /* a head of a row */
    const int lane = static_cast<int>(thread % args.group);
    const int heads = args.n_heads + args.n_kv_heads;
    const int n_items =
        args.rotary / 2 / width + (args.head_size - args.rotary + 2 * width - 1) / (2 * width);
    const bool has_work = job < static_cast<size_t>(args.n_rows) * heads;
    const size_t row = has_work ? job / heads : 0;
    const int number = has_work ? static_cast<int>(job % heads) : 0;
    const float *const gamma = number < args.n_heads ? args.query_gamma : args.key_gamma;
    T *const head =
        static_cast<T *>(args.qkv) + (row * (heads + args.n_kv_heads) + number) * args.head_size;
    float factor = 1.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    /* All lanes of the warp, since a group's neighbours may have a norm. */
    if (args.query_gamma || args.key_gamma)
        factor = norm_factor<T, width>(args, head, n_items, lane, has_work && gamma);
    if (!has_work)
        return;
    const int position = args.table ? args.positions[row] : 0;
    for (int i = lane; i < n_items; i += args.group) {
        const struct item at = item_of<width>(args, i);
        const bool both = at.second < args.head_size;
        float x[2 * width];

        if (!gamma && at.angle < 0)
            break; /* nor any later item */
        load<T, width>(x, head + at.first, true);
        load<T, width>(x + width, head + at.second, both);
        if (gamma)
            apply_gamma<width>(x, at, gamma, factor, args.head_size);
        if (at.angle >= 0)
            turn<width>(x, args, at.angle, position);
        store<T, width>(head + at.first, x, true);
        store<T, width>(head + at.second, x + width, both);
    }
}

template <typename T, int width> cudaError_t launch_width(struct rotate_args args, cudaStream_t s)
{
    const int n_items = (args.head_size + 2 * width - 1) / (2 * width);
    const size_t jobs = static_cast<size_t>(args.n_rows) * (args.n_heads + args.n_kv_heads);

    args.group = 1;
    while (args.group < GSV_WARP && args.group < n_items)
        args.group *= 2;
    return GSV_LAUNCH_OVERLAP((rotate<T, width>),
                              static_cast<unsigned>((jobs * args.group + THREADS - 1) / THREADS),
                              THREADS, 0, s, args);
}

template <typename T> cudaError_t launch(const struct rotate_args &args, cudaStream_t stream)
{
    constexpr int width = gsv_vector_chunk<T>::size;
    const bool aligned = gsv_aligned_16(args.qkv) && gsv_aligned_16(args.query_gamma) &&
                         gsv_aligned_16(args.key_gamma) && gsv_aligned_16(args.table);

    if (aligned && args.head_size % (2 * width) == 0 && args.rotary % (2 * width) == 0)
        return launch_width<T, width>(args, stream);
    return launch_width<T, 1>(args, stream);
}

} /* namespace */

cudaError_t gsv_cuda_rotate(const struct gpuserve_op_rotate *op, enum gsv_element element,
                            cudaStream_t stream)
{
    const struct rotate_args args = { op->qkv,
                                      op->batch->positions,
                                      op->query_gamma,
                                      op->key_gamma,
                                      op->table,
                                      op->eps,
                                      op->batch->n_rows,
                                      op->n_heads,
                                      op->n_kv_heads,
                                      op->head_size,
                                      op->table ? op->rotary : 0,
                                      op->interleaved,
                                      0 };

    if (!op->table && !op->query_gamma && !op->key_gamma)
        return cudaSuccess;
    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(args, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(args, stream);
    default:
        return launch<float>(args, stream);
    }
}
