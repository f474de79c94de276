/*
 * gates: rotate, glu, route and add_scaled in float32: norms and rotary positions of attention
 * heads, gated linear units, and the routing of a mixture of experts. Each row is computed by
 * itself, with vector sums of a fixed order.
 */
#include "kernels/cpu/rows/lanes.h"
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vmath.h"

#include <math.h>

/* --------------------------------------------------------------------------------------- rotate */

static void norm_head(float *head, const float *gamma, int32_t size, float eps)
{
    const vf factor = vf_set(1.0f / sqrtf(sum_of_squares(head, size) / (float)size + eps));

    for (int32_t i = 0; i < size; i += GSV_VL) {
        const int n = lanes_at(size, i);

        store_lanes(head + i, load_lanes(head + i, n) * factor * load_lanes(gamma + i, n), n);
    }
}

/* Element i pairs with i + half. `angles`: `half` cosines, then as many sines. */
static void rotate_halves(float *head, const float *angles, int32_t half)
{
    for (int32_t i = 0; i < half; i += GSV_VL) {
        const int n = lanes_at(half, i);
        const vf x = load_lanes(head + i, n), y = load_lanes(head + half + i, n);
        const vf c = load_lanes(angles + i, n), s = load_lanes(angles + half + i, n);

        store_lanes(head + i, vf_fma(x, c, -(y * s)), n);
        store_lanes(head + half + i, vf_fma(y, c, x * s), n);
    }
}

/* Element 2i pairs with 2i + 1. */
static void rotate_pairs(float *head, const float *angles, int32_t half)
{
    for (int32_t i = 0; i < half; i += GSV_VL) {
        const int n = lanes_at(half, i);
        const int low = 2 * n < GSV_VL ? 2 * n : GSV_VL, high = 2 * n - low;
        float *at = head + 2 * (size_t)i;
        const vf a = load_lanes(at, low), b = load_lanes(at + low, high);
        const vf x = VF_EVEN(a, b), y = VF_ODD(a, b);
        const vf c = load_lanes(angles + i, n), s = load_lanes(angles + half + i, n);
        const vf first = vf_fma(x, c, -(y * s)), second = vf_fma(y, c, x * s);

        store_lanes(at, VF_ZIP_LOW(first, second), low);
        store_lanes(at + low, VF_ZIP_HIGH(first, second), high);
    }
}

void GSV_VARIANT(gsv_rotate)(const struct gpuserve_op_rotate *op, int32_t row, int32_t row_end)
{
    const int32_t heads = op->n_heads + op->n_kv_heads;
    const size_t size = (size_t)op->head_size, ld = (size_t)(heads + op->n_kv_heads) * size;

    for (; row < row_end; row++) {
        float *head = (float *)op->qkv + (size_t)row * ld;
        const float *angles = op->table;

        if (angles)
            angles += (size_t)op->batch->positions[row] * (size_t)op->rotary;
        for (int32_t h = 0; h < heads; h++, head += size) {
            const float *gamma = h < op->n_heads ? op->query_gamma : op->key_gamma;

            if (gamma)
                norm_head(head, gamma, op->head_size, op->eps);
            if (angles && op->interleaved)
                rotate_pairs(head, angles, op->rotary / 2);
            else if (angles)
                rotate_halves(head, angles, op->rotary / 2);
        }
    }
}

/* ------------------------------------------------------------------------------------------ glu */

GSV_INLINE void glu_row(const float *in, float *out, int32_t cols, int32_t activation)
{
    for (int32_t i = 0; i < cols; i += GSV_VL) {
        const int n = lanes_at(cols, i);
        const vf value = load_lanes(in + cols + i, n);

        store_lanes(out + i, vf_activation(load_lanes(in + i, n), activation) * value, n);
    }
}

#define GLU_CASE(kind)                \
    case kind:                        \
        glu_row(in, out, cols, kind); \
        break;

static void glu_row_of(const float *in, float *out, int32_t cols, int32_t activation)
{
    switch (activation) {
        VMATH_ACTIVATIONS(GLU_CASE)
    default:
        glu_row(in, out, cols, GPUSERVE_ACT_NONE);
        break;
    }
}

void GSV_VARIANT(gsv_glu)(const struct gpuserve_op_glu *op, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++)
        glu_row_of((const float *)op->in + (size_t)row * (size_t)op->in_ld,
                   (float *)op->out + (size_t)row * (size_t)op->out_ld, op->cols, op->activation);
}

/* --------------------------------------------------------------------------- mixture of experts */

/* All ones for the experts of a vector that belong to the `top_k` largest of a row: those after
 * fewer than `top_k` others, by logit, then by number. */
static vi chosen(const struct gpuserve_op_route *op, const float *logits, vf x, int32_t first)
{
    const vi number = vi_lanes() + vi_set(first);
    vi before = vi_set(0);

    for (int32_t e = 0; e < op->experts; e++) {
        const vf other = vf_set(logits[e]);

        before -= (vi)(other > x) | ((vi)(other == x) & (vi)(vi_set(e) < number));
    }
    return before < vi_set(op->top_k);
}

static void route_row(const struct gpuserve_op_route *op, const float *logits, float *weights)
{
    vf largest = vf_set(-INFINITY), factor;
    struct vf_sums all = vf_no_sums(), kept = vf_no_sums();

    for (int32_t e = 0; e < op->experts; e += GSV_VL) {
        const int n = lanes_at(op->experts, e);

        largest = vf_max(vf_keep(load_lanes(logits + e, n), n, vf_set(-INFINITY)), largest);
    }
    largest = vf_set(vf_largest(largest));
    FOR_LANES (e, n, s, op->experts) {
        const vf x = load_lanes(logits + e, n);
        const vf weight = vf_keep(vf_exp(x - largest), n, vf_set(0.0f));
        const vf top = vf_select(chosen(op, logits, x, e), weight, vf_set(0.0f));

        all.part[s] = all.part[s] + weight;
        kept.part[s] = kept.part[s] + top;
        store_lanes(weights + e, top, n);
    }
    factor = vf_set(1.0f / vf_total(op->renormalize ? kept : all));
    for (int32_t e = 0; e < op->experts; e += GSV_VL) {
        const int n = lanes_at(op->experts, e);

        store_lanes(weights + e, load_lanes(weights + e, n) * factor, n);
    }
}

void GSV_VARIANT(gsv_route)(const struct gpuserve_op_route *op, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++) {
        const size_t at = (size_t)row * (size_t)op->experts;

        route_row(op, (const float *)op->logits + at, op->weights + at);
    }
}

static void add_scaled_row(float *out, const float *in, int32_t cols, float weight, int first)
{
    for (int32_t i = 0; i < cols; i += GSV_VL) {
        const int n = lanes_at(cols, i);
        const vf x = load_lanes(in + i, n), w = vf_set(weight);

        store_lanes(out + i, first ? w * x : vf_fma(w, x, load_lanes(out + i, n)), n);
    }
}

void GSV_VARIANT(gsv_add_scaled)(const struct gpuserve_op_add_scaled *op, int32_t row,
                                 int32_t row_end)
{
    for (; row < row_end; row++) {
        const size_t at = (size_t)row * (size_t)op->cols;
        const float weight = op->weights
                                 ? op->factor * op->weights[(size_t)row * (size_t)op->weights_ld]
                                 : op->factor;
        float *out = (float *)op->out + at;

        if (weight != 0.0f)
            add_scaled_row(out, (const float *)op->in + at, op->cols, weight, op->first);
        else if (op->first)
            clear_row(out, op->cols);
    }
}
