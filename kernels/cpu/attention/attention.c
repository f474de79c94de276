/*
 * attention: softmax(scale * Q K^T + relative bias) V for one head of one sequence, in float32.
 *
 *   pack     K transposed into panels of keys, times scale * log2(e); V into panels of columns
 *   for each tile of up to GSV_MR queries:
 *     scores   tile x panels of K, with the inner loop of the float32 product
 *     softmax  2^(score - max) in place and its sum, over the keys of this sequence
 *     output   scores x panels of V, divided by the sum
 *
 * The code reads rows of this sequence only, and the order of every sum depends on its length only.
 * The bits are therefore independent of the rest of the batch. Scratch: gsv_cpu_attention_floats().
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vmath.h"

#include <math.h>

struct attention_head {
    const struct gpuserve_op_attention *op;
    const float *q, *k, *v; /* first row of this head; row stride `ld` */
    float *out;             /* row stride out_ld */
    const float *bias;      /* relative_bias of this head at key - query = 0, or NULL */
    size_t ld, out_ld;
    int32_t length, size;
    int32_t padded; /* length rounded up to a whole panel */
    float *keys;    /* [padded / GSV_NR][size][GSV_NR] */
    float *values;  /* [size up / GSV_NR][length][GSV_NR] */
    float *scores;  /* [GSV_MR][padded] */
};

GSV_INLINE vf load_upto(const float *p, int32_t n)
{
    return n >= GSV_VL ? vf_load(p) : vf_load_part(p, n > 0 ? n : 0);
}

/* Packs GSV_VL keys by GSV_VL dimensions; rows past the end are zero. */
static void pack_key_block(const struct attention_head *h, int32_t key, int32_t from, float *to,
                           float factor)
{
    const int32_t dims = h->size - from < GSV_VL ? h->size - from : GSV_VL;
    vf block[GSV_VL];

    for (int32_t i = 0; i < GSV_VL; i++)
        block[i] = key + i < h->length
                       ? load_upto(h->k + (size_t)(key + i) * h->ld + from, dims) * vf_set(factor)
                       : vf_set(0.0f);
    vf_transpose(block);
    for (int32_t i = 0; i < dims; i++)
        vf_store(to + (size_t)i * GSV_NR, block[i]);
}

static void pack_keys(const struct attention_head *h)
{
    const float factor = h->op->scale * VMATH_LOG2E;

    for (int32_t key = 0; key < h->padded; key += GSV_VL) {
        float *panel = h->keys + (size_t)(key / GSV_NR) * GSV_NR * (size_t)h->size + key % GSV_NR;

        for (int32_t from = 0; from < h->size; from += GSV_VL)
            pack_key_block(h, key, from, panel + (size_t)from * GSV_NR, factor);
    }
}

static void pack_values(const struct attention_head *h)
{
    float *to = h->values;

    for (int32_t from = 0; from < h->size; from += GSV_NR) {
        for (int32_t key = 0; key < h->length; key++) {
            const float *row = h->v + (size_t)key * h->ld + from;

            for (int v = 0; v < GSV_NV; v++)
                vf_store(to + v * GSV_VL, load_upto(row + v * GSV_VL, h->size - from - v * GSV_VL));
            to += GSV_NR;
        }
    }
}

/* Scores [key, key + GSV_VL) of one query; -infinity past the last key, so that its weight is 0. */
GSV_INLINE vf scores_at(const struct attention_head *h, const float *row, int32_t query,
                        int32_t key)
{
    const int32_t left = h->length - key;
    vf x = vf_load(row + key);

    if (h->bias)
        x = vf_fma(load_upto(h->bias + key - query, left), vf_set(VMATH_LOG2E), x);
    return left >= GSV_VL ? x : vf_keep(x, left, vf_set(-INFINITY));
}

/* Replaces the scores of one query by 2^(score - max) and returns their sum. */
static float softmax_row(const struct attention_head *h, float *row, int32_t query)
{
    vf largest = vf_set(-INFINITY), sum = vf_set(0.0f);

    for (int32_t key = 0; key < h->length; key += GSV_VL)
        largest = vf_max(scores_at(h, row, query, key), largest);
    largest = vf_set(vf_largest(largest));
    for (int32_t key = 0; key < h->length; key += GSV_VL) {
        const vf weight = vf_exp2(scores_at(h, row, query, key) - largest);

        vf_store(row + key, weight);
        sum = sum + weight;
    }
    return vf_sum(sum);
}

static void store_outputs(const struct attention_head *h, const float *tile, int32_t query,
                          int32_t queries, int32_t from, const float *sums)
{
    for (int32_t r = 0; r < queries; r++) {
        float *out = h->out + (size_t)(query + r) * h->out_ld + from;
        const vf inverse = vf_set(1.0f / sums[r]);

        for (int v = 0; v < GSV_NV; v++) {
            const int32_t left = h->size - from - v * GSV_VL;
            const vf x = vf_load(tile + r * GSV_NR + v * GSV_VL) * inverse;

            if (left >= GSV_VL)
                vf_store(out + v * GSV_VL, x);
            else if (left > 0)
                vf_store_part(out + v * GSV_VL, x, left);
        }
    }
}

static void run_queries(const struct attention_head *h, int32_t query, int32_t queries)
{
    const gsv_tile_f32_fn product = GSV_VARIANT(gsv_tiles_f32)[queries];
    const size_t key_panel = (size_t)h->size * GSV_NR, value_panel = (size_t)h->length * GSV_NR;
    float tile[GSV_MR * GSV_NR] __attribute__((aligned(64)));
    float sums[GSV_MR];

    for (int32_t key = 0; key < h->padded; key += GSV_NR)
        product(h->q + (size_t)query * h->ld, h->ld, h->keys + (size_t)(key / GSV_NR) * key_panel,
                h->size, h->scores + key, (size_t)h->padded, (const char *)h->keys, 0);
    for (int32_t r = 0; r < queries; r++)
        sums[r] = softmax_row(h, h->scores + (size_t)r * (size_t)h->padded, query + r);
    for (int32_t from = 0; from < h->size; from += GSV_NR) {
        product(h->scores, (size_t)h->padded, h->values + (size_t)(from / GSV_NR) * value_panel,
                h->length, tile, GSV_NR, (const char *)h->values, 0);
        store_outputs(h, tile, query, queries, from, sums);
    }
}

void GSV_VARIANT(gsv_attention)(const struct gpuserve_op_attention *op, int32_t sequence,
                                int32_t head, float *scratch)
{
    const int32_t first = op->batch->cu_seqlens[sequence];
    const size_t width = (size_t)op->n_heads * (size_t)op->head_size;
    const float *qkv = (const float *)op->qkv + (size_t)first * 3 * width;
    const size_t column = (size_t)head * (size_t)op->head_size;
    struct attention_head h = {
        .op = op,
        .q = qkv + column,
        .k = qkv + width + column,
        .v = qkv + 2 * width + column,
        .out = (float *)op->out + (size_t)first * width + column,
        .ld = 3 * width,
        .out_ld = width,
        .length = op->batch->cu_seqlens[sequence + 1] - first,
        .size = op->head_size,
    };

    h.padded = (h.length + GSV_NR - 1) / GSV_NR * GSV_NR;
    h.keys = scratch;
    h.values = h.keys + (size_t)h.padded * (size_t)h.size;
    h.scores = h.values + (size_t)h.length * (size_t)((h.size + GSV_NR - 1) / GSV_NR * GSV_NR);
    if (op->relative_bias)
        h.bias = op->relative_bias + (size_t)head * (size_t)(2 * op->bias_span - 1) +
                 (size_t)(op->bias_span - 1);
    pack_keys(&h);
    pack_values(&h);
    for (int32_t query = 0; query < h.length;) {
        const int32_t queries = gsv_tile_height(h.length - query, GSV_MR);

        run_queries(&h, query, queries);
        query += queries;
    }
}
