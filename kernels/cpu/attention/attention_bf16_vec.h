/*
 * attention_bf16_vec.h - the products of attention in bfloat16 by vdpbf16ps or bfdot, in tiles of
 * up to GSV_MR keys or dimensions by a panel of queries. Included by attention_bf16.c.
 */
#ifndef GSV_CPU_ATTENTION_BF16_VEC_H
#define GSV_CPU_ATTENTION_BF16_VEC_H

#include "kernels/cpu/attention/attention_bf16.h"

#define KEY_STEP 2 /* keys of a word */

GSV_INLINE vf dot2(vf sum, uint32_t x, vi y)
{
    return vh_dot2(sum, vi_set((int32_t)x), y);
}

static void pack_values(const struct attention_bf16_head *h)
{
    for (int32_t key = 0; key < h->length; key += 2) {
        const float *even = h->v + (size_t)key * h->layout.ld, *odd = even + h->layout.ld;
        uint32_t *to = h->values + (size_t)(key / 2) * h->value_ld;

        for (int32_t from = 0; from < h->size; from += GSV_VL) {
            const int32_t left = h->size - from;
            const vf y = key + 1 < h->length ? load_upto(odd + from, left) : vf_set(0.0f);

            store_words(to + from, vh_pairs(load_upto(even + from, left), y));
        }
    }
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
            sums[r][v] = finish_score(h, sums[r][v], query + v * GSV_VL, key + r);
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
    static void score_half_##rows(const struct attention_bf16_head *h, int32_t query, int32_t key, \
                                  vf *largest)                                                     \
    {                                                                                              \
        score_tile(h, rows, HALF, query, key, largest);                                            \
    }                                                                                              \
    static void score_full_##rows(const struct attention_bf16_head *h, int32_t query, int32_t key, \
                                  vf *largest)                                                     \
    {                                                                                              \
        score_tile(h, rows, VECTORS, query, key, largest);                                         \
    }                                                                                              \
    static void output_half_##rows(const struct attention_bf16_head *h,                            \
                                   const struct gsv_key_range *keys, int32_t from,                 \
                                   const vf *inverse)                                              \
    {                                                                                              \
        output_tile(h, rows, HALF, keys, from, inverse);                                           \
    }                                                                                              \
    static void output_full_##rows(const struct attention_bf16_head *h,                            \
                                   const struct gsv_key_range *keys, int32_t from,                 \
                                   const vf *inverse)                                              \
    {                                                                                              \
        output_tile(h, rows, VECTORS, keys, from, inverse);                                        \
    }
#define SCORE_HALF(rows) score_half_##rows,
#define SCORE_FULL(rows) score_full_##rows,
#define OUTPUT_HALF(rows) output_half_##rows,
#define OUTPUT_FULL(rows) output_full_##rows,

GSV_HEIGHTS(TILES)

/* By vectors / HALF - 1 and rows. */
static const score_fn score_tiles[2][GSV_MR + 1] = { { NULL, GSV_HEIGHTS(SCORE_HALF) },
                                                     { NULL, GSV_HEIGHTS(SCORE_FULL) } };
static const output_fn output_tiles[2][GSV_MR + 1] = { { NULL, GSV_HEIGHTS(OUTPUT_HALF) },
                                                       { NULL, GSV_HEIGHTS(OUTPUT_FULL) } };

/* The scores of a panel, and the maximum of each lane. */
static void score_panel(const struct attention_bf16_head *h, const struct gsv_key_range *keys,
                        int32_t query, int vectors, vf largest[VECTORS])
{
    for (int32_t key = keys->first; key < keys->end;) {
        const int32_t rows = gsv_tile_height(keys->end - key, GSV_MR);

        score_tiles[vectors / HALF - 1][rows](h, query, key, largest);
        key += rows;
    }
}

GSV_INLINE void start_products(void)
{
}

GSV_INLINE void end_products(void)
{
}

GSV_INLINE void end_softmax(const struct attention_bf16_head *h, const struct gsv_key_range *keys)
{
    (void)h;
    (void)keys;
}

static void output_panel(const struct attention_bf16_head *h, const struct gsv_key_range *keys,
                         int vectors, const vf inverse[VECTORS])
{
    for (int32_t from = 0; from < h->size;) {
        const int32_t rows = gsv_tile_height(h->size - from, GSV_MR);

        output_tiles[vectors / HALF - 1][rows](h, keys, from, inverse);
        from += rows;
    }
}

#endif
