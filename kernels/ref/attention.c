/*
 * attention: softmax(scale * Q K^T + relative bias) V for each sequence, head and query, with the
 * options of struct gpuserve_op_attention.
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

/* Key and value heads. */
static int32_t kv_heads(const struct gpuserve_op_attention *op)
{
    return op->n_kv_heads > 0 ? op->n_kv_heads : op->n_heads;
}

/* Row `token` of Q (which = 0), K (1) or V (2) for this head. */
static const float *row_of(const struct query *q, int32_t token, int32_t which)
{
    const struct gpuserve_op_attention *op = q->op;
    const int32_t kv = kv_heads(op), group = op->n_heads / kv;
    const int32_t head = which == 0 ? q->head : op->n_heads + (which - 1) * kv + q->head / group;
    const size_t row = (size_t)token * (size_t)(op->n_heads + 2 * kv) + (size_t)head;

    return (const float *)op->qkv + row * (size_t)op->head_size;
}

static double dot(const float *a, const float *b, int32_t n)
{
    double sum = 0.0;

    for (int32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Q position_key + K position_query of the distance between query and key. */
static double disentangled(const struct query *q, const float *query, const float *key,
                           int32_t distance)
{
    const struct gpuserve_op_attention *op = q->op;
    const size_t row = (size_t)op->position_index[distance + op->bias_span - 1];
    const size_t at = (row * (size_t)op->n_heads + (size_t)q->head) * (size_t)op->head_size;
    double sum = 0.0;

    if (op->position_key)
        sum += dot(query, (const float *)op->position_key + at, op->head_size);
    if (op->position_query)
        sum += dot(key, (const float *)op->position_query + at, op->head_size);
    return sum;
}

/* -infinity for a key that the query does not attend to. */
static double score(const struct query *q, int32_t key)
{
    const struct gpuserve_op_attention *op = q->op;
    const float *a = row_of(q, q->token, 0), *b = row_of(q, key, 1);
    const int32_t distance = q->token - key;
    double sum;

    if ((op->causal && distance < 0) ||
        (op->window > 0 && (distance > op->window || -distance > op->window)))
        return -INFINITY;
    sum = dot(a, b, op->head_size);
    if (op->position_key || op->position_query)
        sum += disentangled(q, a, b, distance);
    sum *= (double)op->scale;
    if (op->relative_bias)
        sum += (double)op->relative_bias[(size_t)q->head * (size_t)(2 * op->bias_span - 1) +
                                         (size_t)(op->bias_span - 1 - distance)];
    if (op->softcap != 0.0f)
        sum = (double)op->softcap * tanh(sum / (double)op->softcap);
    return sum;
}

/* Softmax-weighted sum of the values, for COLUMNS columns from `begin` on. */
static void weigh(const struct query *q, double max, double total, int32_t begin, float *out)
{
    const int32_t left = q->op->head_size - begin, n = left < COLUMNS ? left : COLUMNS;
    double sums[COLUMNS] = { 0.0 };

    for (int32_t key = q->first; key < q->end; key++) {
        const double weight = exp(score(q, key) - max);
        const float *values = row_of(q, key, 2) + begin;

        for (int32_t i = 0; i < n && weight != 0.0; i++)
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
    double max = -INFINITY, total = 0.0;

    for (int32_t key = q->first; key < q->end; key++)
        max = fmax(max, score(q, key));
    for (int32_t key = q->first; key < q->end; key++)
        total += exp(score(q, key) - max);
    for (int32_t i = 0; i < op->head_size; i += COLUMNS)
        weigh(q, max, total, i, out);
}

gpuserve_status gsv_ref_attention(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op)
{
    const int32_t *cu = op->batch->cu_seqlens, *counts = op->batch->key_counts;

    (void)stream;
    for (int32_t s = 0; s < op->batch->n_sequences; s++) {
        const int32_t end = counts ? cu[s] + counts[s] : cu[s + 1];

        for (int32_t token = cu[s]; token < cu[s + 1]; token++) {
            for (int32_t head = 0; head < op->n_heads; head++)
                run_query(&(struct query){ op, head, token, cu[s], end });
        }
    }
    return GPUSERVE_OK;
}
