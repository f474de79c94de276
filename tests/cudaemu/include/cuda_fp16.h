/*
 * cuda_fp16.h - half precision; replaces the toolkit's header.
 *
 * Conversions are bit-exact: round to nearest, ties to even, overflow to infinity, a NaN becomes
 * 0x7fff.
 */
#ifndef GSV_EMU_CUDA_FP16_H
#define GSV_EMU_CUDA_FP16_H

#include <emu_float16.h>

inline uint16_t gsv_emu_float_to_half(float x)
{
    const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return 0x7fff;
    if (rest >= 0x477ff000u) /* 65520, the midpoint to the next (unrepresentable) half */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* below 2^-14: adding 0.5, whose last bit is 2^-24, rounds it */
        const float shifted = __uint_as_float(rest) + 0.5f;
        return (uint16_t)(sign | (__float_as_uint(shifted) - 0x3f000000u));
    }
    rest += 0xfffu + (rest >> 13 & 1u);
    return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}

inline float gsv_emu_half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;

    if (rest < 0x400u) /* zero and subnormal: multiples of 2^-24 */
        return __uint_as_float(sign | __float_as_uint((float)rest * 0x1p-24f));
    if (rest >= 0x7c00u)
        return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    return __uint_as_float(sign | ((rest << 13) + 0x38000000u));
}

struct __half {
    uint16_t bits;

    __half() = default;
    __half(float x) : bits(gsv_emu_float_to_half(x))
    {
    }
    __half(double x) : bits(gsv_emu_float_to_half((float)x))
    {
    }
    __half(int x) : bits(gsv_emu_float_to_half((float)x))
    {
    }
    operator float() const
    {
        return gsv_emu_half_to_float(bits);
    }
};

struct alignas(4) __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

GSV_EMU_16BIT(__half)

inline half __float2half(float x)
{
    return half(x);
}

inline half __float2half_rn(float x)
{
    return half(x);
}

inline float __half2float(half x)
{
    return x;
}

inline half2 __floats2half2_rn(float x, float y)
{
    return { half(x), half(y) };
}

inline half2 __float22half2_rn(float2 v)
{
    return { half(v.x), half(v.y) };
}

inline half2 __float2half2_rn(float x)
{
    return { half(x), half(x) };
}

inline float2 __half22float2(half2 v)
{
    return { v.x, v.y };
}

inline half2 __halves2half2(half x, half y)
{
    return { x, y };
}

inline half2 __half2half2(half x)
{
    return { x, x };
}

inline half2 make_half2(half x, half y)
{
    return { x, y };
}

inline half __low2half(half2 v)
{
    return v.x;
}

inline half __high2half(half2 v)
{
    return v.y;
}

inline unsigned short __half_as_ushort(half x)
{
    return x.bits;
}

inline half __ushort_as_half(unsigned short bits)
{
    half x;
    x.bits = bits;
    return x;
}

#endif
