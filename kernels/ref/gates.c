/*
 * rotate, glu, route and add_scaled: norms and rotary positions of attention heads, gated linear
 * units, and the routing of a mixture of experts. float64.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* --------------------------------------------------------------------------------------- rotate */

static void rms_norm(float *head, const float *gamma, int32_t n, double eps)
{
    double square = 0.0;

    for (int32_t i = 0; i < n; i++)
        square += (double)head[i] * (double)head[i];
    square = 1.0 / sqrt(square / n + eps);
    for (int32_t i = 0; i < n; i++)
        head[i] = (float)((double)head[i] * square * (double)gamma[i]);
}

/* `angles`: rotary / 2 cosines, then as many sines. */
static void rotate_head(const struct gpuserve_op_rotate *op, float *head, const float *angles)
{
    const int32_t half = op->rotary / 2;

    for (int32_t i = 0; i < half; i++) {
        float *a = head + (op->interleaved ? 2 * i : i), *b = op->interleaved ? a + 1 : a + half;
        const double x = (double)*a, y = (double)*b;
        const double c = (double)angles[i], s = (double)angles[half + i];

        *a = (float)(x * c - y * s);
        *b = (float)(y * c + x * s);
    }
}

gpuserve_status gsv_ref_rotate(struct gpuserve_stream *stream, const struct gpuserve_op_rotate *op)
{
    const int32_t heads = op->n_heads + op->n_kv_heads;
    const size_t row = (size_t)(heads + op->n_kv_heads) * (size_t)op->head_size;

    (void)stream;
    for (int32_t r = 0; r < op->batch->n_rows; r++) {
        for (int32_t h = 0; h < heads; h++) {
            const float *gamma = h < op->n_heads ? op->query_gamma : op->key_gamma;
            float *head = (float *)op->qkv + (size_t)r * row + (size_t)h * (size_t)op->head_size;

            if (gamma)
                rms_norm(head, gamma, op->head_size, (double)op->eps);
            if (op->table)
                rotate_head(op, head,
                            op->table + (size_t)op->batch->positions[r] * (size_t)op->rotary);
        }
    }
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------------ glu */

gpuserve_status gsv_ref_glu(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        const float *in = (const float *)op->in + (size_t)r * (size_t)op->in_ld;
        float *out = (float *)op->out + (size_t)r * (size_t)op->out_ld;

        for (int32_t c = 0; c < op->cols; c++)
            out[c] = (float)(gsv_ref_activation((double)in[c], op->activation) *
                             (double)in[op->cols + c]);
    }
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------- mixture of experts */

/* True if fewer than `top_k` experts come before `expert` by logit, then by index. */
static int is_chosen(const float *logits, const struct gpuserve_op_route *op, int32_t expert)
{
    int32_t before = 0;

    for (int32_t e = 0; e < op->experts; e++)
        before += logits[e] > logits[expert] || (e < expert && logits[e] == logits[expert]);
    return before < op->top_k;
}

static void route_row(const struct gpuserve_op_route *op, const float *logits, float *weights)
{
    double maximum = -INFINITY, all = 0.0, chosen = 0.0;

    for (int32_t e = 0; e < op->experts; e++)
        maximum = fmax(maximum, (double)logits[e]);
    for (int32_t e = 0; e < op->experts; e++) {
        const double weight = exp((double)logits[e] - maximum);

        all += weight;
        chosen += is_chosen(logits, op, e) ? weight : 0.0;
    }
    for (int32_t e = 0; e < op->experts; e++)
        weights[e] =
            is_chosen(logits, op, e)
                ? (float)(exp((double)logits[e] - maximum) / (op->renormalize ? chosen : all))
                : 0.0f;
}

gpuserve_status gsv_ref_route(struct gpuserve_stream *stream, const struct gpuserve_op_route *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        const size_t at = (size_t)r * (size_t)op->experts;

        route_row(op, (const float *)op->logits + at, op->weights + at);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_ref_add_scaled(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_add_scaled *op)
{
    (void)stream;
    for (int32_t r = 0; r < op->rows; r++) {
        const size_t at = (size_t)r * (size_t)op->cols;
        const double weight =
            (double)op->factor *
            (op->weights ? (double)op->weights[(size_t)r * (size_t)op->weights_ld] : 1.0);
        const float *in = (const float *)op->in + at;
        float *out = (float *)op->out + at;

        for (int32_t c = 0; c < op->cols; c++) {
            const double x = weight == 0.0 ? 0.0 : weight * (double)in[c];

            out[c] = (float)(op->first ? x : (double)out[c] + x);
        }
    }
    return GPUSERVE_OK;
}
