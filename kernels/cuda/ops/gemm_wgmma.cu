/*
 * gemm_wgmma: out = activation(in * weight^T + bias) + residual on the tensor cores of Hopper
 * (sm_90a).
 *
 *   One thread copies tiles of both operands, 64 elements of k each, to a ring of stages in shared
 *   memory (TMA); warp groups multiply them (wgmma) into registers, then bias, erf GELU and
 *   residual follow, and the rows leave through shared memory in 16 bytes a thread.
 *
 *       128 x 128  two groups take tiles in turn: the tensor cores multiply the tile of one
 *                  while the other finishes and stores its own. A block for each processor walks
 *                  over the tiles (persistent).
 *        64 x  64  one group and one tile a block: few rows, where large tiles would not fill the
 *        64 x  32  device
 *
 *   The order of accumulation over k is the same for every tile, so the bits of an element do not
 *   depend on the number of rows.
 *
 *   Needs:  capability 9.0; rows of all matrices aligned to 16 bytes, n a multiple of 8; any m.
 *   Oracle: kernels/ref/linear.c.
 */
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/ptx_hopper.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/types.cuh"

#include <stdlib.h>
#include <string.h>
#include <type_traits>

namespace
{

const int K_TILE = 64;          /* elements of k in a stage */
const int K_BYTES = 128;        /* the same in bytes: a row of the 128-byte swizzle */
const int GROUP = 128;          /* threads of a warp group */
const int GROUP_WARPS = 4;      /* each has 16 rows of the group's 64 */
const int SWIZZLE_BYTES = 1024; /* alignment of a tile */

/* `n_strips`: 64-row strips of a tile, all of one group. */
template <int n_groups, int n_strips, int n_columns, int n_stages> struct wgmma_shape {
    static constexpr int groups = n_groups;
    static constexpr int strips = n_strips;
    static constexpr int rows = 64 * n_strips;
    static constexpr int columns = n_columns;
    static constexpr int stages = n_stages;
    static constexpr bool persistent = n_groups > 1;
    /* setmaxnreg moves registers between warp groups, so the copying warp is one of a group. */
    static constexpr int threads = n_groups * GROUP + (persistent ? GROUP : GSV_WARP);
    static constexpr int blocks = persistent ? 1 : 2; /* on a processor */
    static constexpr int in_bytes = rows * K_BYTES;
    static constexpr int stage_bytes = (rows + columns) * K_BYTES;
    static constexpr int row_bytes = columns * 2 + 16; /* odd multiple of 16: no bank conflicts */
    static constexpr int warp_bytes = 16 * row_bytes;  /* of finished rows */
    static constexpr int n_barriers = 2 * stages + (persistent ? groups : 0);
    static constexpr int shared_bytes =
        SWIZZLE_BYTES + stages * stage_bytes + groups * GROUP_WARPS * warp_bytes + n_barriers * 8;
};

typedef wgmma_shape<2, 2, 128, 4> large;
typedef wgmma_shape<1, 1, 64, 6> medium;
typedef wgmma_shape<1, 1, 32, 8> narrow;

struct tile_list {
    int across;  /* tiles side by side */
    int n_tiles; /* of a persistent grid; else 1 */
    int k_tiles;
};

/* Shared memory of a block. */
template <class Shape> struct ring {
    char *tiles;     /* stages: rows of `in`, then rows of the weights */
    char *finished;  /* warp_bytes for each warp */
    uint64_t *full;  /* of each stage: its bytes have come */
    uint64_t *empty; /* of each stage: the warps of a group have multiplied it */
    uint64_t *turn;  /* of each group: it may multiply */

    __device__ __forceinline__ explicit ring(char *memory)
    {
        tiles = memory + (-gsv_shared_address(memory) & (SWIZZLE_BYTES - 1));
        finished = tiles + Shape::stages * Shape::stage_bytes;
        full = reinterpret_cast<uint64_t *>(finished +
                                            Shape::groups * GROUP_WARPS * Shape::warp_bytes);
        empty = full + Shape::stages;
        turn = empty + Shape::stages;
    }

    __device__ __forceinline__ void init() const
    {
        for (int i = 0; i < Shape::stages; i++) {
            gsv_barrier_init(full + i, 1);
            gsv_barrier_init(empty + i, GROUP_WARPS);
        }
        for (int i = 0; i < (Shape::persistent ? Shape::groups : 0); i++)
            gsv_barrier_init(turn + i, GROUP_WARPS);
        gsv_barrier_publish();
    }
};

/* A position in the ring; `phase`: parity of the phase that is waited for. */
template <class Shape> struct ring_position {
    int stage;
    int phase;

    __device__ __forceinline__ void advance()
    {
        if (++stage < Shape::stages)
            return;
        stage = 0;
        phase ^= 1;
    }

    __device__ __forceinline__ int before() const
    {
        return (stage == 0 ? Shape::stages : stage) - 1;
    }
};

template <class Shape> __device__ __forceinline__ int first_row(int tile, int across)
{
    return (Shape::persistent ? tile / across : static_cast<int>(blockIdx.y)) * Shape::rows;
}

template <class Shape> __device__ __forceinline__ int first_column(int tile, int across)
{
    return (Shape::persistent ? tile % across : static_cast<int>(blockIdx.x)) * Shape::columns;
}

/* One thread: copies the stages of all tiles of this block. The weights are constant, so the
 * copies of the first stages begin before the kernel ahead has written `in`. */
template <class Shape>
__device__ __forceinline__ void copy_tiles(const ring<Shape> &to, const CUtensorMap *in,
                                           const CUtensorMap *weight, const tile_list &list)
{
    const int ahead = min(list.k_tiles, Shape::stages);
    ring_position<Shape> at = { ahead % Shape::stages, ahead == Shape::stages ? 0 : 1 };
    int tile = Shape::persistent ? static_cast<int>(blockIdx.x) : 0;
    int t = ahead;

    for (int i = 0; i < ahead; i++) {
        gsv_barrier_expect(to.full + i, Shape::stage_bytes);
        gsv_tma_load(to.tiles + i * Shape::stage_bytes + Shape::in_bytes, weight, i * K_TILE,
                     first_column<Shape>(tile, list.across), to.full + i);
    }
    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int i = 0; i < ahead; i++)
        gsv_tma_load(to.tiles + i * Shape::stage_bytes, in, i * K_TILE,
                     first_row<Shape>(tile, list.across), to.full + i);
    for (; tile < list.n_tiles; tile += static_cast<int>(gridDim.x)) {
        const int row = first_row<Shape>(tile, list.across);
        const int column = first_column<Shape>(tile, list.across);

        for (; t < list.k_tiles; t++) {
            char *const stage = to.tiles + at.stage * Shape::stage_bytes;

            gsv_barrier_wait(to.empty + at.stage, at.phase);
            gsv_barrier_expect(to.full + at.stage, Shape::stage_bytes);
            gsv_tma_load(stage, in, t * K_TILE, row, to.full + at.stage);
            gsv_tma_load(stage + Shape::in_bytes, weight, t * K_TILE, column, to.full + at.stage);
            at.advance();
        }
        t = 0;
    }
}

/* Sums of a group's tile. */
template <class Shape> struct group_sums {
    float at[Shape::strips][Shape::columns / 2];
};

/* A group: multiplies the stages of one tile, the first at `at`. */
template <typename T, class Shape>
__device__ __forceinline__ void multiply_tile(group_sums<Shape> &sums, const ring<Shape> &from,
                                              ring_position<Shape> at, int k_tiles, bool signals)
{
    const uint64_t in = gsv_wgmma_operand(from.tiles);
    const uint64_t weight = gsv_wgmma_operand(from.tiles + Shape::in_bytes);

    for (int t = 0; t < k_tiles; t++) {
        const int stage = at.stage * (Shape::stage_bytes / 16);

        gsv_barrier_wait(from.full + at.stage, at.phase);
        gsv_wgmma_fence();
#pragma unroll
        for (int k = 0; k < K_BYTES / 16; k += 2)
#pragma unroll
            for (int i = 0; i < Shape::strips; i++)
                gsv_wgmma(sums.at[i], in + stage + i * (64 * K_BYTES / 16) + k, weight + stage + k,
                          t > 0 || k > 0, T());
        gsv_wgmma_commit();
        gsv_wgmma_wait<1>(); /* the stage before is multiplied */
        if (signals && t > 0)
            gsv_barrier_arrive(from.empty + at.before());
        at.advance();
    }
}

/* Copies 16 rows between device and shared memory, 16 bytes a thread; rows and columns outside of
 * the matrix are left out. */
template <class Shape, typename T, class Move>
__device__ __forceinline__ void move_rows(const struct gsv_gemm &gemm, char *strip, T *matrix,
                                          int row, int column, const Move &move)
{
    constexpr int chunks = Shape::columns / 8; /* of a row */
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;

#pragma unroll
    for (int i = 0; i < 16 * chunks / GSV_WARP; i++) {
        const int r = (i * GSV_WARP + lane) / chunks;
        const int c = (i * GSV_WARP + lane) % chunks;

        if (row + r < gemm.m && column + c * 8 < gemm.n)
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
__device__ __forceinline__ void store_strip(float (&d)[Shape::columns / 2],
                                            const struct gsv_gemm &gemm, char *strip, int row,
                                            int column)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;
    char *const own = strip + lane / 4 * Shape::row_bytes + lane % 4 * 4;
    const int own_column = column + lane % 4 * 2;

    if (gemm.residual) {
        move_rows<Shape>(gemm, strip, static_cast<const T *>(gemm.residual), row, column, fetch());
        __syncwarp();
    }
    if (gemm.bias) {
#pragma unroll
        for (int j = 0; j < Shape::columns / 8; j++) {
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
    if (gelu) {
#pragma unroll
        for (int j = 0; j < Shape::columns / 2; j++)
            d[j] = gsv_gelu_of<T>(d[j]);
    }
    if (gemm.residual) {
#pragma unroll
        for (int j = 0; j < Shape::columns / 4; j++) {
            const gsv_pair<T> more = *reinterpret_cast<const gsv_pair<T> *>(
                own + j % 2 * 8 * Shape::row_bytes + j / 2 * 16);

            d[j * 2] += gsv_to_float(more.v[0]);
            d[j * 2 + 1] += gsv_to_float(more.v[1]);
        }
    }
#pragma unroll
    for (int j = 0; j < Shape::columns / 4; j++)
        *reinterpret_cast<gsv_pair<T> *>(own + j % 2 * 8 * Shape::row_bytes + j / 2 * 16) =
            gsv_make_pair(d[j * 2], d[j * 2 + 1], T());
    __syncwarp();
    move_rows<Shape>(gemm, strip, static_cast<T *>(gemm.out), row, column, put());
    __syncwarp(); /* the next strip overwrites the rows */
}

/* A warp of a group: its part of the group's tiles. */
template <typename T, class Shape, bool gelu>
__device__ __forceinline__ void multiply_tiles(const ring<Shape> &from, const struct gsv_gemm &gemm,
                                               const tile_list &list)
{
    const int warp = static_cast<int>(threadIdx.x) / GSV_WARP;
    const int group = warp / GROUP_WARPS;
    const bool signals = threadIdx.x % GSV_WARP == 0;
    const int step = Shape::groups * static_cast<int>(gridDim.x);
    int tile = Shape::persistent ? static_cast<int>(blockIdx.x + group * gridDim.x) : 0;
    int passed = group * list.k_tiles; /* stages ahead of this tile's, of both groups */
    int phase = group == 0 ? 1 : 0;    /* of the turn: the first of group 0 has come */

    for (; tile < list.n_tiles; tile += step) {
        ring_position<Shape> at = { passed % Shape::stages, passed / Shape::stages & 1 };
        const int last = (passed + list.k_tiles - 1) % Shape::stages;
        group_sums<Shape> sums;

        if (Shape::persistent)
            gsv_barrier_wait(from.turn + group, phase);
        multiply_tile<T, Shape>(sums, from, at, list.k_tiles, signals);
        if (Shape::persistent && signals)
            gsv_barrier_arrive(from.turn + (group + 1) % Shape::groups);
        gsv_wgmma_wait<0>();
        if (signals)
            gsv_barrier_arrive(from.empty + last);
        gsv_grid_wait();
        gsv_grid_launch_next();
#pragma unroll
        for (int i = 0; i < Shape::strips; i++) {
            gsv_wgmma_sums_done(sums.at[i]);
            store_strip<T, Shape, gelu>(sums.at[i], gemm, from.finished + warp * Shape::warp_bytes,
                                        first_row<Shape>(tile, list.across) + i * 64 +
                                            warp % GROUP_WARPS * 16,
                                        first_column<Shape>(tile, list.across));
        }
        passed = (passed + Shape::groups * list.k_tiles) % (2 * Shape::stages); /* two phases */
        phase ^= 1;
    }
}

template <typename T, class Shape, bool gelu>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    gemm_wgmma(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap weight,
               const struct gsv_gemm gemm, const tile_list list)
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
            copy_tiles<Shape>(stages, &in, &weight, list);
        return;
    }
    if (Shape::persistent)
        gsv_registers_acquire<232>();
    multiply_tiles<T, Shape, gelu>(stages, gemm, list);
}

/* cuTensorMapEncodeTiled of the driver, which the plugin does not link. */
decltype(&cuTensorMapEncodeTiled) encode;

/* Map of a row-major matrix [rows, k], read in boxes of `box_rows` rows and K_TILE columns. */
template <typename T>
bool make_map(CUtensorMap *map, const void *matrix, int rows, int k, int ld, int box_rows)
{
    const cuuint64_t sizes[] = { static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows) };
    const cuuint64_t strides[] = { ld * sizeof(T) };
    const cuuint32_t box[] = { K_TILE, static_cast<cuuint32_t>(box_rows) };
    const cuuint32_t steps[] = { 1, 1 };
    const CUtensorMapDataType type = std::is_same<T, half>::value
                                         ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const auto encode_map = __atomic_load_n(&encode, __ATOMIC_RELAXED);

    return encode_map(map, type, 2, const_cast<void *>(matrix), sizes, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <typename T, class Shape>
cudaError_t launch_shape(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    const int across = (gemm->n + Shape::columns - 1) / Shape::columns;
    const int down = (gemm->m + Shape::rows - 1) / Shape::rows;
    const tile_list list = { across, Shape::persistent ? across * down : 1,
                             (gemm->k + K_TILE - 1) / K_TILE };
    const dim3 grid =
        Shape::persistent ? dim3(min(list.n_tiles, n_processors)) : dim3(across, down);
    CUtensorMap in;
    CUtensorMap weight;

    if (!make_map<T>(&in, gemm->in, gemm->m, gemm->k, gemm->in_ld, Shape::rows) ||
        !make_map<T>(&weight, gemm->weight, gemm->n, gemm->k, gemm->weight_ld, Shape::columns))
        return cudaErrorInvalidValue;
    if (gemm->activation == GPUSERVE_ACT_GELU)
        return GSV_LAUNCH_OVERLAP((gemm_wgmma<T, Shape, true>), grid, Shape::threads,
                                  Shape::shared_bytes, stream, in, weight, *gemm, list);
    return GSV_LAUNCH_OVERLAP((gemm_wgmma<T, Shape, false>), grid, Shape::threads,
                              Shape::shared_bytes, stream, in, weight, *gemm, list);
}

template <class Shape> int64_t tiles_of(const struct gsv_gemm *gemm)
{
    return static_cast<int64_t>((gemm->n + Shape::columns - 1) / Shape::columns) *
           ((gemm->m + Shape::rows - 1) / Shape::rows);
}

/* The largest tile that fills half of the device or more; measured on an H200. */
template <typename T>
cudaError_t launch(const struct gsv_gemm *gemm, int n_processors, cudaStream_t stream)
{
    if (tiles_of<large>(gemm) * 2 >= n_processors)
        return launch_shape<T, large>(gemm, n_processors, stream);
    if (tiles_of<narrow>(gemm) * 4 > 3 * static_cast<int64_t>(n_processors))
        return launch_shape<T, medium>(gemm, n_processors, stream);
    return launch_shape<T, narrow>(gemm, n_processors, stream);
}

template <typename T, class Shape> cudaError_t allow_shared(void)
{
    const cudaError_t code = GSV_ALLOW_SHARED((gemm_wgmma<T, Shape, false>), Shape::shared_bytes);

    return code == cudaSuccess ? GSV_ALLOW_SHARED((gemm_wgmma<T, Shape, true>), Shape::shared_bytes)
                               : code;
}

template <typename T> cudaError_t allow_all(void)
{
    cudaError_t code = allow_shared<T, large>();

    if (code == cudaSuccess)
        code = allow_shared<T, medium>();
    return code == cudaSuccess ? allow_shared<T, narrow>() : code;
}

} /* namespace */

bool gsv_cuda_gemm_has_wgmma(const struct gsv_gemm *gemm, enum gsv_math math)
{
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(gemm->in) | reinterpret_cast<uintptr_t>(gemm->weight) |
        reinterpret_cast<uintptr_t>(gemm->out) | reinterpret_cast<uintptr_t>(gemm->residual);

    return (math == GSV_MATH_F16 || math == GSV_MATH_BF16) && addresses % 16 == 0 &&
           reinterpret_cast<uintptr_t>(gemm->bias) % 8 == 0 &&
           (gemm->n | gemm->k | gemm->in_ld | gemm->weight_ld | gemm->out_ld) % 8 == 0 &&
           tiles_of<large>(gemm) <= INT32_MAX / 2;
}

cudaError_t gsv_cuda_gemm_wgmma(const struct gsv_gemm *gemm, enum gsv_math math, int n_processors,
                                cudaStream_t stream)
{
    return math == GSV_MATH_F16 ? launch<half>(gemm, n_processors, stream)
                                : launch<__nv_bfloat16>(gemm, n_processors, stream);
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
    *available = code == cudaSuccess;
    return code;
}
