/*
 * max_sim: late interaction, each sum in float64.
 */
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"

#include <math.h>

#define MIN_LENGTH 1e-12

static double product(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Divisor of the dot products of a document row: its norm, or 1. A NaN stays. */
static double divisor(const struct gsv_max_sim *op, const float *row)
{
    const double length = op->normalizes ? sqrt(product(row, row, op->dim)) : 1.0;

    return length < MIN_LENGTH ? MIN_LENGTH : length;
}

void gsv_ref_max_sim(const struct gsv_max_sim *op, float *best)
{
    for (size_t q = 0; q < op->n_query; q++) {
        double max = -INFINITY;

        for (size_t d = 0; d < op->n_document; d++) {
            const size_t at = op->rows ? (size_t)op->rows[d] : d;
            const float *row = op->document + at * op->dim;
            const double x = product(op->query + q * op->dim, row, op->dim) / divisor(op, row);

            max = isnan(x) || x > max ? x : max;
        }
        best[q] = (float)max;
    }
}

gpuserve_status gsv_ref_op_max_sim(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_max_sim *op)
{
    (void)stream;
    for (int32_t s = 0; s < op->batch->n_sequences; s++) {
        const struct gpuserve_max_sim_text *text = &op->texts[s];
        double sum = 0;

        for (int32_t q = 0; q < text->n_query && text->n > 0; q++) {
            const struct gsv_max_sim one = {
                .query = op->query + (size_t)(text->query + q) * (size_t)op->dim,
                .n_query = 1,
                .document = op->in,
                .rows = op->rows + text->first,
                .n_document = (size_t)text->n,
                .dim = (size_t)op->dim,
                .normalizes = op->normalize != 0,
            };
            float best;

            gsv_ref_max_sim(&one, &best);
            sum += (double)best;
        }
        op->out[s] = (float)sum;
    }
    return GPUSERVE_OK;
}
