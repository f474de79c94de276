/*
 * linear: out = activation(in * weight^T + bias) + residual.
 *
 * This file defines the INT8 product (asymmetric activations, symmetric weights) and the INT16
 * product (both symmetric). Every host backend computes the same integers:
 *
 * INT8
 *
 *   weights      per output: q = round(w * (1 / scale)) in -127..127, so w is about q * scale; the
 *                scale is given, or max |w| / 127
 *   activations  per row, after multiplication by input_scale, with zero point min and scale
 *                (max - min) / 255: q = round((x - min) * (255 / (max - min))) in 0..255,
 *                so x is about min + q * (max - min) / 255
 *   product      exact sum of q_x * q_w, then (step * sum + min * sum of q_w) * weight scale
 *
 * INT16, with the levels of kernels/s16_range.h
 *
 *   weights      per output: the scale is max |w| / levels, q = round(w * (1 / scale))
 *   activations  per row: the scale is max |x| / levels, q = round(x * (levels / max |x|))
 *   product      exact sum of q_x * q_w, then row scale * sum * weight scale
 *
 * The quantization is in float32, rounding to nearest even; sums and the final formula are wider. A
 * row with a NaN or an infinity gives a row of NaN.
 */
#include "kernels/ref/ref.h"

#include "kernels/s16_range.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INT8_K 65536 /* keeps 65536 * 255 * 127 below 2^31 */
#define MIN_SCALE 1e-32f /* minimum scale whose inverse is used; below it all weights are zero */
#define MIN_WIDTH 1e-30f /* minimum range to divide into steps: 255 / width stays finite */

size_t gsv_ref_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    const bool int8 = dtype == GPUSERVE_DTYPE_INT8, int16 = dtype == GPUSERVE_DTYPE_INT16;
    const size_t floats = (size_t)n + (int8 || int16 ? (size_t)n : 0) + (int8 ? (size_t)k : 0);
    const size_t weight = (size_t)n * (size_t)k * (int8 ? 1 : int16 ? 2 : 4);

    return gsv_round_up(floats * sizeof(float) + weight, 64);
}

static void scales_of(const struct gpuserve_linear_source *source, float levels, float *scales)
{
    for (int32_t j = 0; j < source->n; j++) {
        const float *w = source->weight + (size_t)j * (size_t)source->k;
        float largest = 0.0f;

        for (int32_t i = 0; i < source->k; i++)
            largest = fmaxf(largest, fabsf(w[i]));
        scales[j] = largest / levels;
    }
}

void gsv_ref_int8_scales(struct gpuserve_device *device,
                         const struct gpuserve_linear_source *source, float *scales)
{
    (void)device;
    scales_of(source, 127.0f, scales);
}

int32_t gsv_ref_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step)
{
    (void)device;
    (void)k;
    *step = 1;
    return 0;
}

/* Output j, input i as an integer of -levels..levels. */
static int32_t quantized(const struct gpuserve_linear_source *s, float scale, float levels,
                         int32_t j, int32_t i)
{
    const float inverse = scale >= MIN_SCALE ? 1.0f / scale : 0.0f;
    const float w = s->weight[(size_t)j * (size_t)s->k + (size_t)i];

    return (int32_t)lrintf(fminf(fmaxf(w * inverse, -levels), levels));
}

static void quantize_weights(int8_t *values, const float *scale,
                             const struct gpuserve_linear_source *s)
{
    for (int32_t j = 0; j < s->n; j++)
        for (int32_t i = 0; i < s->k; i++)
            values[(size_t)j * (size_t)s->k + (size_t)i] =
                (int8_t)quantized(s, scale[j], 127.0f, j, i);
}

/* Returns the levels of rows. */
static int32_t quantize_words(int16_t *words, const float *scale,
                              const struct gpuserve_linear_source *s)
{
    const float levels = (float)gsv_s16_weight_levels(s->k);
    int32_t largest = 0;

    for (int32_t j = 0; j < s->n; j++) {
        int32_t sum = 0;

        for (int32_t i = 0; i < s->k; i++) {
            const int32_t q = quantized(s, scale[j], levels, j, i);

            words[(size_t)j * (size_t)s->k + (size_t)i] = (int16_t)q;
            sum += abs(q);
        }
        largest = sum > largest ? sum : largest;
    }
    return gsv_s16_row_levels(largest);
}

gpuserve_status gsv_ref_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error)
{
    const size_t n = (size_t)source->n, k = (size_t)source->k;
    const bool int8 = source->dtype == GPUSERVE_DTYPE_INT8;
    const bool int16 = source->dtype == GPUSERVE_DTYPE_INT16;
    struct gpuserve_linear *made;
    float *at = memory;

    *linear = NULL;
    if (!int8 && !int16 && source->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; ref supports float32, int8 and int16",
                        (unsigned)source->dtype);
    if (int8 && source->k > MAX_INT8_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "an int8 product over %d inputs is not supported, the limit is %d",
                        (int)source->k, MAX_INT8_K);
    made = gsv_alloc_array(1, sizeof(*made));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a linear");
    made->n = source->n;
    made->k = source->k;
    made->dtype = source->dtype;
    if (source->bias)
        made->bias = memcpy(at, source->bias, n * sizeof(float));
    else
        made->bias = memset(at, 0, n * sizeof(float));
    at += n;
    if (int8) {
        if (source->scale)
            memcpy(at, source->scale, n * sizeof(float));
        else
            gsv_ref_int8_scales(device, source, at);
        made->scale = at;
        if (source->input_scale)
            made->input_scale = memcpy(at + n, source->input_scale, k * sizeof(float));
        made->values = (int8_t *)(at + n + k);
        quantize_weights((int8_t *)(at + n + k), at, source);
    } else if (int16) {
        int16_t *const words = (void *)(at + n);

        scales_of(source, (float)gsv_s16_weight_levels(source->k), at);
        made->scale = at;
        made->words = words;
        made->row_levels = quantize_words(words, at, source);
    } else {
        made->weight = memcpy(at, source->weight, n * k * sizeof(float));
    }
    *linear = made;
    return GPUSERVE_OK;
}

void gsv_ref_linear_move(struct gpuserve_linear *linear, const void *from, void *to)
{
    linear->weight = gsv_moved(linear->weight, from, to);
    linear->values = gsv_moved(linear->values, from, to);
    linear->words = gsv_moved(linear->words, from, to);
    linear->scale = gsv_moved(linear->scale, from, to);
    linear->bias = gsv_moved(linear->bias, from, to);
    linear->input_scale = gsv_moved(linear->input_scale, from, to);
}

void gsv_ref_linear_destroy(struct gpuserve_linear **linear)
{
    if (!linear)
        return;
    free(*linear);
    *linear = NULL;
}

double gsv_ref_activation(double x, int32_t activation)
{
    switch (activation) {
    case GPUSERVE_ACT_GELU:
        return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
    case GPUSERVE_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case GPUSERVE_ACT_RELU:
        return x < 0.0 ? 0.0 : x;
    case GPUSERVE_ACT_TANH:
        return tanh(x);
    case GPUSERVE_ACT_SILU:
        return x / (1.0 + exp(-x));
    case GPUSERVE_ACT_QUICK_GELU:
        return x / (1.0 + exp(-1.702 * x));
    case GPUSERVE_ACT_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    default:
        return x;
    }
}

static double dot_f32(const struct gpuserve_linear *w, const float *x, int32_t j)
{
    const float *row = w->weight + (size_t)j * (size_t)w->k;
    double sum = 0.0;

    for (int32_t i = 0; i < w->k; i++)
        sum += (double)x[i] * (double)row[i];
    return sum;
}

/* Quantization of one row: zero point (`min`), scale (`step`) and its inverse. */
struct row_range {
    float min, step, inverse;
};

static float scaled_input(const struct gpuserve_linear *w, const float *x, int32_t i)
{
    return w->input_scale ? x[i] * w->input_scale[i] : x[i];
}

static struct row_range range_of(const struct gpuserve_linear *w, const float *x)
{
    float min = scaled_input(w, x, 0), max = min;
    struct row_range range;

    for (int32_t i = 0; i < w->k; i++) {
        const float v = scaled_input(w, x, i);

        if (!isfinite(v)) {
            range.min = range.step = range.inverse = NAN;
            return range;
        }
        min = fminf(min, v);
        max = fmaxf(max, v);
    }
    range.min = min;
    range.step = (max - min) / 255.0f;
    range.inverse = max - min >= MIN_WIDTH ? 255.0f / (max - min) : 0.0f;
    return range;
}

static double dot_int8(const struct gpuserve_linear *w, const float *x, int32_t j,
                       struct row_range range)
{
    const int8_t *row = w->values + (size_t)j * (size_t)w->k;
    int64_t sum = 0, row_sum = 0;

    if (isnan(range.min))
        return NAN;
    for (int32_t i = 0; i < w->k; i++) {
        sum += (int64_t)lrintf((scaled_input(w, x, i) - range.min) * range.inverse) * row[i];
        row_sum += row[i];
    }
    return ((double)range.step * (double)sum + (double)range.min * (double)row_sum) *
           (double)w->scale[j];
}

static double dot_int16(const struct gpuserve_linear *w, const float *x, int32_t j)
{
    const int16_t *row = w->words + (size_t)j * (size_t)w->k;
    const float levels = (float)w->row_levels;
    float largest = 0.0f, inverse;
    int64_t sum = 0;

    for (int32_t i = 0; i < w->k; i++) {
        if (!isfinite(x[i]))
            return NAN;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    inverse = largest >= MIN_WIDTH ? levels / largest : 0.0f;
    for (int32_t i = 0; i < w->k; i++)
        sum += (int64_t)lrintf(x[i] * inverse) * row[i];
    return (double)(largest / levels) * (double)sum * (double)w->scale[j];
}

gpuserve_status gsv_ref_linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op)
{
    const struct gpuserve_linear *w = op->weight;
    const bool int8 = w->dtype == GPUSERVE_DTYPE_INT8, int16 = w->dtype == GPUSERVE_DTYPE_INT16;

    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        const float *x = (const float *)op->in + (size_t)r * (size_t)op->in_ld;
        const size_t out_row = (size_t)r * (size_t)op->out_ld;
        const struct row_range range = int8 ? range_of(w, x) : (struct row_range){ 0 };

        for (int32_t j = 0; j < w->n; j++) {
            const size_t at = out_row + (size_t)j;
            double y = int8    ? dot_int8(w, x, j, range)
                       : int16 ? dot_int16(w, x, j)
                               : dot_f32(w, x, j);

            y = gsv_ref_activation(y + (double)w->bias[j], op->activation);
            if (op->residual)
                y += (double)((const float *)op->residual)[at];
            ((float *)op->out)[at] = (float)y;
        }
    }
    return GPUSERVE_OK;
}
