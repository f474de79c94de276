/*
 * attention: softmax(scale * Q K^T + relative bias) V for each sequence, head and query.
 *
 * Uses no scratch memory. Each pass over the keys recomputes the scores of the query: one pass for
 * the maximum, one for the sum, one for each COLUMNS columns of the weighted values.
 */
#include "kernels/ref/ref.h"

#include <math.h>

enum { COLUMNS = 64 };

/* One query of one head against the keys [first, end) of its own sequence. */
struct query {
    const struct gpuserve_op_attention *op;
    int32_t head, token, first, end;
};

/* Row `token` of Q (which = 0), K (1) or V (2) for this head. */
static const float *row_of(const struct query *q, int32_t token, int32_t which)
{
    const struct gpuserve_op_attention *op = q->op;
    const size_t row = ((size_t)token * 3 + (size_t)which) * (size_t)op->n_heads + (size_t)q->head;

    return (const float *)op->qkv + row * (size_t)op->head_size;
}

static double score(const struct query *q, int32_t key)
{
    const struct gpuserve_op_attention *op = q->op;
    const float *a = row_of(q, q->token, 0), *b = row_of(q, key, 1);
    double sum = 0.0;

    for (int32_t i = 0; i < op->head_size; i++)
        sum += (double)a[i] * (double)b[i];
    sum *= (double)op->scale;
    if (op->relative_bias)
        sum += (double)op->relative_bias[(size_t)q->head * (size_t)(2 * op->bias_span - 1) +
                                         (size_t)(key - q->token + op->bias_span - 1)];
    return sum;
}

/* Softmax-weighted sum of the values, for COLUMNS columns from `begin` on. */
static void weigh(const struct query *q, double most, double total, int32_t begin, float *out)
{
    const int32_t left = q->op->head_size - begin, n = left < COLUMNS ? left : COLUMNS;
    double sums[COLUMNS] = { 0.0 };

    for (int32_t key = q->first; key < q->end; key++) {
        const double weight = exp(score(q, key) - most);
        const float *values = row_of(q, key, 2) + begin;

        for (int32_t i = 0; i < n; i++)
            sums[i] += weight * (double)values[i];
    }
    for (int32_t i = 0; i < n; i++)
        out[begin + i] = (float)(sums[i] / total);
}

static void run_query(const struct query *q)
{
    const struct gpuserve_op_attention *op = q->op;
    float *out = (float *)op->out +
                 ((size_t)q->token * (size_t)op->n_heads + (size_t)q->head) * (size_t)op->head_size;
    double most = -INFINITY, total = 0.0;

    for (int32_t key = q->first; key < q->end; key++)
        most = fmax(most, score(q, key));
    for (int32_t key = q->first; key < q->end; key++)
        total += exp(score(q, key) - most);
    for (int32_t i = 0; i < op->head_size; i += COLUMNS)
        weigh(q, most, total, i, out);
}

gpuserve_status gsv_ref_attention(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op)
{
    const int32_t *cu = op->batch->cu_seqlens;

    (void)stream;
    for (int32_t s = 0; s < op->batch->n_sequences; s++) {
        for (int32_t token = cu[s]; token < cu[s + 1]; token++) {
            for (int32_t head = 0; head < op->n_heads; head++)
                run_query(&(struct query){ op, head, token, cu[s], cu[s + 1] });
        }
    }
    return GPUSERVE_OK;
}
