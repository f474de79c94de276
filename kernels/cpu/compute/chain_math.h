/*
 * chain_math.h - transcendental functions on vectors, within 2 units in the last place (ULP) of the
 * exact function over all float32 arguments. The coefficients are minimax fits made for this
 * project.
 *
 *   sin, cos   float32 vectors with FMA. The argument is reduced by multiples of pi / 2 with a
 *              constant in three parts (Cody and Waite), exact enough below GSV_ANGLE_LIMIT; a lane
 *              beyond it is computed by large_angle.c. Without FMA: float64 vectors.
 *   others     float64 vectors, half as many lanes, and one rounding to float32
 *
 * NaN propagates everywhere.
 */
#ifndef GSV_CPU_CHAIN_MATH_H
#define GSV_CPU_CHAIN_MATH_H

#include "kernels/cpu/compute/large_angle.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(__FMA__) || defined(GSV_NEON)
#define GSV_HAS_FMA 1
#else
#define GSV_HAS_FMA 0
#endif

/* --------------------------------------------------------------------------------------- float64
 */

#define GSV_DL (GSV_VL / 2) /* lanes of a vector of doubles */

typedef double vd __attribute__((vector_size(8 * GSV_DL)));
typedef int64_t vl __attribute__((vector_size(8 * GSV_DL)));
typedef float vh __attribute__((vector_size(4 * GSV_DL)));
typedef float vh_any __attribute__((vector_size(4 * GSV_DL), aligned(4), may_alias));

#define VD_MAGIC 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer */

GSV_INLINE vd vd_load(const float *p)
{
    return __builtin_convertvector((vh) * (const vh_any *)p, vd);
}

GSV_INLINE void vd_store(float *p, vd v)
{
    *(vh_any *)p = __builtin_convertvector(v, vh);
}

GSV_INLINE vd vd_set(double x)
{
    return x - (vd){ 0 };
}

GSV_INLINE vl vl_set(int64_t x)
{
    return x + (vl){ 0 };
}

GSV_INLINE vd vd_select(vl mask, vd a, vd b)
{
    return (vd)((mask & (vl)a) | (~mask & (vl)b));
}

GSV_INLINE vd vd_absolute(vd x)
{
    return (vd)((vl)x & vl_set(INT64_MAX));
}

/* `x` with the sign of `sign`; x is not negative. */
GSV_INLINE vd vd_signed(vd x, vd sign)
{
    return (vd)((vl)x | ((vl)sign & vl_set(INT64_MIN)));
}

/* Horner's scheme from the last coefficient; n is a compile-time constant. */
GSV_INLINE vd vd_polynomial(vd x, const double *c, int n)
{
    vd y = vd_set(c[n - 1]);

#pragma GCC unroll 16
    for (int i = n - 2; i >= 0; i--)
        y = y * x + vd_set(c[i]);
    return y;
}

/* e^x for x within 200 of 0, beyond it e^200 and e^-200: infinity and 0 in float32. */
GSV_INLINE vd vd_exp(vd x)
{
    static const double c[] = { 0.999999999961652,    1.0000000002433076,    0.5000000104597967,
                                0.16666665125102076,  0.04166622525094421,   0.008333561200146911,
                                0.001394819509280622, 0.00019775149407114727 };
    const vd limit = vd_set(200.0);
    const vd near = vd_select(x > limit, limit, vd_select(x < -limit, -limit, x));
    const vd shifted = near * vd_set(1.44269504088896340736) + vd_set(VD_MAGIC);
    const vd rest = near - (shifted - vd_set(VD_MAGIC)) * vd_set(0.69314718055994530942);
    const vl power =
        ((vl)shifted << 52) + vl_set((int64_t)1023 << 52); /* low bits of magic are 0 */

    return vd_polynomial(rest, c, 8) * (vd)power;
}

/* x = m * 2^e with m from sqrt(1/2) to sqrt(2); log x = e log 2 + 2 atanh((m - 1) / (m + 1)). */
GSV_INLINE vd vd_log(vd x)
{
    static const double c[] = { 0.3333333280160026, 0.20000172789124107, 0.14268301296840707,
                                0.11798168895448055 };
    const vl root = vl_set(0x3FE6A09E667F3BCD); /* sqrt(1/2) */
    /* Bits of negative numbers would overflow the subtractions. */
    const vd near = vd_select((x > vd_set(0.0)) & (x < vd_set(__builtin_inf())), x, vd_set(1.0));
    const vl exponent = ((vl)near - root) >> 52;
    const vd m = (vd)((vl)near - (exponent << 52));
    const vd e = (vd)(exponent + (vl)vd_set(VD_MAGIC)) - vd_set(VD_MAGIC);
    const vd s = (m - vd_set(1.0)) / (m + vd_set(1.0)), square = s * s;
    const vd y = e * vd_set(0.69314718055994530942) +
                 (s + s) * (vd_set(1.0) + square * vd_polynomial(square, c, 4));
    const vd special = vd_select(x == vd_set(0.0), vd_set(-__builtin_inf()),
                                 vd_select(x > vd_set(0.0), x, vd_set(__builtin_nan(""))));

    return vd_select((x > vd_set(0.0)) & (x < vd_set(__builtin_inf())), y, special);
}

GSV_INLINE vd vd_tanh(vd x)
{
    static const double c[] = { -0.3333333328683696, 0.1333332596357787, -0.05396445377868868,
                                0.02178360873624796, -0.007972407772096757 };
    const vd size = vd_absolute(x), square = x * x;
    const vd near = x * (vd_set(1.0) + square * vd_polynomial(square, c, 5));
    const vd far = vd_set(1.0) - vd_set(2.0) / (vd_exp(size + size) + vd_set(1.0));

    return vd_select(size < vd_set(0.3), near, vd_signed(far, x));
}

GSV_INLINE vd vd_sigmoid(vd x)
{
    return vd_set(1.0) / (vd_set(1.0) + vd_exp(-x));
}

/* 1 - erf(z) = e^-z^2 * f((z - 4) / (z + 4)) / (1 + 2 z) for z >= 0; `square` is z^2. */
GSV_INLINE vd vd_erfc(vd z, vd square)
{
    static const double c[] = {
        1.232995118776992,     -0.1396211186523735,  0.015379623815707616,   0.06809715064675113,
        -0.10103815294277078,  0.0937318560245237,   -0.06634130227183074,   0.03716526833402558,
        -0.016143695495367413, 0.005089462495265739, -0.0008380416024212037, -0.0003676417635538171,
        8.14269486518731e-05,
    };
    const vd limit = vd_set(10.6); /* of the fit; e^-z^2 rounds to 0 in float32 before it */
    const vd near = vd_select(z > limit, limit, z);
    const vd q = (near - vd_set(4.0)) / (near + vd_set(4.0));
    const vd y = vd_exp(-square) * vd_polynomial(q, c, 13) / (vd_set(1.0) + near + near);

    return vd_select(z > vd_set(40.0), vd_set(0.0), y); /* -infinity * 0 of GELU is NaN */
}

GSV_INLINE vd vd_erf(vd x)
{
    static const double c[] = { 1.1283791670580203,     -0.37612638434635337,
                                0.11283781973858475,    -0.02686540002755938,
                                0.00522094539169706,    -0.0008482828248647931,
                                0.00011256943607697398, -9.641503882859733e-06 };
    const vd size = vd_absolute(x), square = x * x;
    const vd far = vd_signed(vd_set(1.0) - vd_erfc(size, square), x);

    return vd_select(size < vd_set(1.0), x * vd_polynomial(square, c, 8), far);
}

/* x / 2 * erfc(-x / sqrt 2) */
GSV_INLINE vd vd_gelu(vd x)
{
    const vd z = vd_absolute(x) * vd_set(0.70710678118654752440);
    const vd tail = vd_erfc(z, vd_set(0.5) * x * x);

    return vd_set(0.5) * x * vd_select(x > vd_set(0.0), vd_set(2.0) - tail, tail);
}

/* ------------------------------------------------------------------------------------ sin and cos
 */

#define GSV_ANGLE_LIMIT 131072.0f /* 2^17 */

/* True if a lane of the mask is set. */
GSV_INLINE int vi_any_set(vi mask)
{
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)mask) != 0;
#elif defined(GSV_NEON)
    return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
    int32_t any = 0;

    for (int i = 0; i < GSV_VL; i++)
        any |= mask[i];
    return any != 0;
#endif
}

GSV_INLINE vf vf_absolute(vf x)
{
    return (vf)((vi)x & vi_set(INT32_MAX));
}

/* sin(x) / x - 1 and cos(x) - 1 divided by x^2, for |x| <= 1, by powers of x^2. */
#define GSV_SIN_COEFFICIENTS                                               \
    {                                                                      \
        -0x1.555556p-3f, 0x1.11113ep-7f, -0x1.a02006p-13f, 0x1.6dece8p-19f \
    }
#define GSV_COS_COEFFICIENTS                                    \
    {                                                           \
        -0.5f, 0x1.555524p-5f, -0x1.6bfaap-10f, 0x1.96091ep-16f \
    }

/* Horner's scheme from the last coefficient; n is a compile-time constant. */
GSV_INLINE vf vf_polynomial(vf x, const float *c, int n)
{
    vf y = vf_set(c[n - 1]);

#pragma GCC unroll 16
    for (int i = n - 2; i >= 0; i--)
        y = vf_fma(y, x, vf_set(c[i]));
    return y;
}

/* sin(x) for |x| <= 1, but for the sign of 0. */
GSV_INLINE vf vf_sin_sum(vf x)
{
    static const float c[] = GSV_SIN_COEFFICIENTS;
    const vf square = x * x;

    return vf_fma(square * vf_polynomial(square, c, 4), x, x);
}

/* sin(x) for |x| <= 1. */
GSV_INLINE vf vf_sin_near(vf x)
{
    /* sin(x) has the sign of x; the sum loses that of -0. */
    return (vf)((vi)vf_sin_sum(x) | ((vi)x & vi_set(INT32_MIN)));
}

/* cos(x) for |x| <= 1. */
GSV_INLINE vf vf_cos_near(vf x)
{
    static const float c[] = GSV_COS_COEFFICIENTS;
    const vf square = x * x;

    return vf_fma(vf_polynomial(square, c, 4), square, vf_set(1.0f));
}

#if GSV_HAS_FMA
/* sin(x + turn * pi / 2). x - n pi / 2 is at most pi / 4, n the integer closest to x * 2 / pi. */
GSV_INLINE vf vf_sin_reduced(vf x, int32_t turn)
{
    const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    const vf shifted = vf_fma(x, vf_set(0.636619772f), magic);
    const vf n = shifted - magic;
    const vi quadrant = (vi)shifted + vi_set(turn);
    vf r = vf_fma(n, vf_set(-0x1.921fb6p+0f), x);

    r = vf_fma(n, vf_set(0x1.777a5cp-25f), r);
    r = vf_fma(n, vf_set(0x1.ee59dap-50f), r);
    r = vf_select((quadrant & vi_set(1)) != vi_set(0), vf_cos_near(r), vf_sin_sum(r));
    return (vf)((vi)r ^ (quadrant & vi_set(2)) << 30);
}
#else
/* As with FMA, in float64. */
GSV_INLINE vd vd_sin_reduced(vd x, int64_t turn)
{
    static const double sin_c[] = GSV_SIN_COEFFICIENTS, cos_c[] = GSV_COS_COEFFICIENTS;
    const vd shifted = x * vd_set(0.63661977236758134308) + vd_set(VD_MAGIC);
    const vd n = shifted - vd_set(VD_MAGIC);
    const vd r = x - n * vd_set(0x1.921fb544p+0) - n * vd_set(0x1.0b4611a626331p-34);
    const vl quadrant = (vl)shifted + vl_set(turn);
    const vd square = r * r;
    const vd sine = r + r * square * vd_polynomial(square, sin_c, 4);
    const vd cosine = vd_set(1.0) + square * vd_polynomial(square, cos_c, 4);
    const vd y = vd_select((quadrant & vl_set(1)) != vl_set(0), cosine, sine);

    return (vd)((vl)y ^ (quadrant & vl_set(2)) << 62);
}

GSV_INLINE vf vf_sin_reduced(vf x, int32_t turn)
{
    float lanes[GSV_VL];

    vf_store(lanes, x);
    vd_store(lanes, vd_sin_reduced(vd_load(lanes), turn));
    vd_store(lanes + GSV_DL, vd_sin_reduced(vd_load(lanes + GSV_DL), turn));
    return vf_load(lanes);
}
#endif

/* Replace lanes of `y` whose argument is beyond the limit of the reduction. */
GSV_INLINE vf vf_fix_large(vf x, vf y, float (*large)(float))
{
    const vi is_large = vf_absolute(x) > vf_set(GSV_ANGLE_LIMIT);

    if (__builtin_expect(vi_any_set(is_large), 0)) {
        for (int i = 0; i < GSV_VL; i++)
            y[i] = is_large[i] ? large(x[i]) : y[i];
    }
    return y;
}

/* In [-1, 1] the bits are those of vf_sin_near() and vf_cos_near(). */
GSV_INLINE vf vf_sin(vf x)
{
    const vf y = vf_select(vf_absolute(x) <= vf_set(1.0f), vf_sin_near(x), vf_sin_reduced(x, 0));

    return vf_fix_large(x, y, gsv_sin_large);
}

GSV_INLINE vf vf_cos(vf x)
{
    const vf y = vf_select(vf_absolute(x) <= vf_set(1.0f), vf_cos_near(x), vf_sin_reduced(x, 1));

    return vf_fix_large(x, y, gsv_cos_large);
}

#endif
