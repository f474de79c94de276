/*
 * warp.cpp - functions of a whole warp: shuffles, ballots, mma.sync, ldmatrix; and cp.async copies,
 * which complete only when they are waited for.
 *
 * Fragment layouts are those of the PTX ISA, as described in kernels/cuda/ops/ptx.cuh. Products are
 * summed in float32 in the order of k; a device rounds slightly differently.
 */
#include <cstring>

#include <emu_ptx.h>

#include "block.h"
#include "sanitizers.h"

namespace
{

const unsigned whole_warp = 0xffffffffu;

struct shuffled {
    uint64_t value;
    uint64_t received;
    int source;
};

void shuffle_meeting(void *const data[32], unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        shuffled *lane = static_cast<shuffled *>(data[i]);
        lane->received = static_cast<const shuffled *>(data[lane->source])->value;
    }
}

struct voted {
    int predicate;
    unsigned result;
};

void ballot_meeting(void *const data[32], unsigned mask)
{
    unsigned result = 0;

    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && static_cast<const voted *>(data[i])->predicate)
            result |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            static_cast<voted *>(data[i])->result = result;
}

/* --- mma.sync ----------------------------------------------------------------------------------
 */

struct product {
    int kind;
    void *d;
    const uint32_t *a;
    const uint32_t *b;
};

float element(int kind, uint32_t bits, int i)
{
    switch (kind) {
    case GSV_EMU_MMA_F16:
        return gsv_emu_half_to_float(static_cast<uint16_t>(bits >> 16 * i));
    case GSV_EMU_MMA_BF16:
        return gsv_emu_bfloat16_to_float(static_cast<uint16_t>(bits >> 16 * i));
    case GSV_EMU_MMA_TF32: /* the device ignores the low bits */
        return __uint_as_float(bits & 0xffffe000u);
    default:
        return static_cast<float>(static_cast<int8_t>(bits >> 8 * i));
    }
}

/* d += a b for a of 16 x k and b of k x 8; bytes stay below 2^24, so floats hold them exactly. */
struct matrices {
    float a[16][32];
    float b[32][8];
};

/* Fragments of A and B: `per` elements in a register, `k` columns of A: two halves of k / 2 columns
 * in a[0..1], a[2..3]. */
void gather(void *const data[32], int per, int k, matrices *m)
{
    for (int lane = 0; lane < 32; lane++) {
        const product *p = static_cast<const product *>(data[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int e = 0; e < per; e++) {
            const int column = t * per + e;
            m->a[g][column] = element(p->kind, p->a[0], e);
            m->a[g + 8][column] = element(p->kind, p->a[1], e);
            m->a[g][column + k / 2] = element(p->kind, p->a[2], e);
            m->a[g + 8][column + k / 2] = element(p->kind, p->a[3], e);
            m->b[column][g] = element(p->kind, p->b[0], e);
            m->b[column + k / 2][g] = element(p->kind, p->b[1], e);
        }
    }
}

template <typename T> void multiply(void *const data[32], int k, const matrices &m)
{
    T d[16][8];

    for (int lane = 0; lane < 32; lane++) {
        const T *part = static_cast<const T *>(static_cast<const product *>(data[lane])->d);
        std::memcpy(&d[lane / 4][lane % 4 * 2], part, 2 * sizeof(T));
        std::memcpy(&d[lane / 4 + 8][lane % 4 * 2], part + 2, 2 * sizeof(T));
    }
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < k; i++)
            for (int column = 0; column < 8; column++)
                d[row][column] += static_cast<T>(m.a[row][i] * m.b[i][column]);
    for (int lane = 0; lane < 32; lane++) {
        T *part = static_cast<T *>(static_cast<product *>(data[lane])->d);
        std::memcpy(part, &d[lane / 4][lane % 4 * 2], 2 * sizeof(T));
        std::memcpy(part + 2, &d[lane / 4 + 8][lane % 4 * 2], 2 * sizeof(T));
    }
}

void mma_meeting(void *const data[32], unsigned)
{
    const int kind = static_cast<const product *>(data[0])->kind;
    const int per = kind == GSV_EMU_MMA_TF32 ? 1 : kind == GSV_EMU_MMA_S8 ? 4 : 2;
    matrices m;

    gather(data, per, 8 * per, &m);
    if (kind == GSV_EMU_MMA_S8)
        multiply<int32_t>(data, 8 * per, m);
    else
        multiply<float>(data, 8 * per, m);
}

/* --- ldmatrix ----------------------------------------------------------------------------------
 */

struct matrix_load {
    uint32_t *registers;
    const char *row;
    int count;
    bool transposed;
};

uint16_t matrix_element(void *const data[32], int matrix, int row, int column)
{
    uint16_t bits;
    std::memcpy(&bits, static_cast<const matrix_load *>(data[8 * matrix + row])->row + 2 * column,
                sizeof(bits));
    return bits;
}

void ldmatrix_meeting(void *const data[32], unsigned)
{
    for (int lane = 0; lane < 32; lane++) {
        const matrix_load *load = static_cast<const matrix_load *>(data[lane]);
        const int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < load->count; i++) {
            const uint32_t low =
                load->transposed ? matrix_element(data, i, t, g) : matrix_element(data, i, g, t);
            const uint32_t high = load->transposed ? matrix_element(data, i, t + 1, g)
                                                   : matrix_element(data, i, g, t + 1);
            load->registers[i] = high << 16 | low;
        }
    }
}

void land(const gsv_emu_copy &copy)
{
    gsv_emu_note_write(copy.shared, static_cast<size_t>(copy.bytes));
    if (!copy.valid) {
        std::memset(copy.shared, 0, static_cast<size_t>(copy.bytes));
        return;
    }
    gsv_emu_note_read(copy.global, static_cast<size_t>(copy.bytes));
    std::memcpy(copy.shared, copy.global, static_cast<size_t>(copy.bytes));
}

} // namespace

extern "C" {

uint64_t gsv_emu_shuffle(const char *what, unsigned mask, uint64_t value, int source)
{
    shuffled lane = { value, 0, source };

    if (source < 0 || source > 31 || !(mask >> source & 1))
        gsv_emu_fault(cudaErrorLaunchFailure, "%s: reads lane %d, which mask 0x%08x has not", what,
                      source, mask);
    gsv_emu_meet(what, mask, &lane, shuffle_meeting);
    return lane.received;
}

unsigned gsv_emu_ballot(const char *what, unsigned mask, int predicate)
{
    voted lane = { predicate, 0 };

    gsv_emu_meet(what, mask, &lane, ballot_meeting);
    return lane.result;
}

void gsv_emu_mma(int kind, void *d, const uint32_t *a, const uint32_t *b)
{
    static const char *const names[] = { "mma.m16n8k16.f16", "mma.m16n8k16.bf16",
                                         "mma.m16n8k8.tf32", "mma.m16n8k32.s8" };
    product lane = { kind, d, a, b };

    gsv_emu_meet(names[kind], whole_warp, &lane, mma_meeting);
}

void gsv_emu_ldmatrix(uint32_t *registers, const void *row, int count, bool transposed)
{
    static const char *const names[] = { "ldmatrix.x1",       "ldmatrix.x2",
                                         "ldmatrix.x4",       "ldmatrix.x1.trans",
                                         "ldmatrix.x2.trans", "ldmatrix.x4.trans" };
    const char *what = names[(count == 4 ? 2 : count - 1) + (transposed ? 3 : 0)];
    matrix_load lane = { registers, static_cast<const char *>(row), count, transposed };

    if (gsv_emu_lane_index() < 8 * count) {
        gsv_emu_check_shared(what, row, 16, 16);
        gsv_emu_note_read(row, 16);
    }
    gsv_emu_meet(what, whole_warp, &lane, ldmatrix_meeting);
}

/* The destination is NaN until the copy completes, so that a missing wait is detected. */
void gsv_emu_cp_async(void *shared, const void *global, int bytes, bool valid)
{
    gsv_emu_lane *self = gsv_emu_running();
    const size_t size = static_cast<size_t>(bytes);

    gsv_emu_check_shared("cp.async", shared, size, size);
    if (reinterpret_cast<uintptr_t>(global) % size)
        gsv_emu_fault(cudaErrorMisalignedAddress,
                      "cp.async: global address not aligned to %d bytes", bytes);
    gsv_emu_note_write(shared, size);
    std::memset(shared, 0xff, size);
    self->copies.push_back({ static_cast<char *>(shared), static_cast<const char *>(global), bytes,
                             valid, self->group });
}

void gsv_emu_cp_async_commit(void)
{
    gsv_emu_running()->group++;
}

void gsv_emu_cp_async_wait(int groups)
{
    gsv_emu_lane *self = gsv_emu_running();
    size_t landed = 0;

    /* Copies of groups below group - groups must complete; uncommitted ones stay in flight. */
    while (landed < self->copies.size() &&
           self->copies[landed].group + static_cast<unsigned>(groups) < self->group)
        land(self->copies[landed++]);
    self->copies.erase(self->copies.begin(), self->copies.begin() + static_cast<long>(landed));
}

} // extern "C"
