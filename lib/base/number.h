/*
 * number.h - numbers as text, as float16, and the check of results for NaN and infinity. No locale,
 * allocation or state.
 */
#ifndef GSV_BASE_NUMBER_H
#define GSV_BASE_NUMBER_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GSV_FLOAT_BYTES 24

#ifdef __cplusplus
extern "C" {
#endif

/* The shortest decimal that parses back to the same float; "null" for NaN and infinity, so the text
 * is valid JSON. Writes at most GSV_FLOAT_BYTES without a terminating NUL; returns the length. */
size_t gsv_float_text(float value, char *text);
/* An integer in decimal: at most GSV_FLOAT_BYTES, no terminating NUL; returns the length. */
size_t gsv_integer_text(int64_t value, char *text);

#ifdef __cplusplus
}
#endif

/* float32 to IEEE 754 binary16. */

/* To nearest, ties to even. Magnitudes from 65,520 become infinity; NaN stays NaN. */
static inline uint16_t gsv_f16_of(float value)
{
    uint32_t bits, sign;

    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (bits >= 0x477FF000u) /* from 65,520 */
        return (uint16_t)(sign | 0x7C00u);
    if (bits < 0x38800000u) { /* below 2^-14: the sum with 0.5 is a multiple of 2^-24 */
        float small;

        memcpy(&small, &bits, sizeof(small));
        small += 0.5f;
        memcpy(&bits, &small, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3F000000u));
    }
    bits += 0xFFFu + (bits >> 13 & 1u);
    return (uint16_t)(sign | (bits - 0x38000000u) >> 13);
}

/* Check of results for NaN and infinity. */

/* No early exit, so that the loop is vectorized. */
static inline bool gsv_all_finite(const float *values, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

#endif
