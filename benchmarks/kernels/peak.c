/*
 * peak.c - chains of multiply-adds in registers, enough independent ones to hide their latency.
 */
#include "benchmarks/kernels/peak.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define STEPS 200000
#define CHAINS 16
#define NARROW_CHAINS 12 /* of 16 registers */
#define QUAD_CHAINS 8    /* in addition to operands and products */

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double thread_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
#include <immintrin.h>

static volatile float sink_float;
static volatile int sink_int;

__attribute__((target("avx512f"))) static void chains_avx512(void)
{
    __m512 sums[CHAINS];
    const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);

#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_fmadd_ps(sums[c], x, y);
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sink_float = _mm512_reduce_add_ps(sums[c]);
}

__attribute__((target("avx2,fma"))) static void chains_avx2(void)
{
    __m256 sums[NARROW_CHAINS];
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);

#pragma GCC unroll 12
    for (int c = 0; c < NARROW_CHAINS; c++)
        sums[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < NARROW_CHAINS; c++)
            sums[c] = _mm256_fmadd_ps(sums[c], x, y);
    }
#pragma GCC unroll 12
    for (int c = 0; c < NARROW_CHAINS; c++)
        sink_float = _mm256_cvtss_f32(sums[c]);
}

__attribute__((target("avx512f,avx512vnni"))) static void chains_vnni(void)
{
    __m512i sums[CHAINS];
    const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5);

#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_set1_epi32(c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_dpbusd_epi32(sums[c], x, y);
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sink_int = _mm512_reduce_add_epi32(sums[c]);
}

__attribute__((target("avx2,avxvnni"))) static void chains_avx_vnni(void)
{
    __m256i sums[NARROW_CHAINS];
    const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-5);

#pragma GCC unroll 12
    for (int c = 0; c < NARROW_CHAINS; c++)
        sums[c] = _mm256_set1_epi32(c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < NARROW_CHAINS; c++)
            sums[c] = _mm256_dpbusd_avx_epi32(sums[c], x, y);
    }
#pragma GCC unroll 12
    for (int c = 0; c < NARROW_CHAINS; c++)
        sink_int = _mm256_extract_epi32(sums[c], 0);
}

__attribute__((target("avx512f,avx512bf16"))) static void chains_bf16(void)
{
    __m512 sums[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f00), y = (__m512bh)_mm512_set1_epi16(0x3c00);

#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            sums[c] = _mm512_dpbf16_ps(sums[c], x, y);
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sink_float = _mm512_reduce_add_ps(sums[c]);
}

/* Without VNNI: two vpmaddubsw, added in 16 bits, widened by one vpmaddwd; see
 * kernels/cpu/runtime/s8_sums.h. The empty statements keep the compiler from computing products of
 * equal operands once. */
__attribute__((target("avx2"))) static void chains_maddubs_avx2(void)
{
    __m256i sums[QUAD_CHAINS], x = _mm256_set1_epi8(3);
    const __m256i y = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);

#pragma GCC unroll 8
    for (int c = 0; c < QUAD_CHAINS; c++)
        sums[c] = _mm256_set1_epi32(c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 8
        for (int c = 0; c < QUAD_CHAINS; c++) {
            __m256i pairs = _mm256_maddubs_epi16(x, y);

            __asm__ volatile("" : "+x"(x));
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(x, y));
            __asm__ volatile("" : "+x"(x));
            sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs, ones));
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < QUAD_CHAINS; c++)
        sink_int = _mm256_extract_epi32(sums[c], 0);
}

__attribute__((target("avx512f,avx512bw"))) static void chains_maddubs_avx512(void)
{
    __m512i sums[CHAINS], x = _mm512_set1_epi8(3);
    const __m512i y = _mm512_set1_epi8(-5), ones = _mm512_set1_epi16(1);

#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sums[c] = _mm512_set1_epi32(c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            __m512i pairs = _mm512_maddubs_epi16(x, y);

            __asm__ volatile("" : "+v"(x));
            pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(x, y));
            __asm__ volatile("" : "+v"(x));
            sums[c] = _mm512_add_epi32(sums[c], _mm512_madd_epi16(pairs, ones));
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sink_int = _mm512_reduce_add_epi32(sums[c]);
}

/* The max of several runs, because other processes only lower the rate. */
static double best_rate(void (*chains)(void), double ops)
{
    double best = 0.0;

    for (int i = 0; i < 20; i++) {
        const double start = thread_seconds();
        double rate;

        chains();
        rate = ops / (thread_seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static bool is_avx512(const char *isa)
{
    return strncmp(isa, "avx512", 6) == 0;
}

double peak_float_ops(const char *isa)
{
    if (is_avx512(isa))
        return best_rate(chains_avx512, 2.0 * 16 * CHAINS * STEPS);
    if (strncmp(isa, "avx2", 4) == 0)
        return best_rate(chains_avx2, 2.0 * 8 * NARROW_CHAINS * STEPS);
    return 0.0;
}

double peak_byte_ops(const char *isa)
{
    if (strcmp(isa, "avx2") == 0)
        return best_rate(chains_maddubs_avx2, 2.0 * 2 * 32 * QUAD_CHAINS * STEPS);
    if (strcmp(isa, "avx2_vnni") == 0)
        return best_rate(chains_avx_vnni, 2.0 * 32 * NARROW_CHAINS * STEPS);
    if (strcmp(isa, "avx512") == 0)
        return best_rate(chains_maddubs_avx512, 2.0 * 2 * 64 * CHAINS * STEPS);
    if (is_avx512(isa))
        return best_rate(chains_vnni, 2.0 * 64 * CHAINS * STEPS);
    return 0.0;
}

double peak_bf16_ops(const char *isa)
{
    if (strcmp(isa, "avx512_bf16") == 0 || strcmp(isa, "avx512_amx") == 0)
        return best_rate(chains_bf16, 2.0 * 32 * CHAINS * STEPS);
    return 0.0;
}

#else

double peak_float_ops(const char *isa)
{
    (void)isa;
    return 0.0;
}

double peak_byte_ops(const char *isa)
{
    (void)isa;
    return 0.0;
}

double peak_bf16_ops(const char *isa)
{
    (void)isa;
    return 0.0;
}

#endif
