/*
 * hopper.cpp - instructions of sm_90a: barriers that count bytes (mbarrier), copies of boxes (TMA),
 * products of four warps (wgmma), as described in kernels/cuda/ops/ptx_hopper.cuh.
 *
 * What is asynchronous happens as late as a correct kernel can tell: the bytes of a box land when a
 * thread waits for their barrier, a product is computed when it is waited for. Until then both
 * hold NaN. A wgmma is computed warp by warp from the shared memory that its descriptors name.
 */
#include <algorithm>
#include <cstring>

#include <emu_hopper.h>

#include "block.h"
#include "sanitizers.h"

namespace
{

/* --- barriers ---------------------------------------------------------------------------------
 */

/* In the 8 bytes of a barrier. */
struct barrier_state {
    uint16_t arrivals; /* of a phase */
    uint16_t missing;
    int32_t bytes_and_phase; /* twice the missing bytes, plus the parity */
};
static_assert(sizeof(barrier_state) == sizeof(uint64_t), "a barrier");

const uint16_t poison = 0xffff; /* what shared memory is filled with */

barrier_state &state_of(uint64_t *barrier)
{
    gsv_emu_check_shared("mbarrier", barrier, sizeof(*barrier), alignof(uint64_t));
    barrier_state &state = *reinterpret_cast<barrier_state *>(barrier);
    if (state.arrivals == poison)
        gsv_emu_fault(cudaErrorLaunchFailure, "mbarrier: used before its initialization");
    return state;
}

/* Ends the phase if nothing is missing; true if it did. */
bool settle(barrier_state &state)
{
    if (state.missing > 0 || state.bytes_and_phase >> 1 != 0)
        return false;
    state.missing = state.arrivals;
    state.bytes_and_phase ^= 1;
    gsv_emu_wake_lanes();
    return true;
}

/* --- boxes ------------------------------------------------------------------------------------
 */

/* What a CUtensorMap holds. */
struct matrix_map {
    const char *address;
    uint64_t columns, rows, stride; /* stride in bytes */
    uint32_t box_columns, box_rows;
    uint32_t element_bytes;
};
static_assert(sizeof(matrix_map) <= sizeof(CUtensorMap), "a map");

struct box {
    char *shared;
    matrix_map map;
    int x, y;
    uint64_t *barrier;
};

/* Room is taken ahead: memory that one fiber allocates and another uses would be a race. */
struct box_list {
    box at[256];
    size_t n = 0;
};
box_list boxes;

const size_t row_bytes = 128; /* of a box */

/* Exchanges the 16-byte chunks of a row by its number in the kilobyte. */
size_t swizzled(size_t offset)
{
    return offset ^ (offset >> 7 & 7) << 4;
}

size_t box_bytes(const matrix_map &map)
{
    return map.box_rows * row_bytes;
}

void land(const box &b)
{
    const size_t element_bytes = b.map.element_bytes;

    gsv_emu_note_write(b.shared, box_bytes(b.map));
    for (uint32_t r = 0; r < b.map.box_rows; r++) {
        const int64_t row = b.y + static_cast<int64_t>(r);

        for (uint32_t c = 0; c < b.map.box_columns; c++) {
            const int64_t column = b.x + static_cast<int64_t>(c);
            const bool inside = row >= 0 && row < static_cast<int64_t>(b.map.rows) && column >= 0 &&
                                column < static_cast<int64_t>(b.map.columns);
            char *const to = b.shared + swizzled(r * row_bytes + c * element_bytes);

            if (inside)
                std::memcpy(to,
                            b.map.address + static_cast<uint64_t>(row) * b.map.stride +
                                static_cast<uint64_t>(column) * element_bytes,
                            element_bytes);
            else
                std::memset(to, 0, element_bytes);
        }
    }
}

void land_all(uint64_t *barrier)
{
    size_t kept = 0;

    for (size_t i = 0; i < boxes.n; i++) {
        const box b = boxes.at[i];

        if (b.barrier != barrier) {
            boxes.at[kept++] = b;
            continue;
        }
        gsv_emu_acquire(barrier);
        land(b);
        gsv_emu_release(barrier);
        state_of(barrier).bytes_and_phase -= 2 * static_cast<int32_t>(box_bytes(b.map));
    }
    boxes.n = kept;
}

/* --- wgmma ------------------------------------------------------------------------------------
 */

const size_t step_bytes = 32; /* of k, of one product */
const int warp_rows = 16;
const int most_columns = 256;

/* The tile that a descriptor names, `rows` rows of 128 bytes, and the first byte of k in it. */
const char *tile_of(uint64_t descriptor, int rows, size_t *k_bytes)
{
    const char *const base = static_cast<const char *>(gsv_emu_shared());
    const uint64_t start = (descriptor & 0x3fff) << 4;
    const uint64_t low = reinterpret_cast<uintptr_t>(base) & 0x3ffff;

    if (descriptor >> 62 != 1 || (descriptor >> 32 & 0x3fff) << 4 != 1024)
        gsv_emu_fault(cudaErrorLaunchFailure,
                      "wgmma: a descriptor of another layout than 8 swizzled rows of 128 bytes");
    if (start % 1024 + step_bytes > row_bytes)
        gsv_emu_fault(cudaErrorMisalignedAddress,
                      "wgmma: a tile that is not aligned to 1024 bytes, or ends within a step");
    *k_bytes = start % 1024;
    const char *const tile = base + ((start - *k_bytes - low) & 0x3ffff);
    gsv_emu_check_shared("wgmma", tile, static_cast<size_t>(rows) * row_bytes, 1024);
    return tile;
}

/* Element k of the row at `row` of a tile. */
template <typename Element> Element element_at(const char *tile, int row, size_t k_bytes, size_t k)
{
    Element x;

    std::memcpy(&x, tile + swizzled(static_cast<size_t>(row) * row_bytes + k_bytes + k * sizeof(x)),
                sizeof(x));
    return x;
}

void read_row(float *to, size_t stride, int kind, const char *tile, int row, size_t k_bytes)
{
    for (size_t k = 0; k < step_bytes / sizeof(uint16_t); k++) {
        const uint16_t bits = element_at<uint16_t>(tile, row, k_bytes, k);

        to[k * stride] =
            kind == GSV_EMU_MMA_F16 ? gsv_emu_half_to_float(bits) : gsv_emu_bfloat16_to_float(bits);
    }
}

void read_row(int32_t *to, size_t stride, int, const char *tile, int row, size_t k_bytes)
{
    for (size_t k = 0; k < step_bytes; k++)
        to[k * stride] = element_at<int8_t>(tile, row, k_bytes, k);
}

/* The 16 rows of one warp: `d` of each of its lanes. `n_k`: elements of k of a product. */
template <typename Sum, int n_k>
void multiply(const gsv_emu_group_product &p, int warp, void *const (&registers)[32])
{
    /* One grid runs at a time; a fiber's stack is too small for them. */
    static Sum a[warp_rows][n_k];
    static Sum b[n_k][most_columns];
    static Sum sums[warp_rows][most_columns];
    Sum *d[32];
    size_t a_from, b_from;
    const char *const a_tile = tile_of(p.a, 64, &a_from);
    const char *const b_tile = tile_of(p.b, p.columns, &b_from);

    for (int i = 0; i < 32; i++)
        d[i] = static_cast<Sum *>(registers[i]);
    gsv_emu_note_read(a_tile + warp * warp_rows * row_bytes, warp_rows * row_bytes);
    gsv_emu_note_read(b_tile, static_cast<size_t>(p.columns) * row_bytes);
    for (int r = 0; r < warp_rows; r++)
        read_row(a[r], 1, p.kind, a_tile, warp * warp_rows + r, a_from);
    /* Rows past the matrix: most of a tile in most tests. */
    if (std::all_of(&a[0][0], &a[0][0] + warp_rows * n_k, [](Sum x) { return x == 0; })) {
        for (int i = 0; !p.add && i < 32; i++)
            std::fill(d[i], d[i] + p.columns / 2, Sum(0));
        return;
    }
    for (int c = 0; c < p.columns; c++)
        read_row(&b[0][c], most_columns, p.kind, b_tile, c, b_from);
    for (int r = 0; r < warp_rows; r++)
        for (int c = 0; c < p.columns; c++)
            sums[r][c] = p.add ? d[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2] : Sum(0);
    for (int r = 0; r < warp_rows; r++)
        for (int k = 0; k < n_k; k++)
            for (int c = 0; c < p.columns; c++)
                sums[r][c] += a[r][k] * b[k][c];
    for (int r = 0; r < warp_rows; r++)
        for (int c = 0; c < p.columns; c++)
            d[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2] = sums[r][c];
}

struct product_wait {
    gsv_emu_lane *lane;
    unsigned groups; /* that may stay in flight */
    size_t n_done;
};

/* Computes what all lanes wait for. */
void wait_meeting(void *const data[32], unsigned)
{
    const product_wait &first = *static_cast<const product_wait *>(data[0]);
    size_t n = 0;

    while (n < first.lane->products.size() &&
           first.lane->products[n].group + first.groups < first.lane->product_group) {
        const gsv_emu_group_product &p = first.lane->products[n];
        void *d[32];

        for (int i = 0; i < 32; i++) {
            const gsv_emu_lane &lane = *static_cast<const product_wait *>(data[i])->lane;

            if (n >= lane.products.size() || lane.products[n].a != p.a ||
                lane.products[n].b != p.b || lane.products[n].add != p.add)
                gsv_emu_fault(cudaErrorLaunchFailure, "wgmma: lane %d multiplies other tiles", i);
            d[i] = lane.products[n].d;
        }
        const int warp = static_cast<int>(first.lane->index / 32 % 4);
        if (p.kind == GSV_EMU_MMA_S8)
            multiply<int32_t, 32>(p, warp, d);
        else
            multiply<float, 16>(p, warp, d);
        n++;
    }
    for (int i = 0; i < 32; i++)
        static_cast<product_wait *>(data[i])->n_done = n;
}

} // namespace

size_t gsv_emu_forget_boxes()
{
    const size_t n = boxes.n;

    boxes.n = 0;
    return n;
}

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                                const cuuint32_t *box_sizes, const cuuint32_t *steps,
                                CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    const uint32_t element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    const matrix_map made = { static_cast<const char *>(address),
                              sizes[0],
                              sizes[1],
                              strides[0],
                              box_sizes[0],
                              box_sizes[1],
                              element_bytes };

    if (rank != 2 || reinterpret_cast<uintptr_t>(address) % 16 || made.stride % 16 ||
        made.columns == 0 || made.rows == 0 || made.stride < made.columns * element_bytes ||
        made.box_columns * element_bytes != row_bytes || made.box_rows == 0 ||
        made.box_rows > 256 || steps[0] != 1 || steps[1] != 1 ||
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_INVALID_VALUE;
    std::memset(map, 0, sizeof(*map));
    std::memcpy(map, &made, sizeof(made));
    return CUDA_SUCCESS;
}

void gsv_emu_barrier_init(uint64_t *barrier, int arrivals)
{
    gsv_emu_check_shared("mbarrier", barrier, sizeof(*barrier), alignof(uint64_t));
    gsv_emu_note_write(barrier, sizeof(*barrier));
    const barrier_state state = { static_cast<uint16_t>(arrivals), static_cast<uint16_t>(arrivals),
                                  0 };
    std::memcpy(barrier, &state, sizeof(state));
}

void gsv_emu_barrier_arrive(uint64_t *barrier, int bytes, bool expects)
{
    barrier_state &state = state_of(barrier);

    gsv_emu_release(barrier);
    if (state.missing == 0)
        gsv_emu_fault(cudaErrorLaunchFailure, "mbarrier: more than its %d arrivals in a phase",
                      state.arrivals);
    if (expects)
        state.bytes_and_phase += 2 * bytes;
    state.missing--;
    if (settle(state))
        gsv_emu_step_aside(); /* what waited overwrites at once what it may */
}

void gsv_emu_barrier_wait(uint64_t *barrier, int parity)
{
    barrier_state &state = state_of(barrier);

    for (;;) {
        land_all(barrier);
        settle(state);
        if ((state.bytes_and_phase & 1) != parity)
            break;
        gsv_emu_sleep_lane("gsv_barrier_wait");
    }
    gsv_emu_acquire(barrier);
}

/* The destination is NaN until a thread waits for the barrier. */
void gsv_emu_tma_load(void *shared, const CUtensorMap *map, int x, int y, uint64_t *barrier)
{
    box b = { static_cast<char *>(shared), {}, x, y, barrier };

    std::memcpy(&b.map, map, sizeof(b.map));
    gsv_emu_check_shared("TMA", shared, box_bytes(b.map), 1024);
    state_of(barrier);
    gsv_emu_note_write(shared, box_bytes(b.map));
    std::memset(shared, 0xff, box_bytes(b.map));
    gsv_emu_release(barrier);
    if (boxes.n == sizeof(boxes.at) / sizeof(boxes.at[0]))
        gsv_emu_fault(cudaErrorLaunchFailure, "TMA: more copies in flight than the emulator has");
    boxes.at[boxes.n++] = b;
    gsv_emu_wake_lanes();
}

void gsv_emu_wgmma(int kind, int columns, void *d, uint64_t a, uint64_t b, bool add)
{
    gsv_emu_lane *const self = gsv_emu_running();

    if (!add)
        std::memset(d, 0xff, sizeof(float) * static_cast<size_t>(columns) / 2);
    self->products.push_back({ kind, columns, d, a, b, add, self->product_group });
}

void gsv_emu_wgmma_commit(void)
{
    gsv_emu_running()->product_group++;
}

/* The lane that computes reads for all: what they do next comes after it. */
void gsv_emu_wgmma_wait(int groups)
{
    gsv_emu_lane *const self = gsv_emu_running();
    product_wait wait = { self, static_cast<unsigned>(groups), 0 };

    gsv_emu_meet("wgmma.wait_group", 0xffffffffu, &wait, wait_meeting);
    gsv_emu_sync_warp(0xffffffffu);
    self->products.erase(self->products.begin(),
                         self->products.begin() + static_cast<long>(wait.n_done));
}

} // extern "C"
