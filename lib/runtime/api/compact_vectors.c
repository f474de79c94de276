/*
 * compact_vectors.c - vectors as float16, scalar-quantized bytes or sign bits, on the host. The
 * conversion of a row is kernels/cpu/rows/compact.c; jobs with a precision use the same one. No
 * state.
 */
#include <gpuserve/gpuserve.h>

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/scheduler/outputs.h"

#include "kernels/kernels.h"

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
    if (is_scalar && gsv_ranges_check(ranges, dim, error) != GPUSERVE_OK)
        return GPUSERVE_E_INVALID;
    for (size_t i = 0; i < n; i++)
        gsv_cpu_compact_row(vectors + i * dim, dim, precision, ranges,
                            (uint8_t *)to + i * row_bytes);
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
