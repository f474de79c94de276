/*
 * test_numbers.cpp - half and bfloat16 conversions of all 65,536 values, and the warp functions.
 *
 * The reference for half is the compiler's _Float16 if available (gcc, and clang with F16C), else
 * arithmetic with powers of two. For bfloat16 each float is compared with its two neighbours.
 */
#include <criterion/criterion.h>

#include <cmath>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device_memory.h"
#include "emu.h"
#include "kernels/cuda/runtime/launch.cuh"

namespace
{

/* Value of half bits by the format's definition. */
double half_value(unsigned bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

float next_up(float x)
{
    return nextafterf(x, INFINITY);
}

float next_down(float x)
{
    return nextafterf(x, -INFINITY);
}

/* Rounding between half `low` and the next half: below, above and at the midpoint (to even). */
void check_between(unsigned low)
{
    const unsigned high = low + 1;
    const double above = high == 0x7c00 ? 65536.0 : half_value(high);
    const float middle = (float)((half_value(low) + above) / 2); /* exact */
    const unsigned even = low & 1 ? high : low;

    cr_expect_eq(gsv_emu_float_to_half(middle), even, "middle above %04x", low);
    cr_expect_eq(gsv_emu_float_to_half(next_down(middle)), low, "below the middle above %04x", low);
    cr_expect_eq(gsv_emu_float_to_half(next_up(middle)), high, "above the middle above %04x", low);
    cr_expect_eq(gsv_emu_float_to_half(-middle), even | 0x8000);
}

struct lane_results {
    float exchanged[5];
    unsigned votes[3];
    int sums[2];
    int counts[3];
};

__global__ void warp_functions(lane_results *out)
{
    const unsigned i = threadIdx.x;
    const unsigned all = 0xffffffffu;
    lane_results r;

    r.exchanged[0] = __shfl_sync(all, (float)i, 5);
    r.exchanged[1] = __shfl_sync(all, (float)i, 3, 8);
    r.exchanged[2] = __shfl_up_sync(all, (float)i, 3);
    r.exchanged[3] = __shfl_down_sync(all, (float)i, 2, 16);
    r.exchanged[4] = __shfl_xor_sync(all, (float)i, 9);
    r.votes[0] = __ballot_sync(all, i % 3 == 0);
    r.votes[1] = (unsigned)__any_sync(all, i == 31);
    r.votes[2] = (unsigned)__all_sync(all, i < 31);
    r.sums[0] = __reduce_add_sync(all, (int)i - 20);
    r.sums[1] = __reduce_max_sync(i < 8 ? 0xffu : 0xffffff00u, (int)i);
    r.counts[0] = __syncthreads_count(i % 2);
    r.counts[1] = __syncthreads_or(i == 77);
    r.counts[2] = __syncthreads_and(i < 32);
    out[i] = r;
}

__global__ void add_all(float *sum, int *most, const float *values)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    atomicAdd(sum, values[i]);
    atomicMax(most, (int)i);
}

} // namespace

Test(cudaemu_numbers, half_to_float_is_exact)
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        const float got = gsv_emu_half_to_float((uint16_t)bits);
        const double want = half_value(bits);

        if (std::isnan(want))
            cr_expect(std::isnan(got), "%04x", bits);
        else
            cr_expect(got == want && std::signbit(got) == std::signbit(want), "%04x: %g", bits,
                      got);
    }
}

Test(cudaemu_numbers, float_to_half_rounds_to_nearest_even)
{
    for (unsigned bits = 0; bits < 65536; bits++)
        if (!std::isnan(half_value(bits)))
            cr_expect_eq(gsv_emu_float_to_half((float)half_value(bits)), bits, "%04x", bits);
    for (unsigned low = 0; low < 0x7c00; low++)
        check_between(low);
    cr_expect_eq(gsv_emu_float_to_half(NAN), 0x7fff);
    cr_expect_eq(gsv_emu_float_to_half(1e30f), 0x7c00);
    cr_expect_eq(gsv_emu_float_to_half(-1e-30f), 0x8000);
}

Test(cudaemu_numbers, bfloat16_is_the_upper_half_of_a_float)
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        const float x = gsv_emu_bfloat16_to_float((uint16_t)bits);
        uint32_t whole;

        memcpy(&whole, &x, sizeof(whole));
        cr_expect_eq(whole, (uint32_t)bits << 16);
        cr_expect_eq(gsv_emu_float_to_bfloat16(x), std::isnan(x) ? 0x7fffu : bits);
        if (std::isnan(x) || std::isinf(x))
            continue;
        const auto beyond = [whole](uint32_t more) { return __uint_as_float(whole + more); };
        const unsigned even = bits & 1 ? bits + 1 : bits;
        cr_expect_eq(gsv_emu_float_to_bfloat16(beyond(0x7fff)), bits, "%04x", bits);
        cr_expect_eq(gsv_emu_float_to_bfloat16(beyond(0x8000)), even, "%04x", bits);
        cr_expect_eq(gsv_emu_float_to_bfloat16(beyond(0x8001)), bits + 1, "%04x", bits);
    }
}

Test(cudaemu_numbers, arithmetic_rounds_once)
{
    const half a(1.0009765625f), b(0.00048828125f); /* 1 + 2^-10 and 2^-11: a tie */
    const half2 pair = __floats2half2_rn(1.5f, -2.25f);
    const float2 back = __half22float2(__hmul2(pair, pair));

    cr_expect_eq((a + b).bits, 0x3c02);
    cr_expect_eq(__hfma(a, half(2.0f), half(1.0f)).bits, gsv_emu_float_to_half(3.001953125f));
    cr_expect_eq(back.x, 2.25f);
    cr_expect_eq(back.y, 5.0625f);
    cr_expect_eq(__hmax(half(-1.0f), half(3.0f)).bits, half(3.0f).bits);
    cr_expect_eq((__nv_bfloat16(1.0f) + __nv_bfloat16(0.00390625f)).bits, 0x3f80);
    cr_expect_eq(__float2int_rn(2.5f), 2);
    cr_expect_eq(__float2int_rn(3.5f), 4);
    cr_expect_eq(__float2int_rn(NAN), 0);
    cr_expect_eq(__float2int_rn(1e20f), INT32_MAX);
    cr_expect_eq(__byte_perm(0x44332211, 0x88776655, 0x7410), 0x88552211u);
    cr_expect_eq(__dp4a(0x01ff7f80, 0x02020202, 5), 5 + 2 * (1 - 1 + 127 - 128));
}

Test(cudaemu_numbers, warp_and_block_functions)
{
    lane_results out[32];
    device_memory<lane_results> device(32);

    for (uint64_t seed = 0; seed < 3; seed++) {
        gsv_emu_seed(seed);
        cr_assert_eq(GSV_LAUNCH(warp_functions, 1, 32, 0, nullptr, device), cudaSuccess);
        cr_assert_eq(cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost), cudaSuccess);
        for (int i = 0; i < 32; i++) {
            const lane_results &r = out[i];
            cr_expect_eq(r.exchanged[0], 5);
            cr_expect_eq(r.exchanged[1], i / 8 * 8 + 3);
            cr_expect_eq(r.exchanged[2], i < 3 ? i : i - 3);
            cr_expect_eq(r.exchanged[3], i % 16 < 14 ? i + 2 : i);
            cr_expect_eq(r.exchanged[4], i ^ 9);
            cr_expect_eq(r.votes[0], 0x49249249u);
            cr_expect_eq(r.votes[1], 1);
            cr_expect_eq(r.votes[2], 0);
            cr_expect_eq(r.sums[0], 496 - 640);
            cr_expect_eq(r.sums[1], i < 8 ? 7 : 31);
            cr_expect_eq(r.counts[0], 16);
            cr_expect_eq(r.counts[1], 0);
            cr_expect_eq(r.counts[2], 1);
        }
    }
}

Test(cudaemu_numbers, atomics_over_blocks)
{
    float values[96], sum = 0;
    int most = -1;

    for (int i = 0; i < 96; i++)
        values[i] = (float)i;
    device_memory<float> device_values(values, 96), device_sum(&sum, 1);
    device_memory<int> device_max(&most, 1);
    gsv_emu_seed(9);
    GSV_LAUNCH(add_all, 3, 32, 0, nullptr, device_sum, device_max, device_values);
    cudaMemcpy(&sum, device_sum, sizeof(sum), cudaMemcpyDeviceToHost);
    cudaMemcpy(&most, device_max, sizeof(most), cudaMemcpyDeviceToHost);
    cr_expect_eq(sum, 95 * 48);
    cr_expect_eq(most, 95);
}
