/*
 * compact: rows of floats as float16, scalar-quantized bytes or sign bits.
 *
 * The formulas are those of quantize_embeddings() of sentence-transformers, in float32 with one
 * rounding for each operation.
 */
#include "kernels/ref/ref.h"

#include <gpuserve/retrieval.h>

#include <math.h>
#include <string.h>

/* The nearest binary16, of two equally near ones the even one: the distance to every candidate is
 * compared in float64, where all of them are exact. */
static uint16_t half_of(float x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    double best = INFINITY;
    uint16_t found = 0;

    if (isnan(x))
        return sign | 0x7E00;
    if (fabs((double)x) >= 65520.0)
        return sign | 0x7C00;
    for (int exponent = 0; exponent < 31; exponent++) {
        const double unit = ldexp(1.0, exponent == 0 ? -24 : exponent - 25);
        const double base = exponent == 0 ? 0 : 1024;
        const double at = fabs((double)x) / unit - base;
        const double nearest = rint(at); /* ties to even */
        const double clipped = nearest < 0 ? 0 : nearest > 1023 ? 1023 : nearest;
        const double distance = fabs((base + clipped) * unit - fabs((double)x));

        if (distance < best || (distance == best && (int)clipped % 2 == 0)) {
            best = distance;
            found = (uint16_t)(exponent << 10 | (int)clipped);
        }
    }
    return sign | found;
}

static uint8_t bucket_of(float x, float min, float max)
{
    float width = (max - min) / 255.0f, bucket;

    if (width == 0.0f)
        width = 1.0f;
    bucket = floorf((x - min) / width);
    if (!(bucket > 0.0f)) /* NaN too */
        return 0;
    return bucket > 255.0f ? 255 : (uint8_t)bucket;
}

static void convert_row(const struct gpuserve_op_compact *op, const float *row, uint8_t *to)
{
    const uint8_t flip =
        op->precision == GPUSERVE_PRECISION_INT8 || op->precision == GPUSERVE_PRECISION_BINARY
            ? 0x80
            : 0;

    for (int32_t c = 0; c < op->cols; c++) {
        if (op->precision == GPUSERVE_PRECISION_FLOAT16) {
            const uint16_t half = half_of(row[c]);

            memcpy(to + 2 * c, &half, sizeof(half));
        } else if (op->precision == GPUSERVE_PRECISION_INT8 ||
                   op->precision == GPUSERVE_PRECISION_UINT8) {
            to[c] = bucket_of(row[c], op->ranges[c], op->ranges[op->cols + c]) ^ flip;
        } else {
            if (c % 8 == 0)
                to[c / 8] = flip;
            if (row[c] > 0.0f)
                to[c / 8] ^= (uint8_t)(0x80 >> c % 8);
        }
    }
}

gpuserve_status gsv_ref_compact(struct gpuserve_stream *stream,
                                const struct gpuserve_op_compact *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        const float *row = op->in + (size_t)r * (size_t)op->ld;
        uint32_t *out = op->out + (size_t)r * (size_t)op->words;

        memset(out, 0, (size_t)op->words * sizeof(*out));
        convert_row(op, row, (uint8_t *)out);
        out[op->words - 1] = 1;
        for (int32_t c = 0; c < op->cols; c++)
            if (!isfinite(row[c]))
                out[op->words - 1] = 0;
    }
    return GPUSERVE_OK;
}
