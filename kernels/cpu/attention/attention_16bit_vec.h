/*
 * attention_16bit_vec.h - the products of attention by vdpbf16ps, bfdot, vpdpwssd or vpmaddwd, in
 * tiles of up to GSV_MR keys or dimensions by a panel of queries. Included by attention_16bit.c.
 */
#ifndef GSV_CPU_ATTENTION_16BIT_VEC_H
#define GSV_CPU_ATTENTION_16BIT_VEC_H

#define KEY_STEP 2 /* keys of a word */

GSV_INLINE dot_sum no_sum(void)
{
    return (dot_sum){ 0 };
}

static void pack_values(const struct attention_16bit_head *h)
{
    for (int32_t key = 0; key < h->length; key += 2) {
        const float *even = h->v + (size_t)key * h->layout.ld, *odd = even + h->layout.ld;
        uint32_t *to = h->values + (size_t)(key / 2) * h->value_ld;

        for (int32_t from = 0; from < h->size; from += GSV_VL) {
            const int32_t left = h->size - from;
            const vf y = key + 1 < h->length ? load_upto(odd + from, left) : vf_set(0.0f);

            store_words(to + from, value_words(h, load_upto(even + from, left), y));
        }
    }
}

/* Scores of `rows` keys for a panel of queries. */
GSV_INLINE void score_tile(const struct attention_16bit_head *h, int rows, int vectors, int32_t key)
{
    const int32_t depth = n_words(h->size);
    const uint32_t *q = h->queries;
    struct gsv_tile_rows k;
    float *out = h->scores + (size_t)key * PANEL;
    dot_sum sums[GSV_MR][VECTORS];
    vf scores[GSV_MR][VECTORS];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = no_sum();
    gsv_rows_start(&k, rows, h->keys + (size_t)key * h->key_ld, h->key_ld * sizeof(*h->keys));
    for (int32_t i = 0; i < depth; i++, q += PANEL) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vi words = vi_broadcast(gsv_row(&k, r));

#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] = dot2(sums[r][v], words, load_words(q + v * GSV_VL));
        }
        gsv_rows_advance(&k, rows, sizeof(*h->keys));
    }
    /* All loads before the stores: the step stays in a register. */
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            scores[r][v] = score_of(h, sums[r][v]);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            vf_store(out + r * PANEL + v * GSV_VL, scores[r][v]);
}

/* `rows` dimensions of the outputs for a panel of queries. */
GSV_INLINE void output_tile(const struct attention_16bit_head *h, int rows, int vectors,
                            const struct gsv_key_range *keys, int32_t from,
                            const vf inverse[VECTORS])
{
    const uint32_t *x = h->values + (size_t)(keys->first / 2) * h->value_ld + from;
    const float *weights = h->scores + (size_t)(keys->first / 2) * PANEL;
    float *out = h->outputs + (size_t)from * PANEL;
    dot_sum sums[GSV_MR][VECTORS];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            sums[r][v] = no_sum();
    for (int32_t key = keys->first; key < keys->end; key += 2, x += h->value_ld, weights += PANEL) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[r][v] =
                    dot2(sums[r][v], vi_broadcast(x + r), (vi)vf_load(weights + v * GSV_VL));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++)
            vf_store(out + r * PANEL + v * GSV_VL, output_of(sums[r][v], inverse[v]));
}

typedef void (*score_fn)(const struct attention_16bit_head *h, int32_t key);
typedef void (*output_fn)(const struct attention_16bit_head *h, const struct gsv_key_range *keys,
                          int32_t from, const vf inverse[VECTORS]);

#define TILES(rows)                                                                  \
    static void score_half_##rows(const struct attention_16bit_head *h, int32_t key) \
    {                                                                                \
        score_tile(h, rows, HALF, key);                                              \
    }                                                                                \
    static void score_full_##rows(const struct attention_16bit_head *h, int32_t key) \
    {                                                                                \
        score_tile(h, rows, VECTORS, key);                                           \
    }                                                                                \
    static void output_half_##rows(const struct attention_16bit_head *h,             \
                                   const struct gsv_key_range *keys, int32_t from,   \
                                   const vf *inverse)                                \
    {                                                                                \
        output_tile(h, rows, HALF, keys, from, inverse);                             \
    }                                                                                \
    static void output_full_##rows(const struct attention_16bit_head *h,             \
                                   const struct gsv_key_range *keys, int32_t from,   \
                                   const vf *inverse)                                \
    {                                                                                \
        output_tile(h, rows, VECTORS, keys, from, inverse);                          \
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
static void score_panel(const struct attention_16bit_head *h, const struct gsv_key_range *keys,
                        int32_t query, int vectors, vf largest[VECTORS])
{
    for (int32_t key = keys->first; key < keys->end;) {
        const int32_t rows = gsv_tile_height(keys->end - key, GSV_MR);

        score_tiles[vectors / HALF - 1][rows](h, key);
        finish_scores(h, query, key, key + rows, vectors, largest);
        key += rows;
    }
}

GSV_INLINE void start_products(void)
{
}

GSV_INLINE void end_products(void)
{
}

GSV_INLINE void end_softmax(const struct attention_16bit_head *h, const struct gsv_key_range *keys)
{
    (void)h;
    (void)keys;
}

static void output_panel(const struct attention_16bit_head *h, const struct gsv_key_range *keys,
                         int vectors, const vf inverse[VECTORS])
{
    for (int32_t from = 0; from < h->size;) {
        const int32_t rows = gsv_tile_height(h->size - from, GSV_MR);

        output_tiles[vectors / HALF - 1][rows](h, keys, from, inverse);
        from += rows;
    }
}

#endif
