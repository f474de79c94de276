/*
 * vmath.h - exp2, GELU and other activations on vectors. The coefficients are minimax fits made for
 * this project.
 *
 * NaN propagates everywhere: vf_max and vf_min return their second operand for a NaN, so limits are
 * applied with the value as the second operand.
 */
#ifndef GSV_CPU_VMATH_H
#define GSV_CPU_VMATH_H

#include "kernels/cpu/runtime/vec.h"

#include <gpuserve/sys/backend.h>

#define VMATH_LOG2E 1.44269504088896341f

/* 2^x with a relative error below 2e-7; 0 for x below -126, 2^127 for x above 127. */
GSV_INLINE vf vf_exp2(vf x)
{
    const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    const vf bounded = vf_min(vf_set(127.0f), vf_max(vf_set(-126.0f), x));
    const vf shifted = bounded + magic;
    const vf part = bounded - (shifted - magic);
    const vi power = ((vi)shifted << 23) + vi_set(0x3F800000); /* the low bits of magic are zero */
    vf y = vf_set(0.001326472731307149f);

    y = vf_fma(y, part, vf_set(0.009671512991189957f));
    y = vf_fma(y, part, vf_set(0.05550733581185341f));
    y = vf_fma(y, part, vf_set(0.24022242426872253f));
    y = vf_fma(y, part, vf_set(0.6931470036506653f));
    y = vf_fma(y, part, vf_set(1.0f));
    y = y * (vf)power;
#if defined(__AVX512F__)
    return (vf)_mm512_mask_mov_ps(
        (__m512)y, _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_LT_OQ),
        _mm512_setzero_ps());
#else
    return vf_select(x < vf_set(-126.0f), vf_set(0.0f), y);
#endif
}

/* 2^x for x <= 0 with a relative error below 8e-5, enough for weights rounded to 16 bits. The
 * result for x below -126 is some number below 2^-125. */
GSV_INLINE vf vf_exp2_coarse(vf x)
{
#if defined(__AVX512F__)
    /* Exponent and fraction by one instruction each: 2^floor(x) times a polynomial of the rest. */
    const vf part = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF);
    vf y = vf_set(0.07802452147006989f);

    y = vf_fma(y, part, vf_set(0.2260671854019165f));
    y = vf_fma(y, part, vf_set(0.6958335041999817f));
    y = vf_fma(y, part, vf_set(0.9999251961708069f));
    return (vf)_mm512_scalef_ps((__m512)y, (__m512)x);
#else
    /* 1.5 * 2^23 plus the bias of the exponent: the low bits of the sum are the exponent's. */
    const vf magic = vf_set(12583039.0f);
    const vf bounded = vf_max(vf_set(-126.0f), x);
    const vf shifted = bounded + magic;
    const vf part = bounded - (shifted - magic);
    vf y = vf_set(0.0551716685295105f);

    y = vf_fma(y, part, vf_set(0.2426111400127411f));
    y = vf_fma(y, part, vf_set(0.6932609677314758f));
    y = vf_fma(y, part, vf_set(0.9999280571937561f));
    return y * (vf)((vi)shifted << 23);
#endif
}

GSV_INLINE vf vf_exp(vf x)
{
    return vf_exp2(x * vf_set(VMATH_LOG2E));
}

GSV_INLINE vf vf_sigmoid(vf x)
{
    return vf_set(1.0f) / (vf_set(1.0f) + vf_exp(-x));
}

/* tanh with a relative error below 3e-7. A polynomial is used near 0, where the difference of two
 * numbers near 1 would lose digits. */
GSV_INLINE vf vf_tanh(vf x)
{
    const vf square = x * x;
    vf p = vf_set(0.002292476361617446f);

    p = vf_fma(p, square, vf_set(-0.008343655616044998f));
    p = vf_fma(p, square, vf_set(0.021768804639577866f));
    p = vf_fma(p, square, vf_set(-0.05395923927426338f));
    p = vf_fma(p, square, vf_set(0.1333330273628235f));
    p = vf_fma(p, square, vf_set(-0.3333333432674408f));
    return vf_select(square < vf_set(0.390625f), vf_fma(p * square, x, x),
                     vf_fma(vf_set(2.0f), vf_sigmoid(x + x), vf_set(-1.0f)));
}

/* x * Phi(x) with Phi(x) = 1/2 + x P(x^2) / Q(x^2), the normal distribution function within 2e-7.
 * Past 5.5 the fraction is exactly one half, so that large negative x give 0. */
GSV_INLINE vf vf_gelu(vf x)
{
    const vf limit = vf_set(5.5f), half = vf_set(0.5f);
    const vf near = vf_min(limit, vf_max(-limit, x));
    const vf square = near * near;
    vf p = vf_set(2.2240763897229954e-08f), q = vf_set(1.1920643601115444e-06f);

    p = vf_fma(p, square, vf_set(6.478022442024667e-06f));
    q = vf_fma(q, square, vf_set(7.746649498585612e-05f));
    p = vf_fma(p, square, vf_set(0.00017988325271289796f));
    q = vf_fma(q, square, vf_set(0.001946431351825595f));
    p = vf_fma(p, square, vf_set(0.004744356032460928f));
    q = vf_fma(q, square, vf_set(0.029245875775814056f));
    p = vf_fma(p, square, vf_set(0.034882549196481705f));
    q = vf_fma(q, square, vf_set(0.25410231947898865f));
    p = vf_fma(p, square, vf_set(0.39894214272499084f));
    q = vf_fma(q, square, vf_set(1.0f));
    return vf_fma(x, vf_min(half, vf_max(-half, near * p / q)), half * x);
}

/* GELU within 1.3e-5, for int8 and bfloat16: the next step rounds the row to 8 bits.
 *
 *   GELU(x) = max(x, 0) - t Q(t), t = |x|, Q(t) = 1 - Phi(t)
 *
 * Q is a polynomial around the middle of [0, limit]. Past the limit t stays there, where t Q(t) is
 * below the error. A half of the operations of vf_gelu(), and no division. For float32 a polynomial
 * of this form needs degree 15, which is no faster than the fraction. */
GSV_INLINE vf vf_gelu_coarse(vf x)
{
    const float limit = 4.4f;
    const vf t = vf_min(vf_set(limit), (vf)((vi)x & vi_set(0x7FFFFFFF)));
    const vf s = t - vf_set(limit / 2);
    vf q = vf_set(-1.40901166e-05f);

    q = vf_fma(q, s, vf_set(5.15518295e-05f));
    q = vf_fma(q, s, vf_set(0.00016149634f));
    q = vf_fma(q, s, vf_set(-0.00105918909f));
    q = vf_fma(q, s, vf_set(0.000924651453f));
    q = vf_fma(q, s, vf_set(0.00592603814f));
    q = vf_fma(q, s, vf_set(-0.0228102244f));
    q = vf_fma(q, s, vf_set(0.0390579253f));
    q = vf_fma(q, s, vf_set(-0.0354545526f));
    q = vf_fma(q, s, vf_set(0.0139003564f));
    return vf_fma(-t, q, vf_max(vf_set(0.0f), x));
}

/* GELU in tanh form: x / 2 * (1 + tanh u) equals x * sigmoid(2 u). */
GSV_INLINE vf vf_gelu_tanh(vf x)
{
    const vf cube = x * x * x;

    return x * vf_sigmoid(vf_set(1.5957691216057308f) * vf_fma(vf_set(0.044715f), cube, x));
}

/* Expands X(kind) for each activation of vf_activation() except NONE. */
#define VMATH_ACTIVATIONS(X)  \
    X(GPUSERVE_ACT_GELU)      \
    X(GPUSERVE_ACT_GELU_TANH) \
    X(GPUSERVE_ACT_RELU)      \
    X(GPUSERVE_ACT_TANH) X(GPUSERVE_ACT_SILU) X(GPUSERVE_ACT_QUICK_GELU) X(GPUSERVE_ACT_SIGMOID)

/* `kind` is a compile-time constant after inlining. */
GSV_INLINE vf vf_activation(vf x, int32_t kind)
{
    switch (kind) {
    case GPUSERVE_ACT_GELU:
        return vf_gelu(x);
    case GPUSERVE_ACT_GELU_TANH:
        return vf_gelu_tanh(x);
    case GPUSERVE_ACT_RELU:
        return vf_max(vf_set(0.0f), x);
    case GPUSERVE_ACT_TANH:
        return vf_fma(vf_set(2.0f), vf_sigmoid(x + x), vf_set(-1.0f));
    case GPUSERVE_ACT_SILU:
        return x * vf_sigmoid(x);
    case GPUSERVE_ACT_QUICK_GELU:
        return x * vf_sigmoid(vf_set(1.702f) * x);
    case GPUSERVE_ACT_SIGMOID:
        return vf_sigmoid(x);
    default:
        return x;
    }
}

#endif
