/*
 * convert.c - converts numbers from a file or a device to float32.
 *
 * Plain loops over bit patterns, which compilers vectorize. memcpy is the portable way to
 * reinterpret bits.
 */
#include "lib/model/formats/checkpoint.h"

#include <stdint.h>
#include <string.h>

#define EXPONENT_MASK 0x7F800000u
#define BLOCK 1024

/* Shift exponent and mantissa to their float32 positions, then multiply by 2^112, the difference of
 * the exponent biases. This is correct for subnormals too. Infinity and NaN get the full float32
 * exponent instead. */
static inline float float_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t bits = (uint32_t)(half & 0x7FFFu) << 13;
    float value;

    memcpy(&value, &bits, sizeof(value));
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof(bits));
    bits |= (half & 0x7C00u) == 0x7C00u ? EXPONENT_MASK : 0;
    bits |= sign;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void gsv_floats_from_f16(float *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;

        memcpy(&half, (const char *)from + i * sizeof(half), sizeof(half));
        to[i] = float_from_f16(half);
    }
}

/* The same for a 3-bit mantissa and the bias 7. The largest exponent is an ordinary one; only all
 * ones in exponent and mantissa is a NaN. */
static inline float float_from_f8_e4m3(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t bits = (uint32_t)(code & 0x7Fu) << 20;
    float value;

    memcpy(&value, &bits, sizeof(value));
    value *= 0x1p120f;
    memcpy(&bits, &value, sizeof(bits));
    bits |= (code & 0x7Fu) == 0x7Fu ? EXPONENT_MASK : 0;
    bits |= sign;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void gsv_floats_from_f8_e4m3(float *to, const void *from, size_t n)
{
    const uint8_t *codes = from;

    for (size_t i = 0; i < n; i++)
        to[i] = float_from_f8_e4m3(codes[i]);
}

void gsv_floats_from_f8_e5m2(float *to, const void *from, size_t n)
{
    const uint8_t *codes = from;

    for (size_t i = 0; i < n; i++)
        to[i] = float_from_f16((uint16_t)(codes[i] << 8));
}

void gsv_floats_from_bf16(float *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        uint32_t bits;

        memcpy(&half, (const char *)from + i * sizeof(half), sizeof(half));
        bits = (uint32_t)half << 16;
        memcpy(&to[i], &bits, sizeof(bits));
    }
}

void gsv_floats_from_f64(float *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double wide;

        memcpy(&wide, (const char *)from + i * sizeof(wide), sizeof(wide));
        to[i] = (float)wide;
    }
}

static inline uint32_t not_finite(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (bits & EXPONENT_MASK) == EXPONENT_MASK;
}

void gsv_floats_from_integers(float *to, const void *from, enum gsv_tensor_type type, size_t n)
{
    const unsigned char *bytes = from;

    for (size_t i = 0; i < n; i++) {
        int64_t whole = 0;
        int32_t half = 0;

        if (type == GSV_TENSOR_I64) {
            memcpy(&whole, bytes + i * sizeof(whole), sizeof(whole));
            to[i] = (float)whole;
        } else if (type == GSV_TENSOR_I32) {
            memcpy(&half, bytes + i * sizeof(half), sizeof(half));
            to[i] = (float)half;
        } else {
            to[i] = (float)(int8_t)bytes[i];
        }
    }
}

size_t gsv_floats_finite(const float *values, size_t n)
{
    for (size_t block = 0; block < n; block += BLOCK) {
        const size_t end = n - block < BLOCK ? n : block + BLOCK;
        uint32_t bad = 0;

        for (size_t i = block; i < end; i++) /* branchless, so that it is vectorized */
            bad |= not_finite(values[i]);
        for (size_t i = block; bad && i < end; i++)
            if (not_finite(values[i]))
                return i;
    }
    return n;
}
