/*
 * compact: a row of floats as float16, scalar-quantized bytes or sign bits.
 *
 * The formulas are those of quantize_embeddings() of sentence-transformers, in float32 with one
 * rounding for each operation: no product is followed by a sum that a compiler could fuse. The
 * loops have no branch, so that the compiler vectorizes them for each instruction set.
 */
#include "kernels/cpu/runtime/isa_symbols.h"

#include "lib/base/number.h"

#include <gpuserve/retrieval.h>
#include <string.h>

static void to_halves(uint8_t *to, const float *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = gsv_f16_of(row[i]);

        memcpy(to + 2 * i, &half, sizeof(half));
    }
}

/* `flip` 0x80 subtracts 128 from a byte, modulo 256. */
static void to_buckets(uint8_t *to, const float *row, const float *ranges, size_t n, uint8_t flip)
{
    const float *const min = ranges, *const max = ranges + n;

    for (size_t i = 0; i < n; i++) {
        const float width = (max[i] - min[i]) / 255.0f;
        const float bucket = (row[i] - min[i]) / (width == 0.0f ? 1.0f : width);
        const float above = bucket > 0.0f ? bucket : 0.0f; /* NaN becomes 0 */

        to[i] = (uint8_t)(int32_t)(above < 255.0f ? above : 255.0f) ^ flip;
    }
}

static void to_bits(uint8_t *to, const float *row, size_t n, uint8_t flip)
{
    for (size_t i = 0; i < n; i += 8) {
        const size_t left = n - i < 8 ? n - i : 8;
        unsigned byte = 0;

        for (size_t j = 0; j < left; j++)
            byte |= (unsigned)(row[i + j] > 0.0f) << (7 - j);
        to[i / 8] = (uint8_t)byte ^ flip;
    }
}

void GSV_VARIANT(gsv_compact)(const float *row, size_t n, uint32_t precision, const float *ranges,
                              uint8_t *to)
{
    switch (precision) {
    case GPUSERVE_PRECISION_FLOAT32:
        memcpy(to, row, n * sizeof(float));
        break;
    case GPUSERVE_PRECISION_FLOAT16:
        to_halves(to, row, n);
        break;
    case GPUSERVE_PRECISION_INT8:
    case GPUSERVE_PRECISION_UINT8:
        to_buckets(to, row, ranges, n, precision == GPUSERVE_PRECISION_INT8 ? 0x80 : 0);
        break;
    default:
        to_bits(to, row, n, precision == GPUSERVE_PRECISION_BINARY ? 0x80 : 0);
        break;
    }
}
