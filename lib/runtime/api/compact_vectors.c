/*
 * compact_vectors.c - vectors as float16, scalar-quantized bytes or sign bits.
 *
 * The formulas are those of quantize_embeddings() of sentence-transformers, in float32 with one
 * rounding for each operation: no product is followed by a sum that a compiler could fuse. The
 * loops have no branch, so that the compiler vectorizes them. No state.
 */
#include <gpuserve/gpuserve.h>

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/number.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

GPUSERVE_API size_t gpuserve_quantized_bytes(uint32_t precision, size_t dim)
{
    switch (precision) {
    case GPUSERVE_PRECISION_FLOAT32:
        return dim <= SIZE_MAX / sizeof(float) ? dim * sizeof(float) : 0;
    case GPUSERVE_PRECISION_FLOAT16:
        return dim <= SIZE_MAX / 2 ? dim * 2 : 0;
    case GPUSERVE_PRECISION_INT8:
    case GPUSERVE_PRECISION_UINT8:
        return dim;
    case GPUSERVE_PRECISION_BINARY:
    case GPUSERVE_PRECISION_UBINARY:
        return dim / 8 + (dim % 8 != 0);
    default:
        return 0;
    }
}

static void to_halves(uint8_t *to, const float *row, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        const uint16_t half = gsv_f16_of(row[i]);

        memcpy(to + 2 * i, &half, sizeof(half));
    }
}

/* `flip` 0x80 subtracts 128 from a byte, modulo 256. */
static void to_buckets(uint8_t *to, const float *row, const float *ranges, size_t dim, uint8_t flip)
{
    const float *const min = ranges, *const max = ranges + dim;

    for (size_t i = 0; i < dim; i++) {
        const float width = (max[i] - min[i]) / 255.0f;
        const float bucket = (row[i] - min[i]) / (width == 0.0f ? 1.0f : width);
        const float above = bucket > 0.0f ? bucket : 0.0f; /* NaN becomes 0 */

        to[i] = (uint8_t)(int32_t)(above < 255.0f ? above : 255.0f) ^ flip;
    }
}

static void to_bits(uint8_t *to, const float *row, size_t dim, uint8_t flip)
{
    for (size_t i = 0; i < dim; i += 8) {
        const size_t n = dim - i < 8 ? dim - i : 8;
        unsigned byte = 0;

        for (size_t j = 0; j < n; j++)
            byte |= (unsigned)(row[i + j] > 0.0f) << (7 - j);
        to[i / 8] = (uint8_t)byte ^ flip;
    }
}

static void convert(uint8_t *to, const float *row, size_t dim, uint32_t precision,
                    const float *ranges)
{
    switch (precision) {
    case GPUSERVE_PRECISION_FLOAT32:
        memcpy(to, row, dim * sizeof(float));
        break;
    case GPUSERVE_PRECISION_FLOAT16:
        to_halves(to, row, dim);
        break;
    case GPUSERVE_PRECISION_INT8:
    case GPUSERVE_PRECISION_UINT8:
        to_buckets(to, row, ranges, dim, precision == GPUSERVE_PRECISION_INT8 ? 0x80 : 0);
        break;
    default:
        to_bits(to, row, dim, precision == GPUSERVE_PRECISION_BINARY ? 0x80 : 0);
        break;
    }
}

static gpuserve_status check_ranges(const float *ranges, size_t dim, gpuserve_error *error)
{
    if (!ranges)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "int8 and uint8 need ranges: [2, %zu] minima and maxima", dim);
    for (size_t i = 0; i < dim; i++)
        if (!isfinite(ranges[i]) || !isfinite(ranges[dim + i]) || ranges[i] > ranges[dim + i])
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "the range of dimension %zu is %g to %g: a finite minimum and a "
                            "maximum that is not below it are needed",
                            i, (double)ranges[i], (double)ranges[dim + i]);
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_quantize(const float *vectors, size_t n, size_t dim,
                                               uint32_t precision, const float *ranges, void *to,
                                               size_t capacity, gpuserve_error *error)
{
    const size_t row_bytes = gpuserve_quantized_bytes(precision, dim);
    const bool is_scalar =
        precision == GPUSERVE_PRECISION_INT8 || precision == GPUSERVE_PRECISION_UINT8;
    size_t bytes;

    if (precision > GPUSERVE_PRECISION_UBINARY)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the precision %u is unknown, the highest is %d",
                        precision, GPUSERVE_PRECISION_UBINARY);
    if (n == 0 || dim == 0)
        return GPUSERVE_OK;
    if (!vectors || !to)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is NULL", vectors ? "to" : "vectors");
    if (row_bytes == 0 || !gsv_mul_size(n, row_bytes, &bytes) || bytes > capacity)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%zu vectors of %zu bytes do not fit into a capacity of %zu bytes", n,
                        row_bytes, capacity);
    if (is_scalar && check_ranges(ranges, dim, error) != GPUSERVE_OK)
        return GPUSERVE_E_INVALID;
    for (size_t i = 0; i < n; i++)
        convert((uint8_t *)to + i * row_bytes, vectors + i * dim, dim, precision, ranges);
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_vector_ranges(const float *vectors, size_t n, size_t dim,
                                                    float margin, float *ranges,
                                                    gpuserve_error *error)
{
    float *const min = ranges, *const max = ranges ? ranges + dim : NULL;

    if (!vectors || !ranges)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is NULL", vectors ? "ranges" : "vectors");
    if (n < 2)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%zu vectors have no ranges, at least 2 are needed", n);
    if (!(margin >= 0.0f && margin <= 1.0f))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the margin %g is not between 0 and 1",
                        (double)margin);
    for (size_t i = 0; i < n * dim; i++)
        if (!isfinite(vectors[i]))
            return gsv_fail(error, GPUSERVE_E_NUMERIC,
                            "vector %zu has a value that is not finite, at dimension %zu", i / dim,
                            i % dim);
    memcpy(min, vectors, dim * sizeof(float));
    memcpy(max, vectors, dim * sizeof(float));
    for (size_t i = dim; i < n * dim; i++) {
        min[i % dim] = fminf(min[i % dim], vectors[i]);
        max[i % dim] = fmaxf(max[i % dim], vectors[i]);
    }
    for (size_t i = 0; i < dim; i++) {
        const float width = margin * (max[i] - min[i]);

        min[i] -= width;
        max[i] += width;
    }
    return GPUSERVE_OK;
}
