/*
 * attention_bf16_amx.h - the products of attention in bfloat16 in tile registers (AMX). Included by
 * attention_16bit.c.
 *
 *   scores   [keys][queries]         K  [key][dimensions]      x  Q transposed
 *   outputs  [dimensions][queries]   V transposed, [dimension][keys]  x  weights [keys][queries]
 *
 * All tiles have 16 rows, and are configured once per head: the arrays of a head are padded to
 * whole tiles, V and the weights with zeros; scores of rows behind the last key are not read. A
 * step covers 32 dimensions or 32 keys, so the keys of a panel begin at a multiple of 32; keys
 * before its window are masked.
 */
#ifndef GSV_CPU_ATTENTION_BF16_AMX_H
#define GSV_CPU_ATTENTION_BF16_AMX_H

#include "kernels/cpu/attention/attention_bf16.h"
#include "kernels/cpu/runtime/tile_product.h"

#define KEY_STEP 32
#define WORDS GSV_TILE_WIDTH /* of a row of a tile */

GSV_INLINE void start_products(void)
{
    gsv_tile_configure(GSV_TILE_HEIGHT, GSV_TILE_HEIGHT);
}

GSV_INLINE void end_products(void)
{
    GSV_TILES_RELEASE();
}

GSV_INLINE void product(int rows, int columns, struct gsv_tile_operands at, int32_t steps,
                        float *to)
{
    const size_t ld = PANEL * sizeof(float);

    gsv_tile_zero(rows, columns);
    gsv_tile_steps(GSV_TILE_BF16, rows, columns, &at, steps);
    gsv_tile_store(rows, columns, to, ld, GSV_TILE_ROW_BYTES, GSV_TILE_HEIGHT * ld);
}

/* `rows` tiles of rows of A by a panel of `vectors` vectors: to[row][query]. Strides in words. */
static void multiply(const uint32_t *a, size_t a_ld, const uint32_t *b, int rows, int vectors,
                     int32_t steps, float *to)
{
    const uint32_t *lower = a + GSV_TILE_HEIGHT * a_ld, *right = b + WORDS;
    const struct gsv_tile_operands at = { { (const char *)a, (const char *)lower },
                                          { (const char *)b, (const char *)right },
                                          a_ld * sizeof(*a),
                                          PANEL * sizeof(*b) };

    if (rows > 1 && vectors > 1)
        product(2, 2, at, steps, to);
    else if (rows > 1)
        product(2, 1, at, steps, to);
    else if (vectors > 1)
        product(1, 2, at, steps, to);
    else
        product(1, 1, at, steps, to);
}

/* 16 pairs of keys from `key` on, transposed: zeros past the last key. */
static void pack_value_block(const struct attention_16bit_head *h, int32_t key, int32_t from)
{
    uint32_t *to = h->values + (size_t)from * h->pairs + (size_t)key / 2;
    const int32_t left = h->size - from;
    vf words[GSV_VL];

    for (int32_t i = 0; i < GSV_VL; i++) {
        const float *even = h->v + (size_t)(key + 2 * i) * h->layout.ld + from;
        const int32_t keys = h->length - key - 2 * i;
        const vf x = keys > 0 ? load_upto(even, left) : vf_set(0.0f);
        const vf y = keys > 1 ? load_upto(even + h->layout.ld, left) : vf_set(0.0f);

        words[i] = (vf)value_words(h, x, y);
    }
    vf_transpose(words);
    for (int i = 0; i < GSV_VL; i++)
        store_words(to + (size_t)i * h->pairs, (vi)words[i]);
}

static void pack_values(const struct attention_16bit_head *h)
{
    for (int32_t key = 0; key < h->length; key += 2 * GSV_VL)
        for (int32_t from = 0; from < h->size; from += GSV_VL)
            pack_value_block(h, key, from);
}

/* The scores of a panel, and the maximum of each lane. */
static void score_panel(const struct attention_16bit_head *h, const struct gsv_key_range *keys,
                        int32_t query, int vectors, vf largest[VECTORS])
{
    const int32_t steps = (int32_t)(h->key_ld / WORDS);

    for (int32_t key = keys->first; key < keys->end; key += KEY_BLOCK) {
        const int32_t end = keys->end - key < KEY_BLOCK ? keys->end : key + KEY_BLOCK;

        multiply(h->keys + (size_t)key * h->key_ld, h->key_ld, h->queries,
                 end - key > GSV_TILE_HEIGHT ? 2 : 1, vectors, steps,
                 h->scores + (size_t)key * PANEL);
        finish_scores(h, query, key, end, vectors, largest);
    }
}

/* Zero weights behind the last pair of keys, up to a whole step. */
static void end_softmax(const struct attention_16bit_head *h, const struct gsv_key_range *keys)
{
    const int32_t used = (keys->end + 1) / 2, end = (used + WORDS - 1) / WORDS * WORDS;

    memset(h->scores + (size_t)used * PANEL, 0, (size_t)(end - used) * PANEL * sizeof(float));
}

static void output_panel(const struct attention_16bit_head *h, const struct gsv_key_range *keys,
                         int vectors, const vf inverse[VECTORS])
{
    const int32_t steps = (keys->end - keys->first + KEY_STEP - 1) / KEY_STEP;
    const int32_t first = keys->first / 2, dimensions = (int32_t)h->value_ld;
    const uint32_t *weights = (const uint32_t *)(const void *)(h->scores + (size_t)first * PANEL);

    for (int32_t from = 0; from < dimensions; from += 2 * GSV_TILE_HEIGHT)
        multiply(h->values + (size_t)from * h->pairs + first, h->pairs, weights,
                 dimensions - from > GSV_TILE_HEIGHT ? 2 : 1, vectors, steps,
                 h->outputs + (size_t)from * PANEL);
    for (int32_t i = 0; i < dimensions; i++) {
        float *out = h->outputs + (size_t)i * PANEL;

        for (int v = 0; v < vectors; v++)
            vf_store(out + v * GSV_VL, output_of(vf_load(out + v * GSV_VL), inverse[v]));
    }
}

#endif
