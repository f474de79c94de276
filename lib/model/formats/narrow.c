/*
 * narrow.c - converts float32 to the types of a weight file: float16, bfloat16, int8 rows.
 *
 * Rounds to nearest, ties to even. Input is finite; the caller checks the range.
 */
#include "lib/model/formats/checkpoint_writer.h"

#include "lib/base/number.h"

#include <math.h>
#include <string.h>

#define INT8_MAX_CODE 127

void gsv_floats_to_f16(void *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = gsv_f16_of(from[i]);

        memcpy((char *)to + i * sizeof(half), &half, sizeof(half));
    }
}

void gsv_floats_to_bf16(void *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        uint16_t half;

        memcpy(&bits, &from[i], sizeof(bits));
        half = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
        memcpy((char *)to + i * sizeof(half), &half, sizeof(half));
    }
}

size_t gsv_floats_above(const float *values, size_t n, float maximum)
{
    for (size_t i = 0; i < n; i++)
        if (fabsf(values[i]) > maximum)
            return i;
    return n;
}

/* The scale of a row: its largest magnitude becomes 127. A row whose scale would be subnormal is
 * zero to 38 digits. */
static float row_scale(const float *row, size_t columns)
{
    float largest = 0.0f;

    for (size_t i = 0; i < columns; i++)
        largest = fmaxf(largest, fabsf(row[i]));
    return largest < 0x1p-110f ? 1.0f : largest / INT8_MAX_CODE;
}

void gsv_floats_to_rows(signed char *codes, float *scales, const float *from, size_t rows,
                        size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = from + r * columns;
        const float scale = row_scale(row, columns);

        scales[r] = scale;
        for (size_t i = 0; i < columns; i++) {
            const float code = rintf(row[i] / scale);

            codes[r * columns + i] = (signed char)fmaxf(-INT8_MAX_CODE, fminf(INT8_MAX_CODE, code));
        }
    }
}
