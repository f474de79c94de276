/*
 * bf16.h - rounds vectors of float32 to bfloat16: to nearest, ties to even; denormals become zeros,
 * a NaN stays a NaN.
 *
 * AVX512_BF16 has instructions for it. The plain C has the same results; the builds with the model
 * of the tile registers use it on processors without AVX512_BF16.
 */
#ifndef GSV_CPU_BF16_H
#define GSV_CPU_BF16_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_BF16)

/* GSV_VL bfloat16. */
typedef uint16_t vh __attribute__((vector_size(2 * GSV_VL)));

#if !defined(__AVX512BF16__)
typedef uint32_t vu __attribute__((vector_size(4 * GSV_VL)));

GSV_INLINE vh vh_round(vf x)
{
    const vu bits = (vu)x, upper = bits >> 16;
    const vi magnitude = (vi)bits & vi_set(0x7FFFFFFF);
    vi rounded = (vi)((bits + 0x7FFF + (upper & 1)) >> 16);

    rounded = (vi)vf_select(magnitude < vi_set(0x00800000), (vf)(upper & 0x8000), (vf)rounded);
    rounded = (vi)vf_select(magnitude > vi_set(0x7F800000), (vf)(upper | 0x40), (vf)rounded);
    return __builtin_convertvector(rounded, vh);
}
#else
GSV_INLINE vh vh_round(vf x)
{
    return (vh)_mm512_cvtneps_pbh((__m512)x);
}
#endif

GSV_INLINE void vh_store(uint16_t *to, vh x)
{
    memcpy(to, &x, sizeof(x));
}

/* The lanes of `low`, then those of `high`. */
GSV_INLINE vi vh_two(vf low, vf high)
{
#if defined(__AVX512BF16__)
    return (vi)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    uint16_t both[2 * GSV_VL];

    vh_store(both, vh_round(low));
    vh_store(both + GSV_VL, vh_round(high));
    return *(const vi_any *)(const void *)both;
#endif
}

/* Lane i: (even[i], odd[i]). */
GSV_INLINE vi vh_pairs(vf even, vf odd)
{
#if defined(__AVX512BF16__)
    const vi order = (vi_lanes() + vi_set(16)) << 16 | vi_lanes();

    return (vi)_mm512_permutexvar_epi16((__m512i)order, (__m512i)vh_two(even, odd));
#else
    return __builtin_convertvector(vh_round(even), vi) | __builtin_convertvector(vh_round(odd), vi)
                                                             << 16;
#endif
}

#endif
#endif
