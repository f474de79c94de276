/*
 * gemm_mma.cuh - the sums of a matrix product on tensor cores, for kernels with different
 * epilogues.
 *
 *   In both operands k is contiguous, so one loop serves every type: a step of mma.sync covers 32
 *   bytes of k (16 halves, two times 4 tf32, 32 int8). A block computes a tile of rows x columns;
 *   cp.async keeps two tiles of k in flight while the third is computed (3-stage pipeline). Shared
 *   rows are an odd multiple of 16 bytes apart, so the 8 rows of an ldmatrix have no bank
 * conflicts.
 *
 *       128 x 128  8 warps of 64 x 32, 64 bytes of k    large products
 *        64 x  64  4 warps of 32 x 32, 64 bytes of k    if large tiles would not fill the device
 *        16 x  64  4 warps of 16 x 16, 128 bytes of k   a few rows: one short text, a head
 *
 *   The order of accumulation over k is the same for every tile, so the bits of an element do not
 *   depend on the number of rows.
 *
 *   Needs:  rows aligned to 16 bytes, any number of them; k a multiple of 16 bytes.
 */
#ifndef GSV_CUDA_GEMM_MMA_CUH
#define GSV_CUDA_GEMM_MMA_CUH

#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

const int GSV_MMA_STAGES = 3;
const int GSV_MMA_STEP_BYTES = 32; /* of k */

/* One step: d += a b over 32 bytes of k. */
struct gsv_math_f16 {
    typedef half element;
    typedef float sum;

    static __device__ __forceinline__ void step(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        gsv_mma_m16n8k16(d, a, b, half());
    }
};

struct gsv_math_bf16 {
    typedef __nv_bfloat16 element;
    typedef float sum;

    static __device__ __forceinline__ void step(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        gsv_mma_m16n8k16(d, a, b, __nv_bfloat16());
    }
};

/* 8 floats of k. Rounds explicitly: the tensor core would truncate, which biases towards zero. */
struct gsv_math_tf32 {
    typedef float element;
    typedef float sum;

    static __device__ __forceinline__ void step(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        uint32_t ra[4];
        uint32_t rb[2];

#pragma unroll
        for (int i = 0; i < 4; i++)
            ra[i] = gsv_tf32(__uint_as_float(a[i]));
#pragma unroll
        for (int i = 0; i < 2; i++)
            rb[i] = gsv_tf32(__uint_as_float(b[i]));
        gsv_mma_m16n8k8_tf32(d, ra, rb);
    }
};

/* 32 signed bytes, summed as integers. */
struct gsv_math_s8 {
    typedef int8_t element;
    typedef int32_t sum;

    static __device__ __forceinline__ void step(int32_t (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        gsv_mma_m16n8k32_s8(d, a, b);
    }
};

template <int m, int n, int m_warps, int n_warps, int k_bytes> struct gsv_mma_shape {
    static constexpr int rows = m;
    static constexpr int columns = n;
    static constexpr int tile_bytes = k_bytes; /* of k */
    static constexpr int row_bytes = k_bytes + 16;
    static constexpr int warps_across = n_warps;
    static constexpr int threads = m_warps * n_warps * GSV_WARP;
    static constexpr int warp_rows = m / m_warps;
    static constexpr int warp_columns = n / n_warps;
    static constexpr int stage_bytes = (m + n) * row_bytes;
    static constexpr size_t shared_bytes = static_cast<size_t>(GSV_MMA_STAGES) * stage_bytes;
};

typedef gsv_mma_shape<128, 128, 2, 4, 64> gsv_mma_large;
typedef gsv_mma_shape<64, 64, 2, 2, 64> gsv_mma_medium;
typedef gsv_mma_shape<16, 64, 1, 4, 128> gsv_mma_small;

/* Copies tiles of `rows` rows to shared memory, one tile of k after the other. A thread copies the
 * same chunks of 16 bytes of each tile, so that the loop over k only advances pointers: a trip
 * count or a row that nvcc cannot know costs a multiplication of addresses for each tile. */
template <class Shape, int rows> struct gsv_mma_loader {
    static constexpr int chunks = Shape::tile_bytes / 16; /* of a row */
    static constexpr int step = Shape::threads / chunks;  /* rows that all threads copy at once */
    static constexpr int copies = rows / step;
    static_assert(Shape::threads % chunks == 0 && rows % step == 0, "all threads copy as much");

    const char *from[copies];
    int to;   /* bytes from the tile's begin */
    int left; /* bytes of k from this thread's chunk on; at most 0: the chunk is past the end */

    /* Rows past the matrix read its last row: their sums are not stored. */
    __device__ __forceinline__ gsv_mma_loader(const char *matrix, size_t stride, int first,
                                              int n_rows, int k_bytes)
    {
        const int row = static_cast<int>(threadIdx.x) / chunks;
        const int chunk = static_cast<int>(threadIdx.x) % chunks * 16;

#pragma unroll
        for (int i = 0; i < copies; i++)
            from[i] = matrix + min(first + row + i * step, n_rows - 1) * stride + chunk;
        to = row * Shape::row_bytes + chunk;
        left = k_bytes - chunk;
    }

    /* Starts the copy of the next tile; chunks past the end of k become zeros. */
    __device__ __forceinline__ void load(char *tile)
    {
#pragma unroll
        for (int i = 0; i < copies; i++) {
            gsv_cp_async_16(tile + to + i * step * Shape::row_bytes, from[i], left > 0);
            from[i] += Shape::tile_bytes;
        }
        left -= Shape::tile_bytes;
    }
};

/* The warp's accumulators in the layout of mma.sync; gsv_mma_row and gsv_mma_column map them. */
template <class Math, class Shape> struct gsv_mma_sums {
    typename Math::sum at[Shape::warp_rows / 16][Shape::warp_columns / 8][4];
};

/* Multiplies one tile in shared memory into the warp's accumulators. */
template <class Math, class Shape>
__device__ __forceinline__ void gsv_mma_multiply_tile(gsv_mma_sums<Math, Shape> &sums,
                                                      const char *a_tile, const char *b_tile,
                                                      int lane)
{
    /* A: matrices rows 0-7 and 8-15 of the lower, then of the upper 16 bytes. B: columns 0-7 lower,
     * upper, then columns 8-15 lower, upper. */
    const char *const a_from = a_tile + lane % 16 * Shape::row_bytes + lane / 16 * 16;
    const char *const b_from =
        b_tile + (lane / 16 * 8 + lane % 8) * Shape::row_bytes + lane / 8 % 2 * 16;

#pragma unroll
    for (int k = 0; k < Shape::tile_bytes; k += GSV_MMA_STEP_BYTES) {
        uint32_t a[Shape::warp_rows / 16][4];

#pragma unroll
        for (int i = 0; i < Shape::warp_rows / 16; i++)
            gsv_ldmatrix_x4(a[i], a_from + i * 16 * Shape::row_bytes + k);
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j += 2) {
            uint32_t b[4];

            gsv_ldmatrix_x4(b, b_from + j * 8 * Shape::row_bytes + k);
            const uint32_t low[2] = { b[0], b[1] };
            const uint32_t high[2] = { b[2], b[3] };
#pragma unroll
            for (int i = 0; i < Shape::warp_rows / 16; i++) {
                Math::step(sums.at[i][j], a[i], low);
                Math::step(sums.at[i][j + 1], a[i], high);
            }
        }
    }
}

/* Operands of a block: rows of `a` and `b` with k contiguous. */
struct gsv_mma_operands {
    const char *a;
    const char *b;
    size_t a_bytes; /* row stride */
    size_t b_bytes;
    int m;
    int n;
    int k_bytes;
};

/* The next of three stages; a division by the number of stages takes more instructions. */
template <class Shape> __device__ __forceinline__ int gsv_mma_next_stage(int at)
{
    return at == (GSV_MMA_STAGES - 1) * Shape::stage_bytes ? 0 : at + Shape::stage_bytes;
}

/* Computes the sums of this block's tile; `shared` has Shape::shared_bytes. wait() is called after
 * the first copies of `b` have begun and before any of `a`: with overlapping kernels, whose `b` no
 * kernel writes, it is gsv_grid_wait(). */
template <class Math, class Shape, class Wait>
__device__ __forceinline__ void gsv_mma_product(gsv_mma_sums<Math, Shape> &sums,
                                                const gsv_mma_operands &of, char *shared,
                                                const Wait &wait)
{
    constexpr int a_size = Shape::rows * Shape::row_bytes;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const char *const a_tile =
        shared + warp / Shape::warps_across * Shape::warp_rows * Shape::row_bytes;
    const char *const b_tile =
        shared + a_size + warp % Shape::warps_across * Shape::warp_columns * Shape::row_bytes;
    const int n_tiles = (of.k_bytes + Shape::tile_bytes - 1) / Shape::tile_bytes;
    gsv_mma_loader<Shape, Shape::rows> a(
        of.a, of.a_bytes, static_cast<int>(blockIdx.y) * Shape::rows, of.m, of.k_bytes);
    gsv_mma_loader<Shape, Shape::columns> b(
        of.b, of.b_bytes, static_cast<int>(blockIdx.x) * Shape::columns, of.n, of.k_bytes);
    int read = 0;
    int write = (GSV_MMA_STAGES - 1) * Shape::stage_bytes;

#pragma unroll
    for (int t = 0; t < GSV_MMA_STAGES - 1; t++)
        b.load(shared + t * Shape::stage_bytes + a_size);
    wait();
#pragma unroll
    for (int t = 0; t < GSV_MMA_STAGES - 1; t++) {
        a.load(shared + t * Shape::stage_bytes);
        gsv_cp_async_commit(); /* the first group has all of `b` so far */
    }
#pragma unroll 1
    for (int t = n_tiles; t > 0; t--) {
        gsv_cp_async_wait<GSV_MMA_STAGES - 2>();
        __syncthreads(); /* the tile is loaded, and no thread reads the one before it any more */
        if (t >= GSV_MMA_STAGES) {
            a.load(shared + write);
            b.load(shared + write + a_size);
        }
        gsv_cp_async_commit();
        gsv_mma_multiply_tile<Math, Shape>(sums, a_tile + read, b_tile + read, lane);
        read = gsv_mma_next_stage<Shape>(read);
        write = gsv_mma_next_stage<Shape>(write);
    }
}

/* Row of at[i][.][0] and [1] ([2] and [3]: 8 rows below), and column of at[.][j][0] and [2]. */
template <class Shape> __device__ __forceinline__ int gsv_mma_row(int i)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;

    return static_cast<int>(blockIdx.y) * Shape::rows +
           warp / Shape::warps_across * Shape::warp_rows + i * 16 +
           static_cast<int>(threadIdx.x) % GSV_WARP / 4;
}

template <class Shape> __device__ __forceinline__ int gsv_mma_column(int j)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;

    return static_cast<int>(blockIdx.x) * Shape::columns +
           warp % Shape::warps_across * Shape::warp_columns + j * 8 +
           static_cast<int>(threadIdx.x) % GSV_WARP % 4 * 2;
}

/* Grid that covers m x n. */
template <class Shape> dim3 gsv_mma_grid(int m, int n)
{
    return dim3((n + Shape::columns - 1) / Shape::columns, (m + Shape::rows - 1) / Shape::rows);
}

template <class Shape> int64_t gsv_mma_blocks(int m, int n)
{
    const dim3 grid = gsv_mma_grid<Shape>(m, n);

    return static_cast<int64_t>(grid.x) * grid.y;
}

enum gsv_mma_size { GSV_MMA_LARGE, GSV_MMA_MEDIUM, GSV_MMA_SMALL };

/* The largest tile whose blocks occupy the device. */
inline enum gsv_mma_size gsv_mma_choose(int m, int n, int n_processors)
{
    if (m > 16 && gsv_mma_blocks<gsv_mma_large>(m, n) >= n_processors)
        return GSV_MMA_LARGE;
    return m > 16 && gsv_mma_blocks<gsv_mma_medium>(m, n) * 2 >= n_processors ? GSV_MMA_MEDIUM
                                                                              : GSV_MMA_SMALL;
}

#endif
