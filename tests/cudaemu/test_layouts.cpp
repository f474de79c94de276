/*
 * test_layouts.cpp - mma.sync, ldmatrix and wgmma against the fragment layouts of the PTX ISA.
 *
 * The tables "Matrix Fragments for mma.m16n8k16" etc. are repeated here as functions from (lane,
 * element) to (row, column), written from the ISA, not from the emulator. Matrices are asymmetric
 * with small integers, so results are exact and a swapped index is detected.
 */
#include <criterion/criterion.h>

#include <cstring>
#include <vector>

#include "device_memory.h"
#include "emu.h"
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/ops/ptx_hopper.cuh"

namespace
{

struct place {
    int row;
    int column;
};

/* Position of element i of a lane's fragment of A, B and D, for 16-bit (k16), tf32 (k8) and 8-bit
 * (k32) types. */
place a_16bit(int lane, int i)
{
    const int row = (i < 2 || (i >= 4 && i < 6)) ? lane >> 2 : (lane >> 2) + 8;
    return { row, (lane & 3) * 2 + (i & 1) + (i < 4 ? 0 : 8) };
}

place b_16bit(int lane, int i)
{
    return { (lane & 3) * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2 };
}

place a_tf32(int lane, int i)
{
    return { i == 0 || i == 2 ? lane >> 2 : (lane >> 2) + 8, i < 2 ? lane & 3 : (lane & 3) + 4 };
}

place b_tf32(int lane, int i)
{
    return { i == 0 ? lane & 3 : (lane & 3) + 4, lane >> 2 };
}

place a_8bit(int lane, int i)
{
    const bool upper = i < 4 || (i >= 8 && i < 12);
    return { upper ? lane >> 2 : (lane >> 2) + 8, (lane & 3) * 4 + (i & 3) + (i < 8 ? 0 : 16) };
}

place b_8bit(int lane, int i)
{
    return { (lane & 3) * 4 + (i & 3) + (i < 4 ? 0 : 16), lane >> 2 };
}

place d_any(int lane, int i)
{
    return { i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane & 3) * 2 + (i & 1) };
}

/* Loads each lane's registers from global memory and stores its result there. */
template <typename T> __global__ void product_16bit(float *d, const uint32_t *a, const uint32_t *b)
{
    const unsigned lane = threadIdx.x;
    uint32_t fa[4], fb[2];
    float fd[4];

    memcpy(fa, a + 4 * lane, sizeof(fa));
    memcpy(fb, b + 2 * lane, sizeof(fb));
    memcpy(fd, d + 4 * lane, sizeof(fd));
    gsv_mma_m16n8k16(fd, fa, fb, T());
    memcpy(d + 4 * lane, fd, sizeof(fd));
}

__global__ void product_tf32(float *d, const uint32_t *a, const uint32_t *b)
{
    const unsigned lane = threadIdx.x;
    uint32_t fa[4], fb[2];
    float fd[4];

    memcpy(fa, a + 4 * lane, sizeof(fa));
    memcpy(fb, b + 2 * lane, sizeof(fb));
    memcpy(fd, d + 4 * lane, sizeof(fd));
    gsv_mma_m16n8k8_tf32(fd, fa, fb);
    memcpy(d + 4 * lane, fd, sizeof(fd));
}

__global__ void product_8bit(int32_t *d, const uint32_t *a, const uint32_t *b)
{
    const unsigned lane = threadIdx.x;
    uint32_t fa[4], fb[2];
    int32_t fd[4];

    memcpy(fa, a + 4 * lane, sizeof(fa));
    memcpy(fb, b + 2 * lane, sizeof(fb));
    memcpy(fd, d + 4 * lane, sizeof(fd));
    gsv_mma_m16n8k32_s8(fd, fa, fb);
    memcpy(d + 4 * lane, fd, sizeof(fd));
}

uint32_t half_bits(float x)
{
    return half(x).bits;
}

uint32_t bfloat16_bits(float x)
{
    return __nv_bfloat16(x).bits;
}

uint32_t byte_bits(float x)
{
    return (uint8_t)(int8_t)x;
}

struct product_case {
    const char *name;
    int k;
    int bits; /* bits of an element */
    place (*a)(int, int);
    place (*b)(int, int);
    uint32_t (*encode)(float);
};

/* All rows, columns and their sums differ; all values are exact in bfloat16 and int8. */
float a_value(int row, int k)
{
    return (float)((row * 7 + k * 3 + row * k) % 23 - 11);
}

float b_value(int k, int column)
{
    return (float)((k * 5 + column * 11 + k * column) % 19 - 9);
}

float c_value(int row, int column)
{
    return (float)(row * 8 + column);
}

std::vector<uint32_t> fragments(const product_case &c, place (*where)(int, int), int registers,
                                float (*value)(int, int))
{
    const int per = 32 / c.bits;
    std::vector<uint32_t> out((size_t)(32 * registers));

    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < registers * per; i++) {
            const place at = where(lane, i);
            out[(size_t)(lane * registers + i / per)] |= c.encode(value(at.row, at.column))
                                                         << (i % per * c.bits);
        }
    return out;
}

float expected(const product_case &c, int row, int column)
{
    float sum = c_value(row, column);

    for (int k = 0; k < c.k; k++)
        sum += a_value(row, k) * b_value(k, column);
    return sum;
}

template <typename T, typename Kernel> void check_product(const product_case &c, Kernel kernel)
{
    const std::vector<uint32_t> a = fragments(c, c.a, 4, a_value),
                                b = fragments(c, c.b, 2, b_value);
    T d[128];

    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            d[4 * lane + i] = (T)c_value(d_any(lane, i).row, d_any(lane, i).column);
    device_memory<uint32_t> device_a(a.data(), a.size()), device_b(b.data(), b.size());
    device_memory<T> device_d(d, 128);
    cr_assert_eq(GSV_LAUNCH(kernel, 1, 32, 0, nullptr, device_d, device_a, device_b), cudaSuccess);
    cr_assert_eq(cudaMemcpy(d, (T *)device_d, sizeof(d), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const place at = d_any(lane, i);
            cr_expect_eq(d[4 * lane + i], (T)expected(c, at.row, at.column), "%s: D[%d][%d]",
                         c.name, at.row, at.column);
        }
}

/* Element (row, column) of matrix m in shared memory; rows are 32 bytes apart (16 bytes of
 * data). */
const int row_bytes = 32;

__global__ void load_matrices(uint32_t *out, const uint16_t *in, int count, bool transposed)
{
    GSV_SHARED(char, shared);
    const unsigned lane = threadIdx.x;
    uint32_t r1[1] = {}, r2[2] = {}, r4[4] = {};

    for (unsigned i = lane; i < 32 * row_bytes / 2; i += 32)
        memcpy(shared + 2 * i, in + i, 2);
    __syncthreads();
    const char *row = shared + lane * row_bytes;
    if (count == 1)
        transposed ? gsv_ldmatrix_x1_trans(r1, row) : gsv_ldmatrix_x1(r1, row);
    else if (count == 2)
        transposed ? gsv_ldmatrix_x2_trans(r2, row) : gsv_ldmatrix_x2(r2, row);
    else
        transposed ? gsv_ldmatrix_x4_trans(r4, row) : gsv_ldmatrix_x4(r4, row);
    for (int i = 0; i < count; i++)
        out[lane * 4 + (unsigned)i] = count == 1 ? r1[i] : count == 2 ? r2[i] : r4[i];
}

/* --- wgmma: d = A B for A of 64 rows and B of 32 columns, both from boxes with 128 bytes of k ---
 */

const int group_rows = 64;
const int group_columns = 32;
const int group_k_bytes = 128;
const size_t a_bytes = group_rows * group_k_bytes;
const size_t b_bytes = group_columns * group_k_bytes;

template <typename T, typename Sum>
__global__ void product_of_boxes(Sum *d, const CUtensorMap a, const CUtensorMap b, int x, int y)
{
    GSV_SHARED(char, memory);
    char *const tiles = memory + (-gsv_shared_address(memory) & 1023);
    uint64_t *const barrier = reinterpret_cast<uint64_t *>(tiles + a_bytes + b_bytes);
    Sum sums[group_columns / 2];

    if (threadIdx.x == 0) {
        gsv_barrier_init(barrier, 1);
        gsv_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        gsv_barrier_expect(barrier, a_bytes + b_bytes);
        gsv_tma_load(tiles, &a, x, y, barrier);
        gsv_tma_load(tiles + a_bytes, &b, x, 0, barrier);
    }
    gsv_barrier_wait(barrier, 0);
    gsv_wgmma_fence();
    for (int k = 0; k < group_k_bytes / 32; k++)
        gsv_wgmma(sums, gsv_wgmma_operand(tiles) + 2 * k,
                  gsv_wgmma_operand(tiles + a_bytes) + 2 * k, k > 0, T());
    gsv_wgmma_commit();
    gsv_wgmma_wait<0>();
    memcpy(d + threadIdx.x * (group_columns / 2), sums, sizeof(sums));
}

/* Element i of thread t, from "Register fragments for wgmma D" of the ISA. */
place d_group(int t, int i)
{
    return { t / 32 * 16 + (t % 32 >> 2) + (i & 2 ? 8 : 0), i / 4 * 8 + (t & 3) * 2 + (i & 1) };
}

/* Map of a matrix, in boxes of `box_rows` rows of 128 bytes. */
template <typename Bits>
CUtensorMap map_of(const device_memory<Bits> &matrix, int rows, int columns, int box_rows)
{
    const cuuint64_t sizes[] = { (cuuint64_t)columns, (cuuint64_t)rows };
    const cuuint64_t strides[] = { (cuuint64_t)columns * sizeof(Bits) };
    const cuuint32_t box[] = { group_k_bytes / sizeof(Bits), (cuuint32_t)box_rows };
    const cuuint32_t steps[] = { 1, 1 };
    CUtensorMap map;

    cr_assert_eq(cuTensorMapEncodeTiled(&map,
                                        sizeof(Bits) == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                        2, (Bits *)matrix, sizes, strides, box, steps,
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 CUDA_SUCCESS);
    return map;
}

/* The box of A hangs over the last rows and columns of its matrix: these are zeros. */
template <typename T, typename Bits, typename Sum>
void check_boxes(int rows, int columns, int x, int y, uint32_t (*encode)(float))
{
    std::vector<Bits> a((size_t)(rows * columns)), b((size_t)(group_columns * columns));
    std::vector<Sum> d(128 * group_columns / 2);

    for (int r = 0; r < rows; r++)
        for (int k = 0; k < columns; k++)
            a[(size_t)(r * columns + k)] = (Bits)encode(a_value(r, k));
    for (int c = 0; c < group_columns; c++)
        for (int k = 0; k < columns; k++)
            b[(size_t)(c * columns + k)] = (Bits)encode(b_value(k, c));
    device_memory<Bits> device_a(a.data(), a.size()), device_b(b.data(), b.size());
    device_memory<Sum> device_d(d.size());
    const CUtensorMap a_map = map_of(device_a, rows, columns, group_rows);
    const CUtensorMap b_map = map_of(device_b, group_columns, columns, group_columns);

    cr_assert_eq(GSV_LAUNCH((product_of_boxes<T, Sum>), 1, 128, 1024 + a_bytes + b_bytes + 8,
                            nullptr, device_d, a_map, b_map, x, y),
                 cudaSuccess);
    cr_assert_eq(
        cudaMemcpy(d.data(), (Sum *)device_d, d.size() * sizeof(Sum), cudaMemcpyDeviceToHost),
        cudaSuccess, "%s", gsv_emu_report());
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < group_columns / 2; i++) {
            const place at = d_group(t, i);
            float want = 0;

            for (int k = 0; k < group_k_bytes / (int)sizeof(Bits); k++)
                if (y + at.row < rows && x + k < columns)
                    want += a_value(y + at.row, x + k) * b_value(x + k, at.column);
            cr_expect_eq(d[(size_t)(t * group_columns / 2 + i)], (Sum)want, "D[%d][%d]", at.row,
                         at.column);
        }
}

} // namespace

Test(cudaemu_layouts, wgmma)
{
    check_boxes<half, uint16_t, float>(80, 88, 32, 24, half_bits);
    check_boxes<int8_t, uint8_t, int32_t>(80, 176, 64, 24, byte_bits);
}

Test(cudaemu_layouts, mma)
{
    const product_case f16 = { "m16n8k16.f16", 16, 16, a_16bit, b_16bit, half_bits };
    const product_case bf16 = { "m16n8k16.bf16", 16, 16, a_16bit, b_16bit, bfloat16_bits };
    const product_case tf32 = { "m16n8k8.tf32", 8, 32, a_tf32, b_tf32, gsv_tf32 };
    const product_case s8 = { "m16n8k32.s8", 32, 8, a_8bit, b_8bit, byte_bits };

    check_product<float>(f16, product_16bit<half>);
    check_product<float>(bf16, product_16bit<__nv_bfloat16>);
    check_product<float>(tf32, product_tf32);
    check_product<int32_t>(s8, product_8bit);
}

Test(cudaemu_layouts, ldmatrix)
{
    uint16_t in[32 * row_bytes / 2];
    uint32_t out[128];

    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        in[i] = (uint16_t)(i * 37);
    device_memory<uint16_t> device_in(in, sizeof(in) / sizeof(in[0]));
    device_memory<uint32_t> device_out(128);
    for (int count = 1; count <= 4; count *= 2)
        for (int transposed = 0; transposed < 2; transposed++) {
            cr_assert_eq(GSV_LAUNCH(load_matrices, 1, 32, 32 * row_bytes, nullptr, device_out,
                                    device_in, count, transposed != 0),
                         cudaSuccess);
            cudaMemcpy(out, (uint32_t *)device_out, sizeof(out), cudaMemcpyDeviceToHost);
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 2 * count; i++) {
                    /* element i % 2 of matrix i / 2 */
                    int row = lane / 4, column = lane % 4 * 2 + i % 2;
                    if (transposed)
                        std::swap(row, column);
                    const uint16_t want = in[(i / 2 * 8 + row) * row_bytes / 2 + column];
                    const uint16_t got = (uint16_t)(out[lane * 4 + i / 2] >> (i % 2 * 16));
                    cr_expect_eq(got, want, "x%d%s lane %d element %d", count,
                                 transposed ? ".trans" : "", lane, i);
                }
        }
}

/* tf32 rounds ties away from zero, unlike all other formats here. */
Test(cudaemu_layouts, tf32_rounding)
{
    const struct {
        uint32_t in, out;
    } cases[] = {
        { 0x3f800000, 0x3f800000 }, { 0x3f800fff, 0x3f800000 }, { 0x3f801000, 0x3f802000 },
        { 0x3f803000, 0x3f804000 }, { 0xbf801000, 0xbf802000 }, { 0x3fffffff, 0x40000000 },
        { 0x7f800000, 0x7f800000 }, { 0x00000000, 0x00000000 },
    };

    for (const auto &c : cases)
        cr_expect_eq(gsv_tf32(__uint_as_float(c.in)), c.out, "%08x", c.in);
}
