/*
 * peak.c - chains of multiply-adds in registers, enough independent ones to hide their latency.
 */
#include "benchmarks/kernels/peak.h"

#include <stdint.h>
#include <time.h>

#define STEPS 200000
#define CHAINS 16

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
    __m256 sums[12];
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);

#pragma GCC unroll 12
    for (int c = 0; c < 12; c++)
        sums[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < 12; c++)
            sums[c] = _mm256_fmadd_ps(sums[c], x, y);
    }
#pragma GCC unroll 12
    for (int c = 0; c < 12; c++)
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

double peak_float_ops(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return best_rate(chains_avx512, 2.0 * 16 * CHAINS * STEPS);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return best_rate(chains_avx2, 2.0 * 8 * 12 * STEPS);
    return 0.0;
}

double peak_byte_ops(void)
{
    if (__builtin_cpu_supports("avx512vnni"))
        return best_rate(chains_vnni, 2.0 * 64 * CHAINS * STEPS);
    return 0.0;
}

#else

double peak_float_ops(void)
{
    return 0.0;
}

double peak_byte_ops(void)
{
    return 0.0;
}

#endif
