/*
 * attention: softmax(scale * Q K^T + relative bias) V for one head of one sequence, in float32,
 * with all options of struct gpuserve_op_attention.
 *
 *   pack     K transposed into panels of keys, times scale * log2(e); V into panels of columns
 *   for each tile of up to GSV_MR queries, and the panels of keys that one of them attends to:
 *     scores   tile x panels of K, with the inner loop of the float32 product
 *     softmax  2^(score - max) in place and its sum, over the keys of each query
 *     output   scores x panels of V, divided by the sum
 *
 * The code reads rows of this sequence only, and the order of every sum depends on its length and
 * the options only. The bits are therefore independent of the rest of the batch. Scratch:
 * gsv_cpu_attention_floats().
 */
#include "kernels/cpu/attention/attention.h"

#include <math.h>

GSV_INLINE vf load_upto(const float *p, int32_t n)
{
    return n >= GSV_VL ? vf_load(p) : vf_load_part(p, n > 0 ? n : 0);
}

/* Packs `n_rows` by `columns`, up to GSV_VL each. Constants for most blocks: then the transpose
 * stays in registers. */
GSV_INLINE void pack_block(const float *rows, ptrdiff_t ld, int32_t n_rows, int32_t columns,
                           vf factor, float *to)
{
    vf block[GSV_VL];

#pragma GCC unroll 16
    for (int32_t i = 0; i < GSV_VL; i++)
        block[i] = i < n_rows ? load_upto(rows + i * ld, columns) * factor : vf_set(0.0f);
    vf_transpose(block);
#pragma GCC unroll 16
    for (int32_t i = 0; i < GSV_VL; i++)
        if (i < columns)
            vf_store(to + (size_t)i * GSV_NR, block[i]);
}

static void pack_edge(const float *rows, ptrdiff_t ld, int32_t n_rows, int32_t columns, vf factor,
                      float *to)
{
    pack_block(rows, ld, n_rows, columns, factor, to);
}

/* Up to GSV_VL rows of a panel. */
static void pack_rows(const float *rows, ptrdiff_t ld, int32_t n_rows, int32_t size, vf factor,
                      float *to)
{
    int32_t from = 0;

    for (; n_rows <= 0 && from < size; from++)
        vf_store(to + (size_t)from * GSV_NR, vf_set(0.0f));
    for (; n_rows >= GSV_VL && size - from >= GSV_VL; from += GSV_VL)
        pack_block(rows + from, ld, GSV_VL, GSV_VL, factor, to + (size_t)from * GSV_NR);
    for (; from < size; from += GSV_VL)
        pack_edge(rows + from, ld, n_rows, size - from, factor, to + (size_t)from * GSV_NR);
}

void GSV_VARIANT(gsv_pack_panels)(const float *rows, ptrdiff_t ld, int32_t n_rows, int32_t size,
                                  float factor, float *panels)
{
    const int32_t padded = (n_rows + GSV_NR - 1) / GSV_NR * GSV_NR;

    for (int32_t row = 0; row < padded; row += GSV_VL) {
        const size_t panel = (size_t)(row / GSV_NR) * GSV_NR * (size_t)size;

        pack_rows(rows + row * ld, ld, n_rows - row, size, vf_set(factor),
                  panels + panel + row % GSV_NR);
    }
}

static void pack_values(const struct gsv_attention_head *h)
{
    float *to = h->values;

    for (int32_t from = 0; from < h->size; from += GSV_NR) {
        for (int32_t key = 0; key < h->length; key++) {
            const float *row = h->v + (size_t)key * h->layout.ld + from;

            for (int v = 0; v < GSV_NV; v++)
                vf_store(to + v * GSV_VL, load_upto(row + v * GSV_VL, h->size - from - v * GSV_VL));
            to += GSV_NR;
        }
    }
}

/* Bias, soft cap and mask of the attention scores of one query. Passed by value, so that the fields
 * stay in registers. */
struct score_terms {
    const float *bias; /* at key 0, or NULL */
    float softcap;     /* times log2(e), or 0 */
    int32_t length;
    struct gsv_key_range keys;
};

/* Scores [key, key + GSV_VL) of one query; -infinity outside of its keys, so that their weight is
 * 0. */
GSV_INLINE vf score_of(vf x, int32_t key, struct score_terms t)
{
    if (t.bias)
        x = vf_fma(load_upto(t.bias + key, t.length - key), vf_set(VMATH_LOG2E), x);
    if (t.softcap != 0.0f)
        x = vf_set(t.softcap) * vf_tanh(x * vf_set(1.0f / t.softcap));
    if (key < t.keys.first)
        x = vf_keep(vf_set(-INFINITY), t.keys.first - key, x);
    return key + GSV_VL <= t.keys.end ? x : vf_keep(x, t.keys.end - key, vf_set(-INFINITY));
}

/* Replaces the products [from, end) of one query by 2^(score - max) and returns their sum; `from`
 * is a multiple of GSV_NR, so that a key has the same partial sum for every tile of queries. The
 * first pass stores the scores, unless a constant says that they are cheaper to compute again. */
GSV_INLINE float softmax(float *row, int32_t from, int32_t end, struct score_terms terms, int cheap)
{
    vf largest = vf_set(-INFINITY);
    struct vf_sums sum = vf_no_sums();

    for (int32_t key = from; key < end; key += GSV_VL) {
        const vf x = score_of(vf_load(row + key), key, terms);

        if (!cheap)
            vf_store(row + key, x);
        largest = vf_max(x, largest);
    }
    largest = vf_set(vf_largest(largest));
    for (int32_t block = from; block < end; block += GSV_SUM_LANES) {
        for (int s = 0; s < GSV_NS && block + s * GSV_VL < end; s++) {
            const int32_t key = block + s * GSV_VL;
            const vf x = cheap ? score_of(vf_load(row + key), key, terms) : vf_load(row + key);
            const vf weight = vf_exp2(x - largest);

            vf_store(row + key, weight);
            sum.part[s] = sum.part[s] + weight;
        }
    }
    return vf_total(sum);
}

static float softmax_row(const struct gsv_attention_head *h, float *row, int32_t query,
                         int32_t from, int32_t end)
{
    struct score_terms terms = {
        .softcap = h->op->softcap * VMATH_LOG2E,
        .length = h->length,
        .keys = gsv_keys_of(&h->layout, query, 1),
    };

    if (!h->bias && terms.softcap == 0.0f && terms.keys.first <= from) /* only an end */
        return softmax(row, from, end, (struct score_terms){ .keys.end = terms.keys.end }, 1);
    if (h->bias)
        terms.bias = h->bias - query;
    return softmax(row, from, end, terms, 0);
}

static void store_outputs(const struct gsv_attention_head *h, const float *tile, int32_t query,
                          int32_t queries, int32_t from, const float *sums)
{
    for (int32_t r = 0; r < queries; r++) {
        float *out = h->out + (size_t)(query + r) * h->layout.out_ld + from;
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

static void run_queries(const struct gsv_attention_head *h, int32_t query, int32_t queries)
{
    const gsv_tile_f32_fn product = GSV_VARIANT(gsv_tiles_f32)[queries];
    const size_t key_panel = (size_t)h->size * GSV_NR, value_panel = (size_t)h->length * GSV_NR;
    const struct gsv_key_range keys = gsv_keys_of(&h->layout, query, queries);
    const int32_t first = keys.first / GSV_NR * GSV_NR;
    float *scores = h->scores - first; /* at key 0; the packed keys are before it */
    float tile[GSV_MR * GSV_NR] __attribute__((aligned(64)));
    float sums[GSV_MR];

    for (int32_t key = first; key < keys.end; key += GSV_NR)
        product(h->q + (size_t)query * h->layout.ld, h->layout.ld,
                h->keys + (size_t)(key / GSV_NR) * key_panel, h->size, scores + key, h->score_ld,
                (const char *)h->keys, 0);
    if (h->positions)
        GSV_VARIANT(gsv_positions_add)(*h, scores, query, queries, first, keys.end);
    for (int32_t r = 0; r < queries; r++)
        sums[r] = softmax_row(h, scores + (size_t)r * h->score_ld, query + r, first, keys.end);
    for (int32_t from = 0; from < h->size; from += GSV_NR) {
        const float *values = h->values + (size_t)(from / GSV_NR) * value_panel;

        product(h->scores, h->score_ld, values + (size_t)first * GSV_NR, keys.end - first, tile,
                GSV_NR, (const char *)h->values, 0);
        store_outputs(h, tile, query, queries, from, sums);
    }
}

/* Row stride of the scores: the keys of a tile of queries in whole panels. One more panel for long
 * rows, since rows a power of two apart share the sets of the L1 cache; the scratch has room for
 * GSV_TILE_ROWS rows. */
static size_t score_ld_of(const struct gsv_attention_head *h)
{
    const int32_t span = h->layout.before + h->layout.after + GSV_MR + 2 * GSV_NR;
    const int32_t whole = span / GSV_NR * GSV_NR;
    const int32_t columns = whole < h->padded ? whole : h->padded;

    return (size_t)(columns < 8 * GSV_NR ? columns : columns + GSV_NR);
}

/* Fills the fields up to `positions`. Field by field: an initializer would clear all of them first,
 * which takes longer than a short text. */
static void find_head(struct gsv_attention_head *h, const struct gpuserve_op_attention *op,
                      int32_t sequence, int32_t head)
{
    const float *qkv = (const float *)op->qkv;

    h->op = op;
    h->layout = gsv_head_layout(op, sequence, head);
    h->q = qkv + h->layout.q;
    h->k = qkv + h->layout.k;
    h->v = qkv + h->layout.v;
    h->out = (float *)op->out + h->layout.out;
    h->head = head;
    h->length = h->layout.length;
    h->size = op->head_size;
    h->bias = NULL;
    if (op->relative_bias)
        h->bias = op->relative_bias + (size_t)head * (size_t)(2 * op->bias_span - 1) +
                  (size_t)(op->bias_span - 1);
}

/* Packs K, V and the position rows into the scratch. */
static void pack(struct gsv_attention_head *h, float *scratch)
{
    const float factor = h->op->scale * VMATH_LOG2E;
    const size_t columns = (size_t)((h->size + GSV_NR - 1) / GSV_NR * GSV_NR);

    h->padded = (h->length + GSV_NR - 1) / GSV_NR * GSV_NR;
    h->keys = scratch;
    h->values = h->keys + (size_t)h->padded * (size_t)h->size;
    h->scores = h->values + (size_t)h->length * columns;
    h->score_ld = score_ld_of(h);
    GSV_VARIANT(gsv_pack_panels)
    (h->k, (ptrdiff_t)h->layout.ld, h->length, h->size, factor, h->keys);
    pack_values(h);
    if (h->positions)
        GSV_VARIANT(gsv_positions_start)(*h, h->scores + h->score_ld * GSV_MR);
}

void GSV_VARIANT(gsv_attention)(const struct gpuserve_op_attention *op, int32_t sequence,
                                int32_t head, float *scratch)
{
    struct gsv_positions positions;
    struct gsv_attention_head h;

    find_head(&h, op, sequence, head);
    if (h.length == 0)
        return;
    h.positions = op->position_key || op->position_query ? &positions : NULL;
    pack(&h, scratch);
    for (int32_t query = 0; query < h.length;) {
        const int32_t queries = gsv_tile_height(h.length - query, GSV_MR);

        run_queries(&h, query, queries);
        query += queries;
    }
}
