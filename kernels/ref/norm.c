/*
 * embed and add_norm: a sum of up to three rows, then LayerNorm: (x - mean) / sqrt(variance + eps)
 * * gamma + beta, RMSNorm: x / sqrt(mean square + eps) * gamma + beta, or x * gamma + beta.
 * float64.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* Returns element c of row r of the sum. Called up to three times for each column. */
typedef double (*column_fn)(const void *op, int32_t r, int32_t c);

/* Where and how the rows of an operation are normalized. */
struct norm_rows {
    column_fn column;
    const void *op;
    float *out;
    const float *gamma, *beta;
    double eps;
    int32_t cols, kind;
    int32_t ld; /* of `out` */
};

static size_t row_start(const struct gpuserve_op_add_norm *op, int32_t row)
{
    return (size_t)row * (size_t)(op->ld > 0 ? op->ld : op->cols);
}

/* `out` may alias the input of `column`: the statistics are computed first, and each element is
 * read before it is written. */
static void normalize_row(const struct norm_rows *n, int32_t r)
{
    float *out = n->out + (size_t)r * (size_t)n->ld;
    double mean = 0.0, variance = 0.0, factor = 1.0;

    for (int32_t c = 0; c < n->cols && n->kind == GPUSERVE_NORM_LAYER; c++)
        mean += n->column(n->op, r, c);
    mean /= n->cols;
    for (int32_t c = 0; c < n->cols; c++)
        variance += pow(n->column(n->op, r, c) - mean, 2.0);
    if (n->kind != GPUSERVE_NORM_NONE)
        factor = 1.0 / sqrt(variance / n->cols + n->eps);
    for (int32_t c = 0; c < n->cols; c++) {
        const double gamma = n->gamma ? (double)n->gamma[c] : 1.0;
        const double beta = n->beta ? (double)n->beta[c] : 0.0;

        out[c] = (float)((n->column(n->op, r, c) - mean) * factor * gamma + beta);
    }
}

static double embed_column(const void *op_, int32_t r, int32_t c)
{
    const struct gpuserve_op_embed *op = op_;
    const size_t hidden = (size_t)op->hidden;
    double x = ((const float *)op->word)[(size_t)op->batch->ids[r] * hidden + (size_t)c];

    if (op->word_scale != 0.0f)
        x *= (double)op->word_scale;
    if (op->position)
        x += ((const float *)op->position)[(size_t)op->batch->positions[r] * hidden + (size_t)c];
    if (op->type)
        x += ((const float *)op->type)[(size_t)op->batch->type_ids[r] * hidden + (size_t)c];
    return x;
}

gpuserve_status gsv_ref_embed(struct gpuserve_stream *stream, const struct gpuserve_op_embed *op)
{
    const struct norm_rows norm = {
        embed_column,    op,         op->out,  op->gamma,  op->beta,
        (double)op->eps, op->hidden, op->norm, op->hidden,
    };

    (void)stream;
    for (int32_t r = 0; r < op->batch->n_rows; r++)
        normalize_row(&norm, r);
    return GPUSERVE_OK;
}

static double sum_column(const void *op_, int32_t r, int32_t c)
{
    const struct gpuserve_op_add_norm *op = op_;
    const size_t at = row_start(op, r) + (size_t)c;
    double x = ((const float *)op->in)[at];

    if (op->residual)
        x += ((const float *)op->residual)[at];
    return x;
}

/* sum = in + residual. The norm then reads the sum in place of both. */
static struct gpuserve_op_add_norm store_sum(const struct gpuserve_op_add_norm *op)
{
    struct gpuserve_op_add_norm rest = *op;

    for (int32_t r = 0; r < op->rows; r++) {
        float *sum = (float *)op->sum + row_start(op, r);

        for (int32_t c = 0; c < op->cols; c++)
            sum[c] = (float)sum_column(op, r, c);
    }
    rest.in = op->sum;
    rest.residual = NULL;
    return rest;
}

gpuserve_status gsv_ref_add_norm(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_add_norm *op)
{
    const struct gpuserve_op_add_norm rest = op->sum ? store_sum(op) : *op;
    const struct norm_rows norm = {
        sum_column, &rest,    op->out,
        op->gamma,  op->beta, (double)op->eps,
        op->cols,   op->norm, op->ld > 0 ? op->ld : op->cols,
    };

    (void)stream;
    for (int32_t r = 0; r < op->rows; r++)
        normalize_row(&norm, r);
    return GPUSERVE_OK;
}
