/*
 * gemm_wgmma: out = activation(in * weight^T + bias) + residual on the tensor cores of Hopper
 * (sm_90a), of 16-bit floats or signed bytes.
 *
 *   One thread copies tiles of both operands, 128 bytes of k each, to a ring of stages in shared
 *   memory (TMA); warp groups multiply them (wgmma) into registers, then bias, erf GELU and
 *   residual follow, and the rows leave through shared memory in 16 bytes a thread.
 *
 *       128 x 128  two groups take tiles in turn: the tensor cores multiply the tile of one
 *                  while the other finishes and stores its own. A block for each processor walks
 *                  over the tiles (persistent).
 *        64 x  64  one group and one tile a block: few rows, where large tiles would not fill the
 *        64 x  32  device
 *        64 x  64, split-K in 2, 4 or 8 parts: each block of a thread block cluster multiplies one
 *                  part of k, then adds the parts of some columns, in the order of k. It reads them
 *                  from the other blocks (distributed shared memory).
 *
 *   int8 has a large tile only, of 128 x 96: with the scales and column sums of 128 columns
 * registers would be spilled. gemm_s8.cu multiplies fewer rows, with the same bits: integer sums
 * are exact, and gsv_dequantized() makes floats of them in both.
 *
 *   Without a split the order of accumulation over k is the same for every tile, so the bits of an
 *   element do not depend on the number of rows. `fixed_order` asks for that.
 *
 *   Needs:  capability 9.0; rows of all matrices aligned to 16 bytes, n a multiple of 8; any m.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/ops/gemm_wgmma.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/quantize.cuh"
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/types.cuh"

#include <stdlib.h>
#include <string.h>
#include <type_traits>

namespace
{

using namespace wgmma;

typedef wgmma_shape<2, 2, 128, 4> large;
typedef wgmma_shape<2, 2, 96, 5> large_s8;
typedef wgmma_shape<1, 1, 64, 6> medium;
typedef wgmma_shape<1, 1, 32, 8> narrow;
template <int splits> using split = wgmma_shape<1, 1, 64, 5, splits>;

const int MAX_SPLITS = 8;         /* blocks of a cluster */
const int MIN_K_TILES = 3;        /* of a part */
const int MIN_SPLIT_K_TILES = 16; /* with fewer a split does not pay for the sum over the parts */

/* Copies 16 rows between device and shared memory, 16 bytes a thread; rows and columns outside of
 * the matrix are left out. */
template <class Shape, typename T, class Move>
__device__ __forceinline__ void move_rows(const struct gsv_gemm &gemm, char *strip, T *matrix,
                                          int row, int column, int lane, const Move &move)
{
    constexpr int chunks = Shape::own_columns / 8; /* of a row */

#pragma unroll
    for (int i = 0; i < (16 * chunks + GSV_WARP - 1) / GSV_WARP; i++) {
        const int r = (i * GSV_WARP + lane) / chunks;
        const int c = (i * GSV_WARP + lane) % chunks;

        if (r < 16 && row + r < gemm.m && column + c * 8 < gemm.n)
            move(strip + r * Shape::row_bytes + c * 16,
                 matrix + static_cast<size_t>(row + r) * gemm.out_ld + column + c * 8);
    }
}

struct fetch {
    template <typename T>
    __device__ __forceinline__ void operator()(char *shared, const T *at) const
    {
        *reinterpret_cast<uint4 *>(shared) = *reinterpret_cast<const uint4 *>(at);
    }
};

struct put {
    template <typename T> __device__ __forceinline__ void operator()(char *shared, T *at) const
    {
        *reinterpret_cast<uint4 *>(at) = *reinterpret_cast<const uint4 *>(shared);
    }
};

/* A warp: finishes its 16 rows of a strip and stores them. Each step is a loop of its own without
 * branches, so that its elements interleave. */
template <typename T, class Shape, bool gelu>
__device__ __forceinline__ void store_strip(float (&d)[Shape::own_columns / 2],
                                            const struct gsv_gemm &gemm, char *strip, int row,
                                            int column, int lane)
{
    char *const own = strip + lane / 4 * Shape::row_bytes + lane % 4 * 4;
    const int own_column = column + lane % 4 * 2;

    if (gemm.residual) {
        if (Shape::persistent) /* else the rows have been fetched */
            move_rows<Shape>(gemm, strip, static_cast<const T *>(gemm.residual), row, column, lane,
                             fetch());
        __syncwarp();
    }
    if (gemm.bias) {
#pragma unroll
        for (int j = 0; j < Shape::own_columns / 8; j++) {
            const float2 bias =
                own_column + j * 8 < gemm.n
                    ? *reinterpret_cast<const float2 *>(gemm.bias + own_column + j * 8)
                    : make_float2(0.f, 0.f);

            d[j * 4] += bias.x;
            d[j * 4 + 1] += bias.y;
            d[j * 4 + 2] += bias.x;
            d[j * 4 + 3] += bias.y;
        }
    }
    if (gelu && gemm.activation == GPUSERVE_ACT_GELU) {
#pragma unroll
        for (int j = 0; j < Shape::own_columns / 2; j++)
            d[j] = gsv_gelu_of<T>(d[j]);
    }
    if (gemm.residual) {
#pragma unroll
        for (int j = 0; j < Shape::own_columns / 4; j++) {
            const gsv_pair<T> more = *reinterpret_cast<const gsv_pair<T> *>(
                own + j % 2 * 8 * Shape::row_bytes + j / 2 * 16);

            d[j * 2] += gsv_to_float(more.v[0]);
            d[j * 2 + 1] += gsv_to_float(more.v[1]);
        }
    }
#pragma unroll
    for (int j = 0; j < Shape::own_columns / 4; j++)
        *reinterpret_cast<gsv_pair<T> *>(own + j % 2 * 8 * Shape::row_bytes + j / 2 * 16) =
            gsv_make_pair(d[j * 2], d[j * 2 + 1], T());
    __syncwarp();
    move_rows<Shape>(gemm, strip, static_cast<T *>(gemm.out), row, column, lane, put());
    __syncwarp(); /* the next strip overwrites the rows */
}

/* Dequantization parameters of a product: scales and zero points. None for 16-bit floats. */
template <typename T> struct dequantizer {
};
template <> struct dequantizer<int8_t> {
    struct gsv_int8_rows rows;
    struct gsv_int8_weights weights;
};

/* A warp: the integer sums of its 16 rows of a strip as floats. */
template <class Shape>
__device__ __forceinline__ void
dequantize(float (&d)[Shape::columns / 2], const int32_t (&sums)[Shape::columns / 2],
           const dequantizer<int8_t> &by, const struct gsv_gemm &gemm, int row, int column,
           int lane)
{
    const int own_column = column + lane % 4 * 2;
    const float2 *const column_sums =
        reinterpret_cast<const float2 *>(by.weights.column_sum + own_column);
    const float2 *const scales = reinterpret_cast<const float2 *>(by.weights.scale + own_column);
    float step[2] = {};
    float min[2] = {};

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int own_row = row + lane / 4 + i * 8;

        if (own_row < gemm.m) {
            step[i] = by.rows.step[own_row];
            min[i] = by.rows.min[own_row];
        }
    }
#pragma unroll
    for (int j = 0; j < Shape::columns / 8; j++) {
        const bool inside = own_column + j * 8 < gemm.n;
        const float2 sum = inside ? column_sums[j * 4] : make_float2(0.f, 0.f);
        const float2 scale = inside ? scales[j * 4] : make_float2(0.f, 0.f);

#pragma unroll
        for (int i = 0; i < 2; i++) {
            d[j * 4 + i * 2] =
                gsv_dequantized(sums[j * 4 + i * 2], step[i], min[i], sum.x, scale.x);
            d[j * 4 + i * 2 + 1] =
                gsv_dequantized(sums[j * 4 + i * 2 + 1], step[i], min[i], sum.y, scale.y);
        }
    }
}

/* A group: adds the parts of k of this block's columns, in the order of k. */
template <typename T, class Shape>
__device__ __forceinline__ void add_parts(float (&d)[Shape::own_columns / 2],
                                          const group_sums<T, Shape> &sums, const ring<Shape> &to)
{
    constexpr int quads = Shape::own_columns / 8;
    float4 *const part = to.part + threadIdx.x;

#pragma unroll
    for (int j = 0; j < Shape::columns / 8; j++)
        part[j * GROUP] = make_float4(sums.at[0][j * 4], sums.at[0][j * 4 + 1],
                                      sums.at[0][j * 4 + 2], sums.at[0][j * 4 + 3]);
    gsv_cluster_arrive();
    gsv_cluster_wait();
#pragma unroll
    for (int j = 0; j < quads; j++) {
        const float4 *const from = part + (static_cast<int>(blockIdx.z) * quads + j) * GROUP;
        float4 x[Shape::splits];

#pragma unroll
        for (int s = 0; s < Shape::splits; s++)
            x[s] = gsv_cluster_load(from, s);
#pragma unroll
        for (int s = 1; s < Shape::splits; s++) {
            x[0].x += x[s].x;
            x[0].y += x[s].y;
            x[0].z += x[s].z;
            x[0].w += x[s].w;
        }
        d[j * 4] = x[0].x;
        d[j * 4 + 1] = x[0].y;
        d[j * 4 + 2] = x[0].z;
        d[j * 4 + 3] = x[0].w;
    }
    gsv_cluster_arrive(); /* the other blocks may end */
}

/* A warp of a block with one tile, or with a part of it. */
template <typename T, class Shape, bool gelu>
__device__ __forceinline__ void
multiply_one_tile(const ring<Shape> &from, const struct gsv_gemm &gemm, const tile_list &list)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    char *const strip = from.finished + warp * Shape::warp_bytes;
    const int row = first_row<Shape>(0, 0) + warp * 16;
    const int column =
        first_column<Shape>(0, 0) + static_cast<int>(blockIdx.z) * Shape::own_columns;
    group_sums<T, Shape> sums;

    static_assert(Shape::strips == 1, "one strip");
    gsv_grid_wait();
    if (gemm.residual) /* arrives while the first copies are on their way */
        move_rows<Shape>(gemm, strip, static_cast<const T *>(gemm.residual), row, column, lane,
                         fetch());
    multiply_tile<T, Shape>(sums, from, { 0, 0 }, k_part<Shape>(list).count, lane == 0);
    gsv_wgmma_wait<0>();
    gsv_wgmma_sums_done(sums.at[0]);
    if constexpr (Shape::splits == 1) {
        store_strip<T, Shape, gelu>(sums.at[0], gemm, strip, row, column, lane);
    } else {
        float d[Shape::own_columns / 2];

        add_parts<T, Shape>(d, sums, from);
        store_strip<T, Shape, gelu>(d, gemm, strip, row, column, lane);
        gsv_cluster_wait();
    }
}

/* A warp of a group: its part of the group's tiles. */
template <typename T, class Shape, bool gelu>
__device__ __forceinline__ void multiply_tiles(const ring<Shape> &from, const struct gsv_gemm &gemm,
                                               const dequantizer<T> &by, const tile_list &list)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int group = warp / GROUP_WARPS;
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    const bool signals = lane == 0;
    const int step = Shape::groups * static_cast<int>(gridDim.x);
    int passed = group * list.k_tiles; /* stages ahead of this tile's, of both groups */
    int phase = group == 0 ? 1 : 0;    /* of the turn: the first of group 0 has come */

    for (int tile = static_cast<int>(blockIdx.x + group * gridDim.x); tile < list.n_tiles;
         tile += step) {
        ring_position<Shape> at = { passed % Shape::stages, passed / Shape::stages & 1 };
        const int last = (passed + list.k_tiles - 1) % Shape::stages;
        group_sums<T, Shape> sums;

        gsv_barrier_wait(from.turn + group, phase);
        multiply_tile<T, Shape>(sums, from, at, list.k_tiles, signals);
        if (signals)
            gsv_barrier_arrive(from.turn + (group + 1) % Shape::groups);
        gsv_wgmma_wait<0>();
        if (signals)
            gsv_barrier_arrive(from.empty + last);
        gsv_grid_wait();
#pragma unroll
        for (int i = 0; i < Shape::strips; i++) {
            const int row = first_row<Shape>(tile, list.across) + i * 64 + warp % GROUP_WARPS * 16;
            const int column = first_column<Shape>(tile, list.across);
            char *const strip = from.finished + warp * Shape::warp_bytes;

            gsv_wgmma_sums_done(sums.at[i]);
            if constexpr (std::is_same<T, int8_t>::value) {
                const int fresh = gsv_fresh(column), fresh_lane = gsv_fresh(lane);
                float d[Shape::columns / 2];

                dequantize<Shape>(d, sums.at[i], by, gemm, row, fresh, fresh_lane);
                store_strip<half, Shape, gelu>(d, gemm, strip, row, fresh, fresh_lane);
            } else {
                store_strip<T, Shape, gelu>(sums.at[i], gemm, strip, row, column, lane);
            }
        }
        passed = (passed + Shape::groups * list.k_tiles) % (2 * Shape::stages); /* two phases */
        phase ^= 1;
    }
}

template <typename T, class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    gemm_wgmma(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap weight,
               const struct gsv_gemm gemm, const dequantizer<T> by, const tile_list list)
{
    GSV_SHARED(char, memory);
    const ring<Shape> stages(memory);
    const int group = static_cast<int>(threadIdx.x) / GROUP;

    if (threadIdx.x == 0)
        stages.init();
    __syncthreads();
    if (group == Shape::groups) {
        if (Shape::persistent)
            gsv_registers_release<40>();
        if (threadIdx.x == Shape::groups * GROUP)
            copy_tiles<T, Shape>(stages, &in, &weight, list);
        return;
    }
    if (Shape::persistent)
        gsv_registers_acquire<232>();
    if constexpr (Shape::persistent)
        multiply_tiles<T, Shape, gelu>(stages, gemm, by, list);
    else
        multiply_one_tile<T, Shape, gelu>(stages, gemm, list);
}

/* cuTensorMapEncodeTiled of the driver, which the plugin does not link. */
decltype(&cuTensorMapEncodeTiled) encode;

/* Map of a row-major matrix [rows, k], read in boxes of `box_rows` rows and k_tile columns. */
template <typename T>
bool make_map(CUtensorMap *map, const void *matrix, int rows, int k, int ld, int box_rows)
{
    const cuuint64_t sizes[] = { static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows) };
    const cuuint64_t strides[] = { ld * sizeof(T) };
    const cuuint32_t box[] = { k_tile<T>, static_cast<cuuint32_t>(box_rows) };
    const cuuint32_t steps[] = { 1, 1 };
    const CUtensorMapDataType type = std::is_same<T, int8_t>::value ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : std::is_same<T, half>::value
                                         ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const auto encode_map = __atomic_load_n(&encode, __ATOMIC_RELAXED);

    return encode_map(map, type, 2, const_cast<void *>(matrix), sizes, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <typename T, class Shape>
cudaError_t launch_shape(const struct gsv_gemm *gemm, const dequantizer<T> &by, int n_processors,
                         cudaStream_t stream)
{
    const int across = (gemm->n + Shape::columns - 1) / Shape::columns;
    const int down = (gemm->m + Shape::rows - 1) / Shape::rows;
    const tile_list list = { across, Shape::persistent ? across * down : 1,
                             (gemm->k + k_tile<T> - 1) / k_tile<T> };
    const dim3 grid = Shape::persistent ? dim3(min(list.n_tiles, n_processors))
                                        : dim3(across, down, Shape::splits);
    CUtensorMap in;
    CUtensorMap weight;

    if (!make_map<T>(&in, gemm->in, gemm->m, gemm->k, gemm->in_ld, Shape::rows) ||
        !make_map<T>(&weight, gemm->weight, gemm->n, gemm->k, gemm->weight_ld, Shape::columns))
        return cudaErrorInvalidValue;
    if constexpr (Shape::splits > 1) /* few kernels: these test for GELU when they run */
        return GSV_LAUNCH_CLUSTER((gemm_wgmma<T, Shape, true>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, in, weight, *gemm, by, list);
    else if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_wgmma<T, Shape, true>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, in, weight, *gemm, by, list);
    else
        return GSV_LAUNCH_OVERLAP((gemm_wgmma<T, Shape, false>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, in, weight, *gemm, by, list);
}

template <class Shape> int64_t tiles_of(const struct gsv_gemm *gemm)
{
    return static_cast<int64_t>((gemm->n + Shape::columns - 1) / Shape::columns) *
           ((gemm->m + Shape::rows - 1) / Shape::rows);
}

template <class Shape> bool fills_half(const struct gsv_gemm *gemm, int n_processors)
{
    return tiles_of<Shape>(gemm) * 2 >= n_processors;
}

/* Parts of k (split-K): as many as find free processors and have MIN_K_TILES or more. 1: a split
 * would not pay for the sum over its parts. */
int splits_of(const struct gsv_gemm *gemm, int n_processors)
{
    const int k_tiles = (gemm->k + k_tile<half> - 1) / k_tile<half>;
    int splits = 1;

    if (gemm->fixed_order || k_tiles < MIN_SPLIT_K_TILES)
        return 1;
    while (splits < MAX_SPLITS && tiles_of<split<2>>(gemm) * splits * 2 <= n_processors &&
           k_tiles >= splits * 2 * MIN_K_TILES)
        splits *= 2;
    return splits;
}

/* The largest tile that fills half of the device or more; for fewer rows parts of k. Measured on an
 * H200. */
template <typename T>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    const dequantizer<T> none = {};

    if (fills_half<large>(gemm, n_processors))
        return launch_shape<T, large>(gemm, none, n_processors, stream);
    switch (splits_of(gemm, n_processors)) {
    case 2:
        return launch_shape<T, split<2>>(gemm, none, n_processors, stream);
    case 4:
        return launch_shape<T, split<4>>(gemm, none, n_processors, stream);
    case 8:
        return launch_shape<T, split<8>>(gemm, none, n_processors, stream);
    default:
        break;
    }
    if (tiles_of<narrow>(gemm) * 4 > 3 * static_cast<int64_t>(n_processors))
        return launch_shape<T, medium>(gemm, none, n_processors, stream);
    return launch_shape<T, narrow>(gemm, none, n_processors, stream);
}

template <typename T, class Shape> cudaError_t allow_shared(void)
{
    cudaError_t code = cudaSuccess;

    if constexpr (Shape::splits == 1)
        code = GSV_ALLOW_SHARED((gemm_wgmma<T, Shape, false>), Shape::shared_bytes);
    return code == cudaSuccess ? GSV_ALLOW_SHARED((gemm_wgmma<T, Shape, true>), Shape::shared_bytes)
                               : code;
}

template <typename T, class... Shapes> cudaError_t allow_each(void)
{
    cudaError_t code = cudaSuccess;

    ((code = code == cudaSuccess ? allow_shared<T, Shapes>() : code), ...);
    return code;
}

template <typename T> cudaError_t allow_all(void)
{
    return allow_each<T, large, medium, narrow, split<2>, split<4>, split<8>>();
}

/* True if the outputs can be stored. */
bool fits_outputs(const struct gsv_gemm *gemm)
{
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(gemm->out) | reinterpret_cast<uintptr_t>(gemm->residual);

    return addresses % 16 == 0 && reinterpret_cast<uintptr_t>(gemm->bias) % 8 == 0 &&
           (gemm->n | gemm->out_ld) % 8 == 0 && tiles_of<large>(gemm) <= INT32_MAX / 2;
}

} /* namespace */

bool gsv_cuda_gemm_has_wgmma(const struct gsv_gemm *gemm, enum gsv_math math)
{
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(gemm->in) | reinterpret_cast<uintptr_t>(gemm->weight);

    return (math == GSV_MATH_F16 || math == GSV_MATH_BF16) && addresses % 16 == 0 &&
           (gemm->k | gemm->in_ld | gemm->weight_ld) % 8 == 0 && fits_outputs(gemm);
}

cudaError_t gsv_cuda_gemm_wgmma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                                cudaStream_t stream)
{
    return math == GSV_MATH_F16 ? launch<half>(gemm, n_processors, stream)
                                : launch<__nv_bfloat16>(gemm, n_processors, stream);
}

bool gsv_cuda_gemm_s8_has_wgmma(const struct gsv_gemm *gemm, int n_processors)
{
    return fits_outputs(gemm) && fills_half<large_s8>(gemm, n_processors);
}

cudaError_t gsv_cuda_gemm_s8_wgmma(const struct gsv_gemm *gemm,
                                   const struct gsv_int8_weights *weights,
                                   const struct gsv_int8_rows *rows, int n_processors,
                                   cudaStream_t stream)
{
    const dequantizer<int8_t> by = { *rows, *weights };
    struct gsv_gemm bytes = *gemm;

    bytes.in = rows->values;
    bytes.in_ld = rows->ld;
    bytes.weight = weights->values;
    bytes.weight_ld = weights->k_up;
    bytes.k = weights->k_up;
    return launch_shape<int8_t, large_s8>(&bytes, by, n_processors, stream);
}

cudaError_t gsv_cuda_gemm_wgmma_prepare(int capability, bool *available)
{
    const char *const wanted = getenv("GPUSERVE_WGMMA");
    cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    cudaError_t code;

    *available = false;
    if (capability != 90 || (wanted && strcmp(wanted, "0") == 0))
        return cudaSuccess;
#if CUDART_VERSION >= 12050
    code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                            cudaEnableDefault, &result);
#else
    code = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (code != cudaSuccess)
        return code;
    if (!found || result != cudaDriverEntryPointSuccess)
        return cudaSuccess; /* an old driver: mma.sync multiplies */
    __atomic_store_n(&encode, reinterpret_cast<decltype(encode)>(found), __ATOMIC_RELAXED);
    code = allow_all<half>();
    if (code == cudaSuccess)
        code = allow_all<__nv_bfloat16>();
    if (code == cudaSuccess)
        code = allow_each<int8_t, large_s8>();
    *available = code == cudaSuccess;
    return code;
}
