/*
 * float16.h - float32 to IEEE 754 binary16.
 */
#ifndef GSV_BASE_FLOAT16_H
#define GSV_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

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

#endif
