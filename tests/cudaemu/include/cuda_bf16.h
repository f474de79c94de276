/*
 * cuda_bf16.h - bfloat16; replaces the toolkit's header.
 *
 * Conversions are bit-exact: round to nearest, ties to even, a NaN becomes 0x7fff.
 */
#ifndef GSV_EMU_CUDA_BF16_H
#define GSV_EMU_CUDA_BF16_H

#include <emu_float16.h>

inline uint16_t gsv_emu_float_to_bfloat16(float x)
{
    const uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float gsv_emu_bfloat16_to_float(uint16_t b)
{
    return __uint_as_float((uint32_t)b << 16);
}

struct __nv_bfloat16 {
    uint16_t bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(gsv_emu_float_to_bfloat16(x))
    {
    }
    __nv_bfloat16(double x) : bits(gsv_emu_float_to_bfloat16((float)x))
    {
    }
    __nv_bfloat16(int x) : bits(gsv_emu_float_to_bfloat16((float)x))
    {
    }
    operator float() const
    {
        return gsv_emu_bfloat16_to_float(bits);
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

GSV_EMU_16BIT(__nv_bfloat16)

inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}

inline float __bfloat162float(__nv_bfloat16 x)
{
    return x;
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __nv_bfloat16(x), __nv_bfloat16(y) };
}

inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return { __nv_bfloat16(v.x), __nv_bfloat16(v.y) };
}

inline __nv_bfloat162 __float2bfloat162_rn(float x)
{
    return { __nv_bfloat16(x), __nv_bfloat16(x) };
}

inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return { v.x, v.y };
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return { x, y };
}

inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x)
{
    return { x, x };
}

inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}

inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}

#endif
