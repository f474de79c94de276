/*
 * gemm_mma.cuh - the sums of a matrix product on tensor cores, for kernels with different
 * epilogues.
 *
 *   In both operands k is contiguous, so one loop serves every type: a step of mma.sync covers 32
 *   bytes of k (16 halves, two times 4 tf32, 32 int8), a tile 64. A block computes a tile of rows x
 *   columns; cp.async keeps two tiles in flight while the third is computed (3-stage pipeline).
 *   Shared rows are 80 bytes apart, so the 8 rows of an ldmatrix have no bank conflicts.
 *
 *       128 x 128  8 warps of 64 x 32   large products
 *        64 x  64  4 warps of 32 x 32   if large tiles would not fill the device
 *        16 x  64  4 warps of 16 x 16   a few rows: one short text, a head
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
const int GSV_MMA_TILE_BYTES = 64; /* of k */
const int GSV_MMA_STEP_BYTES = 32; /* of k */
const int GSV_MMA_ROW_BYTES = GSV_MMA_TILE_BYTES + 16;
const int GSV_MMA_CHUNKS = GSV_MMA_TILE_BYTES / 16;

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

template <int m, int n, int m_warps, int n_warps> struct gsv_mma_shape {
    static constexpr int rows = m;
    static constexpr int columns = n;
    static constexpr int warps_across = n_warps;
    static constexpr int threads = m_warps * n_warps * GSV_WARP;
    static constexpr int warp_rows = m / m_warps;
    static constexpr int warp_columns = n / n_warps;
    static constexpr int stage_bytes = (m + n) * GSV_MMA_ROW_BYTES;
    static constexpr size_t shared_bytes = static_cast<size_t>(GSV_MMA_STAGES) * stage_bytes;
};

typedef gsv_mma_shape<128, 128, 2, 4> gsv_mma_large;
typedef gsv_mma_shape<64, 64, 2, 2> gsv_mma_medium;
typedef gsv_mma_shape<16, 64, 1, 4> gsv_mma_small;

/* Starts the copy of 64 bytes of k of `rows` rows; elements past the matrix become zeros. */
template <int rows, int threads>
__device__ __forceinline__ void gsv_mma_load_tile(char *to, const char *from, size_t row_bytes,
                                                  int first, int n_rows, int k_at, int k_bytes)
{
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < rows * GSV_MMA_CHUNKS; i += threads) {
        const int row = i / GSV_MMA_CHUNKS;
        const int at = k_at + i % GSV_MMA_CHUNKS * 16;
        const bool there = first + row < n_rows && at < k_bytes;

        gsv_cp_async_16(to + row * GSV_MMA_ROW_BYTES + i % GSV_MMA_CHUNKS * 16,
                        there ? from + (first + row) * row_bytes + at : from, there);
    }
}

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
    const char *const a_from = a_tile + lane % 16 * GSV_MMA_ROW_BYTES + lane / 16 * 16;
    const char *const b_from =
        b_tile + (lane / 16 * 8 + lane % 8) * GSV_MMA_ROW_BYTES + lane / 8 % 2 * 16;

#pragma unroll
    for (int k = 0; k < GSV_MMA_TILE_BYTES; k += GSV_MMA_STEP_BYTES) {
        uint32_t a[Shape::warp_rows / 16][4];

#pragma unroll
        for (int i = 0; i < Shape::warp_rows / 16; i++)
            gsv_ldmatrix_x4(a[i], a_from + i * 16 * GSV_MMA_ROW_BYTES + k);
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j += 2) {
            uint32_t b[4];

            gsv_ldmatrix_x4(b, b_from + j * 8 * GSV_MMA_ROW_BYTES + k);
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

/* Computes the sums of this block's tile; `shared` has Shape::shared_bytes. With overlapping
 * kernels the caller has called gsv_grid_wait(). */
template <class Math, class Shape>
__device__ __forceinline__ void gsv_mma_product(gsv_mma_sums<Math, Shape> &sums,
                                                const gsv_mma_operands &of, char *shared)
{
    constexpr int a_size = Shape::rows * GSV_MMA_ROW_BYTES;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int warp_row = warp / Shape::warps_across * Shape::warp_rows;
    const int warp_column = warp % Shape::warps_across * Shape::warp_columns;
    const int first_row = static_cast<int>(blockIdx.y) * Shape::rows;
    const int first_column = static_cast<int>(blockIdx.x) * Shape::columns;
    const int n_tiles = (of.k_bytes + GSV_MMA_TILE_BYTES - 1) / GSV_MMA_TILE_BYTES;

#pragma unroll
    for (int t = 0; t < GSV_MMA_STAGES - 1; t++) {
        char *const to = shared + t * Shape::stage_bytes;

        gsv_mma_load_tile<Shape::rows, Shape::threads>(to, of.a, of.a_bytes, first_row, of.m,
                                                       t * GSV_MMA_TILE_BYTES, of.k_bytes);
        gsv_mma_load_tile<Shape::columns, Shape::threads>(
            to + a_size, of.b, of.b_bytes, first_column, of.n, t * GSV_MMA_TILE_BYTES, of.k_bytes);
        gsv_cp_async_commit();
    }
    for (int t = 0; t < n_tiles; t++) {
        const int next = t + GSV_MMA_STAGES - 1;
        char *const to = shared + next % GSV_MMA_STAGES * Shape::stage_bytes;
        const char *const from = shared + t % GSV_MMA_STAGES * Shape::stage_bytes;

        gsv_cp_async_wait<GSV_MMA_STAGES - 2>();
        __syncthreads(); /* tile t is loaded, and no thread reads tile t - 1 any more */
        if (next < n_tiles) {
            gsv_mma_load_tile<Shape::rows, Shape::threads>(to, of.a, of.a_bytes, first_row, of.m,
                                                           next * GSV_MMA_TILE_BYTES, of.k_bytes);
            gsv_mma_load_tile<Shape::columns, Shape::threads>(
                to + a_size, of.b, of.b_bytes, first_column, of.n, next * GSV_MMA_TILE_BYTES,
                of.k_bytes);
        }
        gsv_cp_async_commit();
        gsv_mma_multiply_tile<Math, Shape>(sums, from + warp_row * GSV_MMA_ROW_BYTES,
                                           from + a_size + warp_column * GSV_MMA_ROW_BYTES, lane);
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
