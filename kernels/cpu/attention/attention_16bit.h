/*
 * attention_16bit.h - one head of attention with operands of 16 bits, for what its parts share:
 *
 *   attention_16bit.c       packing of K and Q, panels of queries
 *   attention_16bit_vec.h   products in vector registers
 *   attention_bf16_amx.h    products in tile registers (AMX)
 *   attention_bf16.h        operands in bfloat16
 *   attention_s16.h         operands in int16
 *
 * A way to compute the products defines
 *
 *   KEY_STEP                           the keys of a panel begin at a multiple of it
 *   pack_values()                      V as the second product reads it
 *   start_products(), end_products()   around the panels of a head
 *   score_panel()                      scores of a range of keys, and the maximum of each query
 *   end_softmax()                      pads the weights for output_panel()
 *   output_panel()                     outputs of a panel
 *
 * A type of operands defines
 *
 *   start_head()                 the steps of a head; false: attention.c computes it in float32
 *   key_words(), query_words()   two vectors of a row, rounded: words of two dimensions
 *   value_words()                two rows of V, rounded: words of two keys
 *   n_words()                    the words of a row of K or Q that are not all zero
 *   dot_sum, dot2()              a sum of products, and its next two
 *   score_of()                   a finished sum of the first product in float32
 *   weights_of_lanes()           scores of a vector of queries to words of the weights of two keys
 *   output_of()                  a finished sum of the second product in float32
 */
#ifndef GSV_CPU_ATTENTION_16BIT_H
#define GSV_CPU_ATTENTION_16BIT_H

#include "kernels/cpu/attention/attention.h"

#include <math.h>

/* A panel has as many vectors of queries as fill the registers with sums; half of them for the last
 * queries of a text. */
#define VECTORS GSV_NV
#define HALF (VECTORS / 2)
#define PANEL (VECTORS * GSV_VL) /* queries */
#define KEY_BLOCK 32             /* keys of the largest block of AMX */

struct attention_16bit_head {
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
    /* int16: what K, Q and V are multiplied by, and the values of finished sums of 1. */
    float key_factor, query_factor, value_factor;
    float score_step, output_step;
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

/* -infinity in the lanes of queries that do not attend to the key; `distance` is the first query
 * minus the key. */
GSV_INLINE vf masked(const struct attention_16bit_head *h, vf x, int32_t distance)
{
    const vi d = vi_lanes() + vi_set(distance);

    return vf_select((d > vi_set(h->layout.before)) | (d < vi_set(-h->layout.after)),
                     vf_set(-INFINITY), x);
}

/* Adds the bias to the scores of one key and masks them; `query` is the first of the vector. */
GSV_INLINE vf finish_score(const struct attention_16bit_head *h, vf x, int32_t query, int32_t key)
{
    if (h->bias)
        x += vf_load(h->bias + query - key);
    if (h->layout.after < h->length)
        x = masked(h, x, query - key);
    return x;
}

/* Finishes the scores of keys from `key` to before `end`, and returns the maximum of each lane. The
 * maxima stay in registers: an array that is indexed by a variable waits for its own stores. */
GSV_INLINE void finish_vectors(const struct attention_16bit_head *h, int32_t query, int32_t key,
                               int32_t end, int vectors, vf largest[VECTORS])
{
    float *at = h->scores + (size_t)key * PANEL;
    const bool changes = h->bias || h->layout.after < h->length;
    vf max[VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        max[v] = largest[v];
    for (int32_t k = key; k < end; k++, at += PANEL) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            vf x = vf_load(at + v * GSV_VL);

            if (changes) {
                x = finish_score(h, x, query + v * GSV_VL, k);
                vf_store(at + v * GSV_VL, x);
            }
            max[v] = vf_max(x, max[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        largest[v] = max[v];
}

static void finish_scores(const struct attention_16bit_head *h, int32_t query, int32_t key,
                          int32_t end, int vectors, vf largest[VECTORS])
{
    if (vectors == VECTORS)
        finish_vectors(h, query, key, end, VECTORS, largest);
    else
        finish_vectors(h, query, key, end, HALF, largest);
}

#endif
