/*
 * gemm_mma: out = activation(in * weight^T + bias) + residual on tensor cores.
 *
 *   Both operands lie with k contiguous, so one kernel serves every type: a step of mma.sync takes
 *   32 bytes of k (16 halves, or two times 4 tf32), a tile 64. A block computes a tile of
 *   rows x columns; cp.async keeps two tiles on their way while the third is computed. Shared rows
 *   are 80 bytes apart, so that the 8 rows of an ldmatrix meet no common bank. The epilogue
 *   works on the accumulators: bias, erf GELU and the residual cost no further pass over memory.
 *
 *       128 x 128  8 warps of 64 x 32   the large products
 *        64 x  64  4 warps of 32 x 32   when the large tiles would not fill the device
 *        16 x  64  4 warps of 16 x 16   a few rows: one short text, a head
 *
 *   An element is accumulated over k in one order whatever the tile: its bits do not depend on
 *   how many rows there are.
 *
 *   Needs:  rows of `in` and `weight` that begin at multiples of 16 bytes; m, n any.
 *   Oracle: kernels/ref.
 */
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/types.cuh"

namespace
{

const int STAGES = 3;
const int TILE_BYTES = 64; /* of k */
const int STEP_BYTES = 32; /* of k */
const int ROW_BYTES = TILE_BYTES + 16;
const int CHUNKS = TILE_BYTES / 16;

/* One step: d += a b over 32 bytes of k. */
struct math_f16 {
    typedef half element;

    static __device__ __forceinline__ void step(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        gsv_mma_m16n8k16(d, a, b, half());
    }
};

struct math_bf16 {
    typedef __nv_bfloat16 element;

    static __device__ __forceinline__ void step(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
    {
        gsv_mma_m16n8k16(d, a, b, __nv_bfloat16());
    }
};

/* 8 floats of k. The tensor core would cut the low bits off, which biases towards zero. */
struct math_tf32 {
    typedef float element;

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

template <int m, int n, int m_warps, int n_warps> struct shape {
    static constexpr int rows = m;
    static constexpr int columns = n;
    static constexpr int warps_across = n_warps;
    static constexpr int threads = m_warps * n_warps * GSV_WARP;
    static constexpr int warp_rows = m / m_warps;
    static constexpr int warp_columns = n / n_warps;
    static constexpr int stage_bytes = (m + n) * ROW_BYTES;
    static constexpr size_t shared_bytes = static_cast<size_t>(STAGES) * stage_bytes;
};

typedef shape<128, 128, 2, 4> large_shape;
typedef shape<64, 64, 2, 2> medium_shape;
typedef shape<16, 64, 1, 4> small_shape;

/* Start copying 64 bytes of k of `rows` rows; what lies past the matrix becomes zeros. */
template <int rows, int threads>
__device__ __forceinline__ void load_tile(char *to, const char *from, size_t row_bytes, int first,
                                          int n_rows, int k_at, int k_bytes)
{
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < rows * CHUNKS; i += threads) {
        const int row = i / CHUNKS;
        const int at = k_at + i % CHUNKS * 16;
        const bool there = first + row < n_rows && at < k_bytes;

        gsv_cp_async_16(to + row * ROW_BYTES + i % CHUNKS * 16,
                        there ? from + (first + row) * row_bytes + at : from, there);
    }
}

/* Multiply one tile that lies in shared memory into the warp's accumulators. */
template <class Math, class Shape>
__device__ __forceinline__ void
multiply_tile(float (&sums)[Shape::warp_rows / 16][Shape::warp_columns / 8][4], const char *a_tile,
              const char *b_tile, int lane)
{
    /* A: matrices rows 0-7 and 8-15 of the lower, then of the upper 16 bytes.
     * B: columns 0-7 lower, upper, columns 8-15 lower, upper. */
    const char *const a_from = a_tile + lane % 16 * ROW_BYTES + lane / 16 * 16;
    const char *const b_from = b_tile + (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16;

#pragma unroll
    for (int k = 0; k < TILE_BYTES; k += STEP_BYTES) {
        uint32_t a[Shape::warp_rows / 16][4];

#pragma unroll
        for (int i = 0; i < Shape::warp_rows / 16; i++)
            gsv_ldmatrix_x4(a[i], a_from + i * 16 * ROW_BYTES + k);
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j += 2) {
            uint32_t b[4];

            gsv_ldmatrix_x4(b, b_from + j * 8 * ROW_BYTES + k);
            const uint32_t low[2] = { b[0], b[1] };
            const uint32_t high[2] = { b[2], b[3] };
#pragma unroll
            for (int i = 0; i < Shape::warp_rows / 16; i++) {
                Math::step(sums[i][j], a[i], low);
                Math::step(sums[i][j + 1], a[i], high);
            }
        }
    }
}

/* Two neighbouring outputs. `pairs`: columns come in aligned twos. */
template <typename T, bool gelu>
__device__ __forceinline__ void store_pair(const struct gsv_gemm &gemm, int row, int column,
                                           float x, float y, bool pairs)
{
    const size_t at = static_cast<size_t>(row) * gemm.out_ld + column;
    T *const out = static_cast<T *>(gemm.out) + at;
    const T *const residual = static_cast<const T *>(gemm.residual) + at;
    const bool both = column + 1 < gemm.n;

    if (row >= gemm.m || column >= gemm.n)
        return;
    if (gemm.bias) {
        x += gemm.bias[column];
        y += both ? gemm.bias[column + 1] : 0.f;
    }
    if (gelu) {
        x = gsv_gelu(x);
        y = gsv_gelu(y);
    }
    if (pairs) {
        if (gemm.residual) {
            const gsv_pair<T> more = *reinterpret_cast<const gsv_pair<T> *>(residual);
            x += gsv_to_float(more.v[0]);
            y += gsv_to_float(more.v[1]);
        }
        *reinterpret_cast<gsv_pair<T> *>(out) = gsv_make_pair(x, y, T());
        return;
    }
    out[0] = gsv_from_float<T>(gemm.residual ? x + gsv_to_float(residual[0]) : x);
    if (both)
        out[1] = gsv_from_float<T>(gemm.residual ? y + gsv_to_float(residual[1]) : y);
}

template <class Math, class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads)
    gemm_mma(const struct gsv_gemm gemm, const bool pairs)
{
    GSV_SHARED(char, shared); /* [STAGES][rows of A, then of B][ROW_BYTES] */
    typedef typename Math::element T;
    constexpr int a_bytes = Shape::rows * ROW_BYTES;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int warp_row = warp / Shape::warps_across * Shape::warp_rows;
    const int warp_column = warp % Shape::warps_across * Shape::warp_columns;
    const int first_row = static_cast<int>(blockIdx.y) * Shape::rows;
    const int first_column = static_cast<int>(blockIdx.x) * Shape::columns;
    const char *const in = static_cast<const char *>(gemm.in);
    const char *const weight = static_cast<const char *>(gemm.weight);
    const size_t in_bytes = gemm.in_ld * sizeof(T);
    const size_t weight_bytes = gemm.weight_ld * sizeof(T);
    const int k_bytes = gemm.k * static_cast<int>(sizeof(T));
    const int n_tiles = (k_bytes + TILE_BYTES - 1) / TILE_BYTES;
    float sums[Shape::warp_rows / 16][Shape::warp_columns / 8][4] = {};

    gsv_grid_wait();
    gsv_grid_launch_next();
#pragma unroll
    for (int t = 0; t < STAGES - 1; t++) {
        char *const to = shared + t * Shape::stage_bytes;

        load_tile<Shape::rows, Shape::threads>(to, in, in_bytes, first_row, gemm.m, t * TILE_BYTES,
                                               k_bytes);
        load_tile<Shape::columns, Shape::threads>(to + a_bytes, weight, weight_bytes, first_column,
                                                  gemm.n, t * TILE_BYTES, k_bytes);
        gsv_cp_async_commit();
    }
    for (int t = 0; t < n_tiles; t++) {
        const int next = t + STAGES - 1;
        char *const to = shared + next % STAGES * Shape::stage_bytes;
        const char *const from = shared + t % STAGES * Shape::stage_bytes;

        gsv_cp_async_wait<STAGES - 2>();
        __syncthreads(); /* tile t is there, and nobody reads tile t - 1 any more */
        if (next < n_tiles) {
            load_tile<Shape::rows, Shape::threads>(to, in, in_bytes, first_row, gemm.m,
                                                   next * TILE_BYTES, k_bytes);
            load_tile<Shape::columns, Shape::threads>(to + a_bytes, weight, weight_bytes,
                                                      first_column, gemm.n, next * TILE_BYTES,
                                                      k_bytes);
        }
        gsv_cp_async_commit();
        multiply_tile<Math, Shape>(sums, from + warp_row * ROW_BYTES,
                                   from + a_bytes + warp_column * ROW_BYTES, lane);
    }
#pragma unroll
    for (int i = 0; i < Shape::warp_rows / 16; i++) {
#pragma unroll
        for (int j = 0; j < Shape::warp_columns / 8; j++) {
            const int row = first_row + warp_row + i * 16 + lane / 4;
            const int column = first_column + warp_column + j * 8 + lane % 4 * 2;

            store_pair<T, gelu>(gemm, row, column, sums[i][j][0], sums[i][j][1], pairs);
            store_pair<T, gelu>(gemm, row + 8, column, sums[i][j][2], sums[i][j][3], pairs);
        }
    }
}

template <class Math, class Shape>
cudaError_t launch_shape(const struct gsv_gemm *gemm, cudaStream_t stream)
{
    const size_t pair_bytes = 2 * sizeof(typename Math::element);
    const bool pairs = gemm->n % 2 == 0 && gemm->out_ld % 2 == 0 &&
                       reinterpret_cast<uintptr_t>(gemm->out) % pair_bytes == 0 &&
                       reinterpret_cast<uintptr_t>(gemm->residual) % pair_bytes == 0;
    const dim3 grid((gemm->n + Shape::columns - 1) / Shape::columns,
                    (gemm->m + Shape::rows - 1) / Shape::rows);

    if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_mma<Math, Shape, true>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, *gemm, pairs);
    return GSV_LAUNCH_OVERLAP((gemm_mma<Math, Shape, false>), grid, Shape::threads,
                              Shape::shared_bytes, stream, *gemm, pairs);
}

template <class Shape> int64_t n_blocks(const struct gsv_gemm *gemm)
{
    return static_cast<int64_t>((gemm->m + Shape::rows - 1) / Shape::rows) *
           ((gemm->n + Shape::columns - 1) / Shape::columns);
}

/* The largest tile whose blocks keep the device busy. */
template <class Math>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    if (gemm->m > 16 && n_blocks<large_shape>(gemm) >= n_processors)
        return launch_shape<Math, large_shape>(gemm, stream);
    if (gemm->m > 16 && n_blocks<medium_shape>(gemm) * 2 >= n_processors)
        return launch_shape<Math, medium_shape>(gemm, stream);
    return launch_shape<Math, small_shape>(gemm, stream);
}

template <class Math> cudaError_t allow_shared(void)
{
    const cudaError_t error =
        GSV_ALLOW_SHARED((gemm_mma<Math, large_shape, false>), large_shape::shared_bytes);

    return error == cudaSuccess
               ? GSV_ALLOW_SHARED((gemm_mma<Math, large_shape, true>), large_shape::shared_bytes)
               : error;
}

} /* namespace */

bool gsv_cuda_gemm_has_mma(const struct gsv_gemm *gemm, enum gsv_math math)
{
    const int size = math == GSV_MATH_TF32 ? 4 : 2;

    return math != GSV_MATH_F32 && gemm->k * size % 16 == 0 && gemm->in_ld * size % 16 == 0 &&
           gemm->weight_ld * size % 16 == 0 && reinterpret_cast<uintptr_t>(gemm->in) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(gemm->weight) % 16 == 0;
}

cudaError_t gsv_cuda_gemm_mma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                              cudaStream_t stream)
{
    switch (math) {
    case GSV_MATH_F16:
        return launch<math_f16>(gemm, n_processors, stream);
    case GSV_MATH_BF16:
        return launch<math_bf16>(gemm, n_processors, stream);
    default:
        return launch<math_tf32>(gemm, n_processors, stream);
    }
}

cudaError_t gsv_cuda_gemm_mma_prepare(void)
{
    cudaError_t error = allow_shared<math_f16>();

    if (error == cudaSuccess)
        error = allow_shared<math_bf16>();
    return error == cudaSuccess ? allow_shared<math_tf32>() : error;
}
