/*
 * emu_float16.h - common part of half and bfloat16: operators, and intrinsics with the same name
 * for both.
 *
 * Arithmetic is done in float32 and rounded once, which equals the device for a single operation.
 */
#ifndef GSV_EMU_FLOAT16_H
#define GSV_EMU_FLOAT16_H

#include <emu_device.h>
#include <emu_math.h>

#define GSV_EMU_16BIT_OPERATOR(type, symbol)                             \
    inline type operator symbol(const type &a, const type &b)            \
    {                                                                    \
        return type((float)a symbol(float) b);                           \
    }                                                                    \
    inline type &operator symbol##=(type &a, const type &b)              \
    {                                                                    \
        return a = a symbol b;                                           \
    }                                                                    \
    inline type##2 operator symbol(const type##2 & a, const type##2 & b) \
    {                                                                    \
        return { a.x symbol b.x, a.y symbol b.y };                       \
    }

#define GSV_EMU_16BIT_COMPARISON(type, symbol)                \
    inline bool operator symbol(const type &a, const type &b) \
    {                                                         \
        return (float)a symbol(float) b;                      \
    }

#define GSV_EMU_16BIT_BINARY(type, name, expression)              \
    inline type __h##name(const type a, const type b)             \
    {                                                             \
        const float x = a, y = b;                                 \
        return type(expression);                                  \
    }                                                             \
    inline type##2 __h##name##2(const type##2 a, const type##2 b) \
    {                                                             \
        return { __h##name(a.x, b.x), __h##name(a.y, b.y) };      \
    }

/** Defines everything for `type` and its pair `type`2, which must be defined before. */
#define GSV_EMU_16BIT(type)                                                   \
    GSV_EMU_16BIT_OPERATOR(type, +)                                           \
    GSV_EMU_16BIT_OPERATOR(type, -)                                           \
    GSV_EMU_16BIT_OPERATOR(type, *)                                           \
    GSV_EMU_16BIT_OPERATOR(type, /)                                           \
    GSV_EMU_16BIT_COMPARISON(type, <)                                         \
    GSV_EMU_16BIT_COMPARISON(type, >)                                         \
    GSV_EMU_16BIT_COMPARISON(type, <=)                                        \
    GSV_EMU_16BIT_COMPARISON(type, >=)                                        \
    GSV_EMU_16BIT_COMPARISON(type, ==)                                        \
    GSV_EMU_16BIT_COMPARISON(type, !=)                                        \
    GSV_EMU_16BIT_BINARY(type, add, x + y)                                    \
    GSV_EMU_16BIT_BINARY(type, sub, x - y)                                    \
    GSV_EMU_16BIT_BINARY(type, mul, x *y)                                     \
    GSV_EMU_16BIT_BINARY(type, max, fmaxf(x, y))                              \
    GSV_EMU_16BIT_BINARY(type, min, fminf(x, y))                              \
    inline type operator-(const type &a)                                      \
    {                                                                         \
        return type(-(float)a);                                               \
    }                                                                         \
    inline type __hfma(const type a, const type b, const type c)              \
    {                                                                         \
        return type((float)((double)(float)a * (float)b + (float)c));         \
    }                                                                         \
    inline type##2 __hfma2(const type##2 a, const type##2 b, const type##2 c) \
    {                                                                         \
        return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) };              \
    }                                                                         \
    inline type __hneg(const type a)                                          \
    {                                                                         \
        return -a;                                                            \
    }                                                                         \
    inline type __habs(const type a)                                          \
    {                                                                         \
        return type(fabsf((float)a));                                         \
    }                                                                         \
    inline bool __hisnan(const type a)                                        \
    {                                                                         \
        return a != a;                                                        \
    }                                                                         \
    inline bool __hgt(const type a, const type b)                             \
    {                                                                         \
        return a > b;                                                         \
    }                                                                         \
    inline bool __hlt(const type a, const type b)                             \
    {                                                                         \
        return a < b;                                                         \
    }                                                                         \
    inline float __low2float(const type##2 a)                                 \
    {                                                                         \
        return a.x;                                                           \
    }                                                                         \
    inline float __high2float(const type##2 a)                                \
    {                                                                         \
        return a.y;                                                           \
    }

#endif
