/*
 * gemm_wgmma.cuh - tiles of gemm_wgmma.cu: their shapes, the ring of stages in shared memory, the
 * thread that fills it (TMA), and the products (wgmma).
 */
#ifndef GSV_CUDA_GEMM_WGMMA_CUH
#define GSV_CUDA_GEMM_WGMMA_CUH

#include "kernels/cuda/ops/ptx_hopper.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace wgmma
{

const int K_BYTES = 128;        /* of k in a stage: a row of the 128-byte swizzle */
const int GROUP = 128;          /* threads of a warp group */
const int GROUP_WARPS = 4;      /* each has 16 rows of the group's 64 */
const int SWIZZLE_BYTES = 1024; /* alignment of a tile */

template <typename T> constexpr int k_tile = K_BYTES / static_cast<int>(sizeof(T)); /* elements */

/* Accumulator type of a product of T. */
template <typename T> struct product_of {
    typedef float sum;
};
template <> struct product_of<int8_t> {
    typedef int32_t sum;
};

/* `n_strips`: 64-row strips of a tile, all of one group. `n_splits`: parts of k, of a block each.
 */
template <int n_groups, int n_strips, int n_columns, int n_stages, int n_splits = 1>
struct wgmma_shape {
    static constexpr int groups = n_groups;
    static constexpr int strips = n_strips;
    static constexpr int rows = 64 * n_strips;
    static constexpr int columns = n_columns;
    static constexpr int stages = n_stages;
    static constexpr int splits = n_splits;
    static constexpr int own_columns = n_columns / n_splits; /* that a block finishes */
    static constexpr bool persistent = n_groups > 1;
    /* setmaxnreg moves registers between warp groups, so the copying warp is one of a group. */
    static constexpr int threads = n_groups * GROUP + (persistent ? GROUP : GSV_WARP);
    static constexpr int blocks = persistent ? 1 : 2; /* on a processor */
    static constexpr int in_bytes = rows * K_BYTES;
    static constexpr int stage_bytes = (rows + columns) * K_BYTES;
    static constexpr int row_bytes = own_columns * 2 + 16; /* odd multiple of 16: no bank conflicts;
                                                              two-way with 8 columns */
    static constexpr int warp_bytes = 16 * row_bytes;      /* of finished rows */
    static constexpr int n_barriers = 2 * stages + (persistent ? groups : 0);
    static constexpr int part_bytes = splits > 1 ? rows *columns * 4 : 0; /* sums of a part of k */
    static constexpr int shared_bytes = SWIZZLE_BYTES + stages * stage_bytes + part_bytes +
                                        groups * GROUP_WARPS * warp_bytes + n_barriers * 8;
};

struct tile_list {
    int across;  /* tiles side by side */
    int n_tiles; /* of a persistent grid; else 1 */
    int k_tiles;
};

/* The part of k of this block, in tiles. */
template <class Shape> struct k_part {
    int first;
    int count;

    __device__ __forceinline__ explicit k_part(const tile_list &list)
        : first(0), count(list.k_tiles)
    {
        if (Shape::splits == 1)
            return;
        first = static_cast<int>(blockIdx.z) * list.k_tiles / Shape::splits;
        count = static_cast<int>(blockIdx.z + 1) * list.k_tiles / Shape::splits - first;
    }
};

/* Shared memory of a block. */
template <class Shape> struct ring {
    char *tiles;     /* stages: rows of `in`, then rows of the weights */
    float4 *part;    /* part_bytes: [columns / 8][GROUP], four sums of a thread */
    char *finished;  /* warp_bytes for each warp */
    uint64_t *full;  /* of each stage: its bytes have come */
    uint64_t *empty; /* of each stage: the warps of a group have multiplied it */
    uint64_t *turn;  /* of each group: it may multiply */

    __device__ __forceinline__ explicit ring(char *memory)
    {
        tiles = memory + (-gsv_shared_address(memory) & (SWIZZLE_BYTES - 1));
        part = reinterpret_cast<float4 *>(tiles + Shape::stages * Shape::stage_bytes);
        finished = reinterpret_cast<char *>(part) + Shape::part_bytes;
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
template <typename T, class Shape>
__device__ __forceinline__ void copy_tiles(const ring<Shape> &to, const CUtensorMap *in,
                                           const CUtensorMap *weight, const tile_list &list)
{
    const k_part<Shape> part(list);
    const int ahead = min(part.count, Shape::stages);
    ring_position<Shape> at = { ahead % Shape::stages, ahead == Shape::stages ? 0 : 1 };
    int tile = Shape::persistent ? static_cast<int>(blockIdx.x) : 0;
    int t = ahead;

    for (int i = 0; i < ahead; i++) {
        gsv_barrier_expect(to.full + i, Shape::stage_bytes);
        gsv_tma_load(to.tiles + i * Shape::stage_bytes + Shape::in_bytes, weight,
                     (part.first + i) * k_tile<T>, first_column<Shape>(tile, list.across),
                     to.full + i);
    }
    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int i = 0; i < ahead; i++)
        gsv_tma_load(to.tiles + i * Shape::stage_bytes, in, (part.first + i) * k_tile<T>,
                     first_row<Shape>(tile, list.across), to.full + i);
    for (; tile < list.n_tiles; tile += static_cast<int>(gridDim.x)) {
        const int row = first_row<Shape>(tile, list.across);
        const int column = first_column<Shape>(tile, list.across);

        for (; t < part.count; t++) {
            const int k = (part.first + t) * k_tile<T>;
            char *const stage = to.tiles + at.stage * Shape::stage_bytes;

            gsv_barrier_wait(to.empty + at.stage, at.phase);
            gsv_barrier_expect(to.full + at.stage, Shape::stage_bytes);
            gsv_tma_load(stage, in, k, row, to.full + at.stage);
            gsv_tma_load(stage + Shape::in_bytes, weight, k, column, to.full + at.stage);
            at.advance();
        }
        t = 0;
    }
}

/* Sums of a group's tile. */
template <typename T, class Shape> struct group_sums {
    typename product_of<T>::sum at[Shape::strips][Shape::columns / 2];
};

/* A group: multiplies the stages of one tile, the first at `at`. */
template <typename T, class Shape>
__device__ __forceinline__ void multiply_tile(group_sums<T, Shape> &sums, const ring<Shape> &from,
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

} /* namespace wgmma */

#endif
