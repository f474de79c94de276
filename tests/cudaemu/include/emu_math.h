/*
 * emu_math.h - the device's arithmetic functions on the host.
 *
 * Approximate functions of the device (__expf etc.) are exact here; tests allow for the difference.
 */
#ifndef GSV_EMU_MATH_H
#define GSV_EMU_MATH_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>

using std::isfinite;
using std::isinf;
using std::isnan;

/* Macros, because glibc declares functions with some of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __exp10f(x) powf(10.0f, x)

inline int gsv_emu_bits(float x)
{
    int bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
}

inline float gsv_emu_float(int bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}

inline int __float_as_int(float x)
{
    return gsv_emu_bits(x);
}

inline unsigned __float_as_uint(float x)
{
    return (unsigned)gsv_emu_bits(x);
}

inline float __int_as_float(int x)
{
    return gsv_emu_float(x);
}

inline float __uint_as_float(unsigned x)
{
    return gsv_emu_float((int)x);
}

/* --- float arithmetic ----------------------------------------------------------------------------
 */

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

inline float __frsqrt_rn(float x)
{
    return (float)(1.0 / sqrt((double)x));
}

inline float __fdividef(float x, float y)
{
    return x / y;
}

inline float __fdiv_rn(float x, float y)
{
    return x / y;
}

inline float __frcp_rn(float x)
{
    return 1.0f / x;
}

inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

inline float __fadd_rn(float x, float y)
{
    return x + y;
}

inline float __fsub_rn(float x, float y)
{
    return x - y;
}

inline float __fmul_rn(float x, float y)
{
    return x * y;
}

inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

inline float normcdff(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752f);
}

/* --- conversions: the device saturates and turns NaN to 0 ----------------------------------------
 */

inline int gsv_emu_to_int(float x)
{
    if (x != x)
        return 0;
    return x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)x;
}

inline int __float2int_rn(float x)
{
    return gsv_emu_to_int(rintf(x));
}

inline int __float2int_rz(float x)
{
    return gsv_emu_to_int(truncf(x));
}

inline int __float2int_rd(float x)
{
    return gsv_emu_to_int(floorf(x));
}

inline int __float2int_ru(float x)
{
    return gsv_emu_to_int(ceilf(x));
}

inline unsigned __float2uint_rn(float x)
{
    x = rintf(x);
    return !(x > 0.0f) ? 0 : x >= 4294967296.0f ? UINT32_MAX : (unsigned)x;
}

inline float __int2float_rn(int x)
{
    return (float)x;
}

inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

/* --- integers ------------------------------------------------------------------------------------
 */

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline int __mul24(int x, int y)
{
    return (int)((int64_t)(x << 8 >> 8) * (y << 8 >> 8));
}

inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}

/** Selects four bytes of the eight in y:x by the four nibbles of `selector`. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned nibble = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(both >> (8 * (nibble & 7))) & 255;
        if (nibble & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}

inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)(a >> (8 * i)) * (int)(int8_t)(b >> (8 * i));
    return c;
}

#define GSV_EMU_MIN_MAX(type)       \
    inline type min(type a, type b) \
    {                               \
        return a < b ? a : b;       \
    }                               \
    inline type max(type a, type b) \
    {                               \
        return a > b ? a : b;       \
    }
GSV_EMU_MIN_MAX(int)
GSV_EMU_MIN_MAX(unsigned)
GSV_EMU_MIN_MAX(long)
GSV_EMU_MIN_MAX(unsigned long)
GSV_EMU_MIN_MAX(long long)
GSV_EMU_MIN_MAX(unsigned long long)
#undef GSV_EMU_MIN_MAX

inline float min(float a, float b)
{
    return fminf(a, b);
}

inline float max(float a, float b)
{
    return fmaxf(a, b);
}

/* --- loads with a cache hint
 * ---------------------------------------------------------------------- */

template <typename T> inline T __ldg(const T *p)
{
    return *p;
}

template <typename T> inline T __ldcs(const T *p)
{
    return *p;
}

template <typename T> inline T __ldcg(const T *p)
{
    return *p;
}

template <typename T> inline void __stcs(T *p, T value)
{
    *p = value;
}

template <typename T> inline void __stcg(T *p, T value)
{
    *p = value;
}

#endif
