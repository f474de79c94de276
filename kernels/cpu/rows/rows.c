/*
 * rows: embedding sums, norms, pooling, L2 normalization and activations in float32. Each row
 * is computed by itself, with vector sums of a fixed order.
 */
#include "kernels/cpu/rows/lanes.h"
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vmath.h"

#include <math.h>

/* ---------------------------------------------------------------------------------------- norms */

struct row_norm {
    const float *gamma, *beta; /* NULL: ones, zeros */
    float eps;
    int32_t cols;
    int32_t kind; /* gpuserve_norm */
};

/* Columns [i, i + n) of a row of a table. */
GSV_INLINE vf load_columns(const void *row, int32_t i, int n, enum gsv_table_type type)
{
    const uint16_t *halves = (const uint16_t *)row + i;
    uint16_t part[GSV_VL] = { 0 };

    if (type == GSV_TABLE_F32)
        return load_lanes((const float *)row + i, n);
    if (n < GSV_VL) {
        memcpy(part, halves, (size_t)n * sizeof(*part));
        halves = part;
    }
    return type == GSV_TABLE_F16 ? vf_load_f16(halves) : vf_load_bf16(halves);
}

/* out = a * scale + b + c; b and c may be NULL. Returns the sum of the row. Inlined, since a factor
 * of 1 and the type are free only as constants. */
GSV_INLINE float add_rows(float *out, const void *a, float scale, const void *b, const void *c,
                          int32_t cols, enum gsv_table_type type)
{
    struct vf_sums sum = vf_no_sums();

    FOR_LANES (i, n, s, cols) {
        vf x = load_columns(a, i, n, type) * vf_set(scale);

        if (b)
            x = x + load_columns(b, i, n, type);
        if (c)
            x = x + load_columns(c, i, n, type);
        store_lanes(out + i, x, n);
        sum.part[s] = sum.part[s] + x;
    }
    return vf_total(sum);
}

/* 1 / sqrt(mean of (x - center)^2 + eps). LayerNorm needs this second pass: E[x^2] - mean^2 loses
 * all digits if |mean| is much larger than the deviation. */
static float inverse_deviation(const struct row_norm *norm, const float *row, float center)
{
    struct vf_sums square = vf_no_sums();

    FOR_LANES (i, n, s, norm->cols) {
        vf x = load_lanes(row + i, n) - vf_set(center);

        if (n < GSV_VL)
            x = vf_keep(x, n, vf_set(0.0f));
        square.part[s] = vf_fma(x, x, square.part[s]);
    }
    return 1.0f / sqrtf(vf_total(square) / (float)norm->cols + norm->eps);
}

/* out = (row - center) * factor * gamma + beta; `affine` is a constant: gamma and beta are given.
 */
GSV_INLINE void scale_row(const struct row_norm *norm, const float *row, float center, float factor,
                          float *out, int affine)
{
    for (int32_t i = 0; i < norm->cols; i += GSV_VL) {
        const int n = lanes_at(norm->cols, i);
        const vf x = (load_lanes(row + i, n) - vf_set(center)) * vf_set(factor);
        vf gamma = vf_set(1.0f), beta = vf_set(0.0f);

        if (affine || norm->gamma)
            gamma = load_lanes(norm->gamma + i, n);
        if (affine || norm->beta)
            beta = load_lanes(norm->beta + i, n);
        store_lanes(out + i, vf_fma(x, gamma, beta), n);
    }
}

/* `out` may be `row`; `sum` is the sum of the row. */
static void norm_row(const struct row_norm *norm, const float *row, float sum, float *out)
{
    const float center = norm->kind == GPUSERVE_NORM_LAYER ? sum / (float)norm->cols : 0.0f;
    float factor = 1.0f;

    if (norm->kind != GPUSERVE_NORM_NONE)
        factor = inverse_deviation(norm, row, center);
    else if (row == out && !norm->gamma && !norm->beta)
        return;
    if (norm->gamma && norm->beta)
        scale_row(norm, row, center, factor, out, 1);
    else
        scale_row(norm, row, center, factor, out, 0);
}

GSV_INLINE const void *table_row(const void *table, int32_t row, size_t hidden,
                                 enum gsv_table_type type)
{
    const size_t size = type == GSV_TABLE_F32 ? sizeof(float) : sizeof(uint16_t);

    return (const char *)table + (size_t)row * hidden * size;
}

/* The sum of the tables of one row; returns the sum of its elements. */
GSV_INLINE float embed_as(const struct gpuserve_op_embed *op, int32_t row, float *out,
                          enum gsv_table_type type)
{
    const struct gpuserve_batch *b = op->batch;
    const size_t hidden = (size_t)op->hidden;
    const void *word = table_row(op->word, b->ids[row], hidden, type);
    const void *position =
        op->position ? table_row(op->position, b->positions[row], hidden, type) : NULL;
    const void *types = op->type ? table_row(op->type, b->type_ids[row], hidden, type) : NULL;

    if (op->word_scale == 0.0f || op->word_scale == 1.0f)
        return add_rows(out, word, 1.0f, position, types, op->hidden, type);
    return add_rows(out, word, op->word_scale, position, types, op->hidden, type);
}

static float embed_row(const struct gpuserve_op_embed *op, int32_t row, float *out)
{
    switch (gsv_table_type(op->table_dtype)) {
    case GSV_TABLE_F16:
        return embed_as(op, row, out, GSV_TABLE_F16);
    case GSV_TABLE_BF16:
        return embed_as(op, row, out, GSV_TABLE_BF16);
    default:
        return embed_as(op, row, out, GSV_TABLE_F32);
    }
}

void GSV_VARIANT(gsv_embed)(const struct gpuserve_op_embed *op, int32_t row, int32_t row_end)
{
    const struct row_norm norm = { op->gamma, op->beta, op->eps, op->hidden, op->norm };

    for (; row < row_end; row++) {
        float *out = (float *)op->out + (size_t)row * (size_t)op->hidden;

        norm_row(&norm, out, embed_row(op, row, out), out);
    }
}

void GSV_VARIANT(gsv_add_norm)(const struct gpuserve_op_add_norm *op, int32_t row, int32_t row_end)
{
    const struct row_norm norm = { op->gamma, op->beta, op->eps, op->cols, op->norm };
    const size_t ld = (size_t)(op->ld > 0 ? op->ld : op->cols);
    float *sums = op->sum ? op->sum : op->out;

    for (; row < row_end; row++) {
        const size_t at = (size_t)row * ld;
        const float *residual = op->residual ? (const float *)op->residual + at : NULL;
        const float sum = add_rows(sums + at, (const float *)op->in + at, 1.0f, residual, NULL,
                                   op->cols, GSV_TABLE_F32);

        norm_row(&norm, sums + at, sum, (float *)op->out + at);
    }
}

/* -------------------------------------------------------------------- pooling and normalization */

static void multiply_row(float *row, int32_t cols, float factor)
{
    for (int32_t i = 0; i < cols; i += GSV_VL) {
        const int n = lanes_at(cols, i);

        store_lanes(row + i, load_lanes(row + i, n) * vf_set(factor), n);
    }
}

static void normalize_row(float *row, int32_t cols)
{
    multiply_row(row, cols, 1.0f / norm_of(row, cols));
}

/* Columns [i, i + n) of the tokens [first, end): their sum, weighted sum or maximum. */
GSV_INLINE vf pool_lanes(const struct gpuserve_op_pool *op, int32_t first, int32_t end, int32_t i,
                         int n)
{
    const float *in = (const float *)op->in + i;
    const size_t hidden = (size_t)op->hidden;
    vf pooled = load_lanes(in + (size_t)first * hidden, n);

    for (int32_t t = first + 1; t < end; t++) {
        const vf x = load_lanes(in + (size_t)t * hidden, n);

        if (op->pooling == GPUSERVE_POOL_MAX) /* a NaN stays */
            pooled = vf_select(pooled != pooled, pooled, vf_max(pooled, x));
        else if (op->pooling == GPUSERVE_POOL_WEIGHTED_MEAN)
            pooled = vf_fma(vf_set((float)(t - first + 1)), x, pooled);
        else
            pooled = pooled + x;
    }
    return pooled;
}

/* A sequence without tokens gives zeros for every pooling: the row at `first` belongs to another
 * sequence. */
static void pool_row(const struct gpuserve_op_pool *op, int32_t first, int32_t end, float *out)
{
    const double n = end - first;
    float factor = 1.0f;

    if (end <= first) {
        clear_row(out, op->columns);
        return;
    }
    if (op->pooling == GPUSERVE_POOL_CLS)
        end = first + 1;
    else if (op->pooling == GPUSERVE_POOL_LAST)
        first = end - 1;
    for (int32_t i = 0; i < op->columns; i += GSV_VL) {
        const int lanes = lanes_at(op->columns, i);

        store_lanes(out + i, pool_lanes(op, first, end, i, lanes), lanes);
    }
    if (op->pooling == GPUSERVE_POOL_MEAN)
        factor = (float)(1.0 / n);
    else if (op->pooling == GPUSERVE_POOL_MEAN_SQRT_LEN)
        factor = (float)(1.0 / sqrt(n));
    else if (op->pooling == GPUSERVE_POOL_WEIGHTED_MEAN)
        factor = (float)(2.0 / (n * (n + 1.0)));
    if (factor != 1.0f)
        multiply_row(out, op->columns, factor);
}

void GSV_VARIANT(gsv_pool)(const struct gpuserve_op_pool *op, int32_t sequence)
{
    const int32_t first = op->batch->cu_seqlens[sequence],
                  end = op->batch->cu_seqlens[sequence + 1];
    float *out = op->out + (size_t)sequence * (size_t)op->out_ld;

    pool_row(op, first, end, out);
    if (op->normalize)
        normalize_row(out, op->columns);
}

void GSV_VARIANT(gsv_normalize)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++)
        normalize_row(op->data + (size_t)row * (size_t)op->ld, op->cols);
}

/* ---------------------------------------------------------------------------------- activations */

static void softmax_row(float *row, int32_t cols)
{
    vf largest = vf_set(-INFINITY);
    struct vf_sums sum = vf_no_sums();

    for (int32_t i = 0; i < cols; i += GSV_VL) {
        const int n = lanes_at(cols, i);

        largest = vf_max(vf_keep(load_lanes(row + i, n), n, vf_set(-INFINITY)), largest);
    }
    largest = vf_set(vf_largest(largest));
    FOR_LANES (i, n, s, cols) {
        const vf weight = vf_exp(load_lanes(row + i, n) - largest);

        store_lanes(row + i, weight, n);
        sum.part[s] = sum.part[s] + (n == GSV_VL ? weight : vf_keep(weight, n, vf_set(0.0f)));
    }
    multiply_row(row, cols, 1.0f / vf_total(sum));
}

static void activate_row(float *row, int32_t cols, int32_t activation)
{
    for (int32_t i = 0; i < cols; i += GSV_VL) {
        const int n = lanes_at(cols, i);

        store_lanes(row + i, vf_activation(load_lanes(row + i, n), activation), n);
    }
}

static void layernorm_row(const struct gpuserve_op_rows *op, float *row)
{
    const struct row_norm norm = { op->gamma, op->beta, op->eps, op->cols, GPUSERVE_NORM_LAYER };

    norm_row(&norm, row, add_rows(row, row, 1.0f, NULL, NULL, op->cols, GSV_TABLE_F32), row);
}

void GSV_VARIANT(gsv_activate)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++) {
        float *data = op->data + (size_t)row * (size_t)op->ld;

        if (op->activation == GPUSERVE_ACT_SOFTMAX)
            softmax_row(data, op->cols);
        else if (op->activation == GPUSERVE_ACT_LAYERNORM)
            layernorm_row(op, data);
        else
            activate_row(data, op->cols, op->activation);
    }
}
