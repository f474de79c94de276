/*
 * gguf_quant.c - converts the block types of GGUF files to float32.
 *
 * A block holds 32 or 256 consecutive elements of a row as small integers, with a float16 scale.
 * The K types divide a block of 256 into groups of 16 or 32, each with an integer scale of its own.
 * The products and differences are those of the `gguf` package, in the same order and each rounded
 * to float32, so the results are equal to the bit. This file is compiled without the contraction of
 * a product and a sum into one rounding.
 */
#include "lib/model/formats/checkpoint.h"

#include <string.h>

#define SMALL 32  /* elements of a block of the types without K */
#define LARGE 256 /* elements of a block of the K types */
#define K_SCALES 12

static float half_at(const uint8_t *p)
{
    float value;

    gsv_floats_from_f16(&value, p, 1);
    return value;
}

/* ------------------------------------------------------------------------- blocks of 32 elements
 */

/* Element i of 16 bytes with two numbers each: the low halves come first. */
static inline int nibble(const uint8_t *qs, int i)
{
    return i < SMALL / 2 ? qs[i] & 0x0F : qs[i - SMALL / 2] >> 4;
}

/* The fifth bit of element i, as 0 or 16. */
static inline int fifth_bit(const uint8_t *qh, int i)
{
    return (qh[i / 8] >> i % 8 & 1) << 4;
}

static void from_q4_0(float *to, const uint8_t *from)
{
    const float d = half_at(from);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)(nibble(from + 2, i) - 8);
}

static void from_q4_1(float *to, const uint8_t *from)
{
    const float d = half_at(from), m = half_at(from + 2);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)nibble(from + 4, i) + m;
}

static void from_q5_0(float *to, const uint8_t *from)
{
    const float d = half_at(from);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)((nibble(from + 6, i) | fifth_bit(from + 2, i)) - 16);
}

static void from_q5_1(float *to, const uint8_t *from)
{
    const float d = half_at(from), m = half_at(from + 2);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)(nibble(from + 8, i) | fifth_bit(from + 4, i)) + m;
}

static void from_q8_0(float *to, const uint8_t *from)
{
    const float d = half_at(from);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)(int8_t)from[2 + i];
}

static void from_iq4_nl(float *to, const uint8_t *from)
{
    static const int8_t values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113 };
    const float d = half_at(from);

    for (int i = 0; i < SMALL; i++)
        to[i] = d * (float)values[nibble(from + 2, i)];
}

/* ------------------------------------------------------------------------ blocks of 256 elements
 */

/* Element i of 64 bytes with four numbers of 2 bits each: 128 elements share 32 bytes. */
static inline int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Element i of 128 bytes with two numbers of 4 bits each: 64 elements share 32 bytes. */
static inline int four_bits(const uint8_t *qs, int i)
{
    return qs[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 0x0F;
}

static void from_q2_k(float *to, const uint8_t *from)
{
    const uint8_t *const scales = from, *const qs = from + 16;
    const float d = half_at(from + 80), dmin = half_at(from + 82);

    for (int i = 0; i < LARGE; i++) {
        const float scale = d * (float)(scales[i / 16] & 0x0F);
        const float minimum = dmin * (float)(scales[i / 16] >> 4);

        to[i] = scale * (float)two_bits(qs, i) - minimum;
    }
}

/* The scale of group g of 16, 6 bits: the low 4 are in 8 bytes, the high 2 in 4 bytes. */
static int q3_scale(const uint8_t *scales, int g)
{
    const int low = scales[g % 8] >> g / 8 * 4 & 0x0F;
    const int high = scales[8 + g % 4] >> g / 4 * 2 & 3;

    return (low | high << 4) - 32;
}

static void from_q3_k(float *to, const uint8_t *from)
{
    const uint8_t *const mask = from, *const qs = from + 32, *const scales = from + 96;
    const float d = half_at(from + 108);

    for (int i = 0; i < LARGE; i++) {
        const float scale = d * (float)q3_scale(scales, i / 16);
        const int has_offset = (mask[i % 32] >> i / 32 & 1) == 0;

        to[i] = scale * (float)(two_bits(qs, i) - 4 * has_offset);
    }
}

/* The scale and the minimum of group g of 8, 6 bits each, of Q4_K and Q5_K. */
static void k_scale(const uint8_t *scales, int g, int *scale, int *minimum)
{
    if (g < 4) {
        *scale = scales[g] & 0x3F;
        *minimum = scales[g + 4] & 0x3F;
        return;
    }
    *scale = (scales[g + 4] & 0x0F) | (scales[g - 4] >> 2 & 0x30);
    *minimum = (scales[g + 4] >> 4) | (scales[g] >> 2 & 0x30);
}

/* Q4_K without `high`, Q5_K with the fifth bits in `high`. */
static void from_q45_k(float *to, const uint8_t *from, const uint8_t *high, const uint8_t *qs)
{
    const float d = half_at(from), dmin = half_at(from + 2);

    for (int g = 0; g < LARGE / 32; g++) {
        float group_scale, group_min;
        int scale, minimum;

        k_scale(from + 4, g, &scale, &minimum);
        group_scale = d * (float)scale;
        group_min = dmin * (float)minimum;
        for (int i = 32 * g; i < 32 * g + 32; i++) {
            const int q = four_bits(qs, i) | (high ? (high[i % 32] >> g & 1) << 4 : 0);

            to[i] = group_scale * (float)q - group_min;
        }
    }
}

static void from_q4_k(float *to, const uint8_t *from)
{
    from_q45_k(to, from, NULL, from + 4 + K_SCALES);
}

static void from_q5_k(float *to, const uint8_t *from)
{
    from_q45_k(to, from, from + 4 + K_SCALES, from + 4 + K_SCALES + 32);
}

static void from_q6_k(float *to, const uint8_t *from)
{
    const uint8_t *const low = from, *const high = from + 128, *const scales = from + 192;
    const float d = half_at(from + 208);

    for (int i = 0; i < LARGE; i++) {
        const float scale = d * (float)(int8_t)scales[i / 16];
        const int four = low[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 0x0F;

        to[i] = scale * (float)((four | two_bits(high, i) << 4) - 32);
    }
}

void gsv_floats_from_blocks(float *to, const void *from, enum gsv_tensor_type type, size_t n)
{
    static const struct {
        size_t block;
        void (*convert)(float *to, const uint8_t *from);
    } types[] = {
        [GSV_TENSOR_Q4_0] = { SMALL, from_q4_0 }, [GSV_TENSOR_Q4_1] = { SMALL, from_q4_1 },
        [GSV_TENSOR_Q5_0] = { SMALL, from_q5_0 }, [GSV_TENSOR_Q5_1] = { SMALL, from_q5_1 },
        [GSV_TENSOR_Q8_0] = { SMALL, from_q8_0 }, [GSV_TENSOR_IQ4_NL] = { SMALL, from_iq4_nl },
        [GSV_TENSOR_Q2_K] = { LARGE, from_q2_k }, [GSV_TENSOR_Q3_K] = { LARGE, from_q3_k },
        [GSV_TENSOR_Q4_K] = { LARGE, from_q4_k }, [GSV_TENSOR_Q5_K] = { LARGE, from_q5_k },
        [GSV_TENSOR_Q6_K] = { LARGE, from_q6_k },
    };
    const size_t block = types[type].block;
    const size_t bytes = (size_t)gsv_tensor_bytes(type, block);

    for (size_t i = 0; i < n / block; i++)
        types[type].convert(to + i * block, (const uint8_t *)from + i * bytes);
}
