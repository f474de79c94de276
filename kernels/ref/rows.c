/*
 * pool, normalize, activate: pooling of token rows into one vector per text, L2 normalization, and
 * activations of scores.
 */
#include "kernels/ref/ref.h"

#include <math.h>

#define MIN_NORM 1e-12

static void normalize_row(float *row, int32_t cols)
{
    double sum = 0.0;

    for (int32_t c = 0; c < cols; c++)
        sum += (double)row[c] * (double)row[c];
    sum = sqrt(sum);
    if (sum < MIN_NORM)
        sum = MIN_NORM;
    for (int32_t c = 0; c < cols; c++)
        row[c] = (float)((double)row[c] / sum);
}

/* Column c of the pooled vector of the tokens [first, end). */
static double pool_column(const struct gpuserve_op_pool *op, int32_t first, int32_t end, int32_t c)
{
    const float *in = (const float *)op->in + c;
    const size_t hidden = (size_t)op->hidden;
    const double n = end - first;
    double sum = 0.0, max = -INFINITY, weights = 0.0;

    if (end <= first) /* no tokens: zeros for every pooling */
        return 0.0;
    for (int32_t t = first; t < end; t++) {
        const double x = in[(size_t)t * hidden];
        const double weight = op->pooling == GPUSERVE_POOL_WEIGHTED_MEAN ? t - first + 1 : 1.0;

        sum += weight * x;
        weights += weight;
        max = isnan(x) || x > max ? x : max;
    }
    switch (op->pooling) {
    case GPUSERVE_POOL_CLS:
        return in[(size_t)first * hidden];
    case GPUSERVE_POOL_LAST:
        return in[(size_t)(end - 1) * hidden];
    case GPUSERVE_POOL_MAX:
        return max;
    case GPUSERVE_POOL_MEAN_SQRT_LEN:
        return sum / sqrt(n);
    default:
        return sum / weights;
    }
}

gpuserve_status gsv_ref_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op)
{
    const int32_t *cu = op->batch->cu_seqlens;

    (void)stream;
    for (int32_t s = 0; s < op->batch->n_sequences; s++) {
        float *out = op->out + (size_t)s * (size_t)op->out_ld;

        for (int32_t c = 0; c < op->columns; c++)
            out[c] = (float)pool_column(op, cu[s], cu[s + 1], c);
        if (op->normalize)
            normalize_row(out, op->columns);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_ref_normalize(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++)
        normalize_row(op->data + (size_t)r * (size_t)op->ld, op->cols);
    return GPUSERVE_OK;
}

static void softmax_row(float *row, int32_t cols)
{
    double max = -INFINITY, sum = 0.0;

    for (int32_t c = 0; c < cols; c++)
        max = fmax(max, (double)row[c]);
    for (int32_t c = 0; c < cols; c++)
        sum += exp((double)row[c] - max);
    for (int32_t c = 0; c < cols; c++)
        row[c] = (float)(exp((double)row[c] - max) / sum);
}

static void layernorm_row(const struct gpuserve_op_rows *op, float *row)
{
    double mean = 0.0, variance = 0.0;

    for (int32_t c = 0; c < op->cols; c++)
        mean += (double)row[c] / op->cols;
    for (int32_t c = 0; c < op->cols; c++)
        variance += pow((double)row[c] - mean, 2.0) / op->cols;
    for (int32_t c = 0; c < op->cols; c++)
        row[c] = (float)(((double)row[c] - mean) / sqrt(variance + (double)op->eps) *
                             (op->gamma ? (double)op->gamma[c] : 1.0) +
                         (op->beta ? (double)op->beta[c] : 0.0));
}

gpuserve_status gsv_ref_activate(struct gpuserve_stream *stream, const struct gpuserve_op_rows *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        float *row = op->data + (size_t)r * (size_t)op->ld;

        if (op->activation == GPUSERVE_ACT_SOFTMAX) {
            softmax_row(row, op->cols);
            continue;
        }
        if (op->activation == GPUSERVE_ACT_LAYERNORM) {
            layernorm_row(op, row);
            continue;
        }
        for (int32_t c = 0; c < op->cols; c++)
            row[c] = (float)gsv_ref_activation((double)row[c], op->activation);
    }
    return GPUSERVE_OK;
}
