/*
 * s16.h - signed 16-bit integers on vectors: rounding of float32, and the sum of two products of
 * each lane. A lane of a `vi` holds two integers, the first in its lower half.
 *
 * VNNI has one instruction for the sum (vpdpwssd). In AVX2 vpmaddwd multiplies, and vpaddd adds on
 * a port that does not multiply. The rates are in kernels/cpu/README.md.
 */
#ifndef GSV_CPU_S16_H
#define GSV_CPU_S16_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_S16)

#define VS_MIN_LARGEST 1e-30f /* minimum range to divide into steps: levels / largest is finite */

/* sum + x.first * y.first + x.second * y.second in each lane; no sum may leave 32 bits. */
GSV_INLINE vi vs_dot2(vi sum, vi x, vi y)
{
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
#elif defined(__AVXVNNI__)
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)y);
#else
    return sum + (vi)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#endif
}

/* Lane i: (even[i], odd[i]) times factor[i], rounded to nearest, ties to even; |result| < 2^15.
 * The low bits of 1.5 * 2^23 are zero, so those of the sum are the integer. */
GSV_INLINE vi vs_pairs(vf even, vf odd, vf factor)
{
    const vf magic = vf_set(12582912.0f);
    const vi first = (vi)vf_fma(even, factor, magic), second = (vi)vf_fma(odd, factor, magic);

#if defined(__AVX512F__)
    return (vi)_mm512_mask_blend_epi16(0xAAAAAAAA, (__m512i)first, (__m512i)(second << 16));
#else
    return (vi)_mm256_blend_epi16((__m256i)first, (__m256i)(second << 16), 0xAA);
#endif
}

/* The larger magnitude; a NaN is larger than all others. `largest` is a magnitude. */
GSV_INLINE vf vs_larger(vf largest, vf x)
{
    const vi magnitude = (vi)x & vi_set(INT32_MAX);

#if defined(__AVX512F__)
    return (vf)_mm512_max_epi32((__m512i)largest, (__m512i)magnitude);
#else
    return (vf)_mm256_max_epi32((__m256i)largest, (__m256i)magnitude);
#endif
}

GSV_INLINE float vs_largest(vf largest)
{
#if GSV_VL == 16
    largest = vs_larger(largest, VF_FROM_8(largest));
#endif
    largest = vs_larger(largest, VF_FROM_4(largest));
    largest = vs_larger(largest, VF_FROM_2(largest));
    return vs_larger(largest, VF_FROM_1(largest))[0];
}

#endif
#endif
