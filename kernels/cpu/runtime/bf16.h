/*
 * bf16.h - bfloat16 on vectors: rounding of float32 to nearest, ties to even, and the sum of two
 * products of each lane. A NaN stays a NaN. Denormals are zeros in a product, whether or not the
 * rounding keeps them. A lane of a `vi` holds two bfloat16, the first in its lower half.
 *
 * AVX512_BF16 and aarch64 have instructions. The plain C rounds as AVX512_BF16 does; the builds
 * with the model of the tile registers use it on processors without AVX512_BF16.
 */
#ifndef GSV_CPU_BF16_H
#define GSV_CPU_BF16_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_BF16)

/* GSV_VL bfloat16. */
typedef uint16_t vh __attribute__((vector_size(2 * GSV_VL)));

GSV_INLINE void vh_store(uint16_t *to, vh x)
{
    memcpy(to, &x, sizeof(x));
}

/*
 * vh_two     the lanes of `low`, then those of `high`
 * vh_pairs   lane i: (even[i], odd[i])
 * vh_dot2    sum + x.first * y.first + x.second * y.second in each lane
 */
#if defined(GSV_NEON)
GSV_INLINE vh vh_round(vf x)
{
    return (vh)vcvt_bf16_f32((float32x4_t)x);
}

GSV_INLINE vi vh_two(vf low, vf high)
{
    return (vi)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)low), (float32x4_t)high);
}

GSV_INLINE vi vh_pairs(vf even, vf odd)
{
    const uint16x8_t first = (uint16x8_t)vcvtq_low_bf16_f32((float32x4_t)even);
    const uint16x8_t second = (uint16x8_t)vcvtq_low_bf16_f32((float32x4_t)odd);

    return (vi)vzip1q_u16(first, second);
}

GSV_INLINE vf vh_dot2(vf sum, vi x, vi y)
{
    return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)y);
}

#elif defined(__AVX512BF16__)
GSV_INLINE vh vh_round(vf x)
{
    return (vh)_mm512_cvtneps_pbh((__m512)x);
}

GSV_INLINE vi vh_two(vf low, vf high)
{
    return (vi)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

GSV_INLINE vi vh_pairs(vf even, vf odd)
{
    const vi order = (vi_lanes() + vi_set(16)) << 16 | vi_lanes();

    return (vi)_mm512_permutexvar_epi16((__m512i)order, (__m512i)vh_two(even, odd));
}

GSV_INLINE vf vh_dot2(vf sum, vi x, vi y)
{
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
}

#else /* vh_dot2() is that of the tile registers */
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

GSV_INLINE vi vh_two(vf low, vf high)
{
    uint16_t both[2 * GSV_VL];

    vh_store(both, vh_round(low));
    vh_store(both + GSV_VL, vh_round(high));
    return *(const vi_any *)(const void *)both;
}

GSV_INLINE vi vh_pairs(vf even, vf odd)
{
    return __builtin_convertvector(vh_round(even), vi) | __builtin_convertvector(vh_round(odd), vi)
                                                             << 16;
}
#endif

#endif
#endif
