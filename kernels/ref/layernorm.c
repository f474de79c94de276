/*
 * embed and add_layernorm: a sum of up to three rows, then LayerNorm: (x - mean) / sqrt(variance +
 * eps) * gamma + beta, in float64.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* Returns element c of row r of the sum. Called three times for each column. */
typedef double (*column_fn)(const void *op, int32_t r, int32_t c);

/* `out` may alias the input of `column`: the statistics are computed first, and each element is
 * read before it is written. */
static void normalize_row(float *out, column_fn column, const void *op, int32_t r, int32_t cols,
                          const float *gamma, const float *beta, double eps)
{
    double mean = 0.0, variance = 0.0;

    for (int32_t c = 0; c < cols; c++)
        mean += column(op, r, c);
    mean /= cols;
    for (int32_t c = 0; c < cols; c++)
        variance += pow(column(op, r, c) - mean, 2.0);
    variance /= cols;
    for (int32_t c = 0; c < cols; c++)
        out[c] = (float)((column(op, r, c) - mean) / sqrt(variance + eps) * (double)gamma[c] +
                         (double)beta[c]);
}

static double embed_column(const void *op_, int32_t r, int32_t c)
{
    const struct gpuserve_op_embed *op = op_;
    const size_t hidden = (size_t)op->hidden;
    double x = ((const float *)op->word)[(size_t)op->batch->ids[r] * hidden + (size_t)c];

    if (op->position)
        x += ((const float *)op->position)[(size_t)op->batch->positions[r] * hidden + (size_t)c];
    if (op->type)
        x += ((const float *)op->type)[(size_t)op->batch->type_ids[r] * hidden + (size_t)c];
    return x;
}

gpuserve_status gsv_ref_embed(struct gpuserve_stream *stream, const struct gpuserve_op_embed *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->batch->n_rows; r++)
        normalize_row((float *)op->out + (size_t)r * (size_t)op->hidden, embed_column, op, r,
                      op->hidden, op->gamma, op->beta, (double)op->eps);
    return GPUSERVE_OK;
}

static double sum_column(const void *op_, int32_t r, int32_t c)
{
    const struct gpuserve_op_add_layernorm *op = op_;
    const size_t at = (size_t)r * (size_t)op->cols + (size_t)c;
    double x = ((const float *)op->in)[at];

    if (op->residual)
        x += ((const float *)op->residual)[at];
    return x;
}

gpuserve_status gsv_ref_add_layernorm(struct gpuserve_stream *stream,
                                      const struct gpuserve_op_add_layernorm *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++)
        normalize_row((float *)op->out + (size_t)r * (size_t)op->cols, sum_column, op, r, op->cols,
                      op->gamma, op->beta, (double)op->eps);
    return GPUSERVE_OK;
}
