/*
 * attention_bf16.h - one head of attention in bfloat16, and what both ways to compute its products
 * share: vector registers (attention_bf16_vec.h) and tile registers (attention_bf16_amx.h).
 *
 * Each of the two defines
 *
 *   KEY_STEP                           the keys of a panel begin at a multiple of it
 *   pack_values()                      V as the second product reads it
 *   start_products(), end_products()   around the panels of a head
 *   score_panel()                      scores of a range of keys, and the maximum of each query
 *   end_softmax()                      pads the weights for output_panel()
 *   output_panel()                     outputs of a panel
 */
#ifndef GSV_CPU_ATTENTION_BF16_H
#define GSV_CPU_ATTENTION_BF16_H

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/runtime/bf16.h"

#include <math.h>

/* A panel has as many vectors of queries as fill the registers with sums; half of them for the last
 * queries of a text. */
#define VECTORS GSV_NV
#define HALF (VECTORS / 2)
#define PANEL (VECTORS * GSV_VL) /* queries */
#define KEY_BLOCK 32             /* keys of the largest block of AMX */

struct attention_bf16_head {
    const struct gpuserve_op_attention *op;
    struct gsv_head_layout layout;
    const float *q, *k, *v; /* first row of this head; row stride layout.ld */
    float *out;             /* row stride layout.out_ld */
    int32_t length, size;
    size_t key_ld;     /* words of a key: size rounded up to two vectors, halved */
    size_t value_ld;   /* dimensions: size rounded up to a vector */
    size_t pairs;      /* of keys: length rounded up to 32, halved */
    uint32_t *keys;    /* [2 * pairs][key_ld] */
    uint32_t *values;  /* two keys of a dimension: [pairs][value_ld]; AMX: [value_ld][pairs] */
    uint32_t *queries; /* [key_ld][PANEL], two dimensions of a query */
    float *scores;     /* [2 * pairs][PANEL], then words of two keys: [pairs][PANEL] */
    float *outputs;    /* [value_ld][PANEL] */
    float *bias;       /* of this head times log2(e), at query - key = 0, or NULL */
};

GSV_INLINE vf load_upto(const float *p, int32_t n)
{
    return n >= GSV_VL ? vf_load(p) : vf_load_part(p, n > 0 ? n : 0);
}

GSV_INLINE vi load_words(const uint32_t *p)
{
    return *(const vi_any *)(const void *)p;
}

GSV_INLINE void store_words(void *p, vi v)
{
    *(vi_any *)p = v;
}

/* 2 * GSV_VL dimensions of one row from `from` on, zeros past the last. */
GSV_INLINE vi row_words(const struct attention_bf16_head *h, const float *row, int32_t from,
                        float factor)
{
    const vf low = load_upto(row + from, h->size - from);
    const vf high = h->size - from > GSV_VL
                        ? load_upto(row + from + GSV_VL, h->size - from - GSV_VL)
                        : vf_set(0.0f);

    return vh_two(low * vf_set(factor), high * vf_set(factor));
}

/* -infinity in the lanes of queries that do not attend to the key; `distance` is the first query
 * minus the key. */
GSV_INLINE vf masked(const struct attention_bf16_head *h, vf x, int32_t distance)
{
    const vi d = vi_lanes() + vi_set(distance);

    return vf_select((d > vi_set(h->layout.before)) | (d < vi_set(-h->layout.after)),
                     vf_set(-INFINITY), x);
}

/* Adds the bias to the scores of one key and masks them; `query` is the first of the vector. */
GSV_INLINE vf finish_score(const struct attention_bf16_head *h, vf x, int32_t query, int32_t key)
{
    if (h->bias)
        x += vf_load(h->bias + query - key);
    if (h->layout.after < h->length)
        x = masked(h, x, query - key);
    return x;
}

#endif
