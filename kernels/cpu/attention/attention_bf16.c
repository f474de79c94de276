/*
 * attention_bf16: attention with both products in bfloat16 and sums in float32, for streams whose
 * matrix products are rounded too (int8, bfloat16). Requires the instruction vdpbf16ps.
 *
 *   pack    K, and V in pairs of keys
 *   for each panel of up to 32 queries, and the keys that one of them attends to:
 *     pack    Q transposed, times scale * log2(e): one query per lane from here on
 *     scores  tile of keys x panel of queries, and the maximum of each lane
 *     softmax 2^(score - max) in pairs of keys, and its sum in each lane
 *     output  tile of dimensions x panel, divided by the sum and transposed back
 *
 * With one query per lane no sum crosses a vector, and keys need no padding. The bits of a query
 * depend on its own text alone: sums run over pairs of keys in order. A 32-bit word holds two
 * bfloat16. Scratch: gsv_cpu_attention_floats(). Without softcap and position rows, which
 * attention.c has.
 */
#include "kernels/cpu/attention/attention.h"

#if defined(GSV_HAS_BF16)

#include <math.h>

#define PANEL 32 /* queries */
#define VECTORS (PANEL / GSV_VL)

struct attention_bf16_head {
    const struct gpuserve_op_attention *op;
    struct gsv_head_layout layout;
    const float *q, *k, *v; /* first row of this head; row stride layout.ld */
    float *out;             /* row stride layout.out_ld */
    int32_t length, size;
    size_t key_ld;     /* words of a key: size rounded up to 32, halved */
    size_t value_ld;   /* words of a pair of values: size rounded up to 16 */
    uint32_t *keys;    /* [length][key_ld] */
    uint32_t *values;  /* [length / 2 up][value_ld], two keys of a dimension */
    uint32_t *queries; /* [key_ld][PANEL], two dimensions of a query */
    float *scores;     /* [length][PANEL], then words of two keys: [length / 2 up][PANEL] */
    float *outputs;    /* [value_ld][PANEL] */
    float *bias;       /* of this head times log2(e), at query - key = 0, or NULL */
};

GSV_INLINE vf load_upto(const float *p, int32_t n)
{
    return n >= GSV_VL ? vf_load(p) : vf_load_part(p, n > 0 ? n : 0);
}

GSV_INLINE vi two_bf16(vf low, vf high)
{
    return (vi)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Lane i: (even[i], odd[i]). */
GSV_INLINE vi interleaved_bf16(vf even, vf odd)
{
    const vi order = (vi_lanes() + vi_set(16)) << 16 | vi_lanes();

    return (vi)_mm512_permutexvar_epi16((__m512i)order, (__m512i)two_bf16(even, odd));
}

GSV_INLINE vf dot2(vf sum, uint32_t x, vi y)
{
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)vi_set((int32_t)x), (__m512bh)y);
}

GSV_INLINE vi load_words(const uint32_t *p)
{
    return *(const vi_any *)(const void *)p;
}

GSV_INLINE void store_words(void *p, vi v)
{
    *(vi_any *)p = v;
}

/* 32 dimensions of one row from `from` on, zeros past the last. */
GSV_INLINE vi row_words(const struct attention_bf16_head *h, const float *row, int32_t from,
                        float factor)
{
    const vf low = load_upto(row + from, h->size - from);
    const vf high = h->size - from > GSV_VL
                        ? load_upto(row + from + GSV_VL, h->size - from - GSV_VL)
                        : vf_set(0.0f);

    return two_bf16(low * vf_set(factor), high * vf_set(factor));
}

static void pack_keys(const struct attention_bf16_head *h)
{
    for (int32_t key = 0; key < h->length; key++)
        for (int32_t from = 0; from < h->size; from += 2 * GSV_VL)
            store_words(h->keys + (size_t)key * h->key_ld + from / 2,
                        row_words(h, h->k + (size_t)key * h->layout.ld, from, 1.0f));
}

static void pack_values(const struct attention_bf16_head *h)
{
    for (int32_t key = 0; key < h->length; key += 2) {
        const float *even = h->v + (size_t)key * h->layout.ld, *odd = even + h->layout.ld;
        uint32_t *to = h->values + (size_t)(key / 2) * h->value_ld;

        for (int32_t from = 0; from < h->size; from += GSV_VL) {
            const int32_t left = h->size - from;
            const vf y = key + 1 < h->length ? load_upto(odd + from, left) : vf_set(0.0f);

            store_words(to + from, interleaved_bf16(load_upto(even + from, left), y));
        }
    }
}

/* Lanes past the last query are zero. */
static void pack_queries(const struct attention_bf16_head *h, int32_t query, int vectors)
{
    const float factor = h->op->scale * VMATH_LOG2E;

    for (int v = 0; v < vectors; v++) {
        for (int32_t from = 0; from < h->size; from += 2 * GSV_VL) {
            uint32_t *to = h->queries + (size_t)(from / 2) * PANEL + v * GSV_VL;
            vf block[GSV_VL];

            for (int32_t i = 0; i < GSV_VL; i++) {
                const int32_t row = query + v * GSV_VL + i;

                block[i] = row < h->length
                               ? (vf)row_words(h, h->q + (size_t)row * h->layout.ld, from, factor)
                               : vf_set(0.0f);
            }
            vf_transpose(block);
            for (int i = 0; i < GSV_VL; i++)
                store_words(to + (size_t)i * PANEL, (vi)block[i]);
        }
    }
}

/* The bias indexed by query - key, from -(length - 1) to the end of the last panel. */
static void reverse_bias(struct attention_bf16_head *h, const float *bias, float *to)
{
    const int32_t end = (h->length + PANEL - 1) / PANEL * PANEL;

    h->bias = to + h->length - 1;
    for (int32_t i = 1 - h->length; i < end; i++)
        h->bias[i] = i < h->length ? bias[-i] * VMATH_LOG2E : 0.0f;
}

/* -infinity in the lanes of queries that do not attend to the key; `distance` is the first query
 * minus the key. */
GSV_INLINE vf masked(const struct attention_bf16_head *h, vf x, int32_t distance)
{
    const vi d = vi_lanes() + vi_set(distance);

    return vf_select((d > vi_set(h->layout.before)) | (d < vi_set(-h->layout.after)),
                     vf_set(-INFINITY), x);
}

/* Scores of `rows` keys for a panel of queries; `query` is the panel's first. */
GSV_INLINE void score_tile(const struct attention_bf16_head *h, int rows, int vectors,
                           int32_t query, int32_t key, vf largest[VECTORS])
{
    const int32_t depth = (h->size + 1) / 2;
    const uint32_t *k = h->keys + (size_t)key * h->key_ld, *q = h->queries;
    float *out = h->scores + (size_t)key * PANEL;
    vf sums[GSV_MR][VECTORS];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = vf_set(0.0f);
    for (int32_t i = 0; i < depth; i++, q += PANEL) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] =
                    dot2(sums[r][v], k[(size_t)r * h->key_ld + i], load_words(q + v * GSV_VL));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++) {
            if (h->bias)
                sums[r][v] += vf_load(h->bias + query + v * GSV_VL - key - r);
            if (h->layout.after < h->length)
                sums[r][v] = masked(h, sums[r][v], query + v * GSV_VL - key - r);
            vf_store(out + r * PANEL + v * GSV_VL, sums[r][v]);
            largest[v] = vf_max(sums[r][v], largest[v]);
        }
    }
}

/* `rows` dimensions of the outputs for a panel of queries. */
GSV_INLINE void output_tile(const struct attention_bf16_head *h, int rows, int vectors,
                            const struct gsv_key_range *keys, int32_t from,
                            const vf inverse[VECTORS])
{
    const uint32_t *x = h->values + (size_t)(keys->first / 2) * h->value_ld + from;
    const float *weights = h->scores + (size_t)(keys->first / 2) * PANEL;
    float *out = h->outputs + (size_t)from * PANEL;
    vf sums[GSV_MR][VECTORS];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = vf_set(0.0f);
    for (int32_t key = keys->first; key < keys->end; key += 2, x += h->value_ld, weights += PANEL) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] = dot2(sums[r][v], x[r], (vi)vf_load(weights + v * GSV_VL));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            vf_store(out + r * PANEL + v * GSV_VL, sums[r][v] * inverse[v]);
}

typedef void (*score_fn)(const struct attention_bf16_head *h, int32_t query, int32_t key,
                         vf largest[VECTORS]);
typedef void (*output_fn)(const struct attention_bf16_head *h, const struct gsv_key_range *keys,
                          int32_t from, const vf inverse[VECTORS]);

#define TILES(rows)                                                                                \
    static void score_1_##rows(const struct attention_bf16_head *h, int32_t query, int32_t key,    \
                               vf *largest)                                                        \
    {                                                                                              \
        score_tile(h, rows, 1, query, key, largest);                                               \
    }                                                                                              \
    static void score_2_##rows(const struct attention_bf16_head *h, int32_t query, int32_t key,    \
                               vf *largest)                                                        \
    {                                                                                              \
        score_tile(h, rows, 2, query, key, largest);                                               \
    }                                                                                              \
    static void output_1_##rows(const struct attention_bf16_head *h,                               \
                                const struct gsv_key_range *keys, int32_t from, const vf *inverse) \
    {                                                                                              \
        output_tile(h, rows, 1, keys, from, inverse);                                              \
    }                                                                                              \
    static void output_2_##rows(const struct attention_bf16_head *h,                               \
                                const struct gsv_key_range *keys, int32_t from, const vf *inverse) \
    {                                                                                              \
        output_tile(h, rows, 2, keys, from, inverse);                                              \
    }
#define SCORE_1(rows) score_1_##rows,
#define SCORE_2(rows) score_2_##rows,
#define OUTPUT_1(rows) output_1_##rows,
#define OUTPUT_2(rows) output_2_##rows,

GSV_HEIGHTS(TILES)

static const score_fn score_tiles[VECTORS][GSV_MR + 1] = { { NULL, GSV_HEIGHTS(SCORE_1) },
                                                           { NULL, GSV_HEIGHTS(SCORE_2) } };
static const output_fn output_tiles[VECTORS][GSV_MR + 1] = { { NULL, GSV_HEIGHTS(OUTPUT_1) },
                                                             { NULL, GSV_HEIGHTS(OUTPUT_2) } };

/* Replaces scores by weights in place, a pair of keys per word, and returns their sum. */
GSV_INLINE vf softmax_lanes(float *scores, const struct gsv_key_range *keys, vf largest)
{
    vf sum = vf_set(0.0f);

    for (int32_t key = keys->first; key < keys->end; key += 2) {
        const float *at = scores + (size_t)key * PANEL;
        const vf even = vf_exp2_bf16(vf_load(at) - largest);
        vf odd = vf_set(0.0f);

        if (key + 1 < keys->end)
            odd = vf_exp2_bf16(vf_load(at + PANEL) - largest);
        sum = sum + even + odd;
        store_words(scores + (size_t)(key / 2) * PANEL, interleaved_bf16(even, odd));
    }
    return sum;
}

static void store_outputs(const struct attention_bf16_head *h, int32_t query, int vectors)
{
    for (int v = 0; v < vectors; v++) {
        const int32_t first = query + v * GSV_VL;
        const int32_t rows = h->length - first < GSV_VL ? h->length - first : GSV_VL;

        for (int32_t from = 0; from < h->size; from += GSV_VL) {
            const int32_t left = h->size - from;
            vf block[GSV_VL];

            for (int i = 0; i < GSV_VL; i++)
                block[i] = vf_load(h->outputs + (size_t)(from + i) * PANEL + v * GSV_VL);
            vf_transpose(block);
            for (int32_t i = 0; i < rows; i++) {
                float *out = h->out + (size_t)(first + i) * h->layout.out_ld + from;

                if (left >= GSV_VL)
                    vf_store(out, block[i]);
                else
                    vf_store_part(out, block[i], left);
            }
        }
    }
}

static void run_panel(const struct attention_bf16_head *h, int32_t query, int vectors)
{
    struct gsv_key_range keys = gsv_keys_of(&h->layout, query, PANEL);
    vf largest[VECTORS], inverse[VECTORS];

    keys.first = keys.first / 2 * 2; /* a pair of keys per word */
    pack_queries(h, query, vectors);
    for (int v = 0; v < VECTORS; v++)
        largest[v] = vf_set(-INFINITY);
    for (int32_t key = keys.first; key < keys.end;) {
        const int32_t rows = gsv_tile_height(keys.end - key, GSV_MR);

        score_tiles[vectors - 1][rows](h, query, key, largest);
        key += rows;
    }
    for (int v = 0; v < vectors; v++)
        inverse[v] = vf_set(1.0f) / softmax_lanes(h->scores + v * GSV_VL, &keys, largest[v]);
    for (int32_t from = 0; from < h->size;) {
        const int32_t rows = gsv_tile_height(h->size - from, GSV_MR);

        output_tiles[vectors - 1][rows](h, &keys, from, inverse);
        from += rows;
    }
    store_outputs(h, query, vectors);
}

/* Divides the scratch among the arrays of a head. */
static void lay_out(struct attention_bf16_head *h, float *scratch)
{
    const size_t length = (size_t)h->length, pairs = (length + 1) / 2;

    h->key_ld = ((size_t)h->size + PANEL - 1) / PANEL * (PANEL / 2);
    h->value_ld = ((size_t)h->size + GSV_VL - 1) / GSV_VL * GSV_VL;
    h->scores = scratch;
    h->outputs = h->scores + 2 * pairs * PANEL;
    h->queries = (uint32_t *)(void *)(h->outputs + h->value_ld * PANEL);
    h->values = h->queries + h->key_ld * PANEL;
    h->keys = h->values + pairs * h->value_ld;
}

void GSV_VARIANT(gsv_attention_bf16)(const struct gpuserve_op_attention *op, int32_t sequence,
                                     int32_t head, float *scratch)
{
    const struct gsv_head_layout layout = gsv_head_layout(op, sequence, head);
    const float *qkv = (const float *)op->qkv;
    struct attention_bf16_head h = {
        .op = op,
        .layout = layout,
        .q = qkv + layout.q,
        .k = qkv + layout.k,
        .v = qkv + layout.v,
        .out = (float *)op->out + layout.out,
        .length = layout.length,
        .size = op->head_size,
    };

    lay_out(&h, scratch);
    if (op->relative_bias)
        reverse_bias(&h,
                     op->relative_bias + (size_t)head * (size_t)(2 * op->bias_span - 1) +
                         (size_t)(op->bias_span - 1),
                     (float *)(void *)(h.keys + (size_t)h.length * h.key_ld));
    pack_keys(&h);
    pack_values(&h);
    for (int32_t query = 0; query < h.length; query += PANEL)
        run_panel(&h, query, h.length - query > GSV_VL ? 2 : 1);
}
#endif
