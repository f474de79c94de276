/*
 * attention.h - where a head of a sequence is, for both attention functions; and the head in
 * float32, shared by attention.c and positions.c.
 */
#ifndef GSV_CPU_ATTENTION_H
#define GSV_CPU_ATTENTION_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vmath.h"

#include <stdbool.h>

/* One head of one sequence: offsets in qkv and out, in floats, and the keys of a query. */
struct gsv_head_layout {
    size_t q, k, v, out; /* first row of this head */
    size_t ld, out_ld;   /* row strides */
    int32_t length;
    int32_t n_keys;        /* the first ones of the sequence; at most length */
    int32_t before, after; /* a query attends to the keys query - before .. query + after */
};

GSV_INLINE struct gsv_head_layout gsv_head_layout(const struct gpuserve_op_attention *op,
                                                  int32_t sequence, int32_t head)
{
    const size_t size = (size_t)op->head_size, heads = (size_t)op->n_heads;
    const bool grouped = op->n_kv_heads > 0 && op->n_kv_heads < op->n_heads;
    const size_t kv = grouped ? (size_t)op->n_kv_heads : heads;
    const int32_t kv_head = grouped ? head / (op->n_heads / op->n_kv_heads) : head;
    const size_t row = (size_t)op->batch->cu_seqlens[sequence];
    const int32_t length = op->batch->cu_seqlens[sequence + 1] - op->batch->cu_seqlens[sequence];
    struct gsv_head_layout l = { .ld = (heads + 2 * kv) * size, .out_ld = heads * size };

    l.q = row * l.ld + (size_t)head * size;
    l.k = row * l.ld + (heads + (size_t)kv_head) * size;
    l.v = l.k + kv * size;
    l.out = row * l.out_ld + (size_t)head * size;
    l.length = length;
    l.n_keys = op->batch->key_counts ? op->batch->key_counts[sequence] : length;
    l.before = op->window > 0 && op->window < length ? op->window : length;
    l.after = op->causal ? 0 : l.before;
    return l;
}

/* The keys [first, end) that one of `queries` queries attends to. */
struct gsv_key_range {
    int32_t first, end;
};

GSV_INLINE struct gsv_key_range gsv_keys_of(const struct gsv_head_layout *l, int32_t query,
                                            int32_t queries)
{
    const int32_t first = query - l->before, left = l->n_keys - query - queries;

    return (struct gsv_key_range){ first > 0 ? first : 0,
                                   left < l->after ? l->n_keys : query + queries + l->after };
}

/* A table over the distances 1 - length to length - 1: the column of a distance, and how many of
 * the next columns follow it without a gap, so that a vector of them is contiguous. */
struct gsv_distance_table {
    int32_t *column, *run; /* [2 * length - 1] */
};

/* Products with the position rows in use (disentangled attention). */
struct gsv_positions {
    int32_t first, rows;                /* rows in use: first .. first + rows - 1 */
    size_t ld;                          /* rows rounded up to a whole panel */
    struct gsv_distance_table by_key;   /* key - query -> column of of_queries */
    struct gsv_distance_table by_query; /* query - key -> column of of_keys */
    float *panels;     /* position_key: [ld / GSV_NR][size][GSV_NR], the last row first */
    float *of_queries; /* [GSV_MR][ld]: Q position_key of a tile of queries */
    float *of_keys;    /* [length][ld]: K position_query */
};

struct gsv_attention_head {
    const struct gpuserve_op_attention *op;
    struct gsv_head_layout layout;
    const float *q, *k, *v; /* first row of this head; row stride layout.ld */
    float *out;             /* row stride layout.out_ld */
    const float *bias;      /* relative_bias of this head at key - query = 0, or NULL */
    int32_t head, length, size;
    int32_t padded; /* length rounded up to a whole panel */
    float *keys;    /* [padded / GSV_NR][size][GSV_NR] */
    float *values;  /* [size up / GSV_NR][length][GSV_NR] */
    float *scores;  /* [GSV_MR][score_ld]: the keys of a tile of queries */
    size_t score_ld;
    struct gsv_positions *positions; /* NULL: no position rows */
};

/* Packs `rows` rows of `size` floats, `ld` apart, into transposed panels times `factor`. Rows past
 * the end of the last panel are zero. */
void GSV_VARIANT(gsv_pack_panels)(const float *rows, ptrdiff_t ld, int32_t n_rows, int32_t size,
                                  float factor, float *panels);

/* Computes the products of the keys; `scratch` is behind the other arrays of the head. The head
 * comes by value: with a pointer its fields would stay in memory for attention without position
 * rows. */
void GSV_VARIANT(gsv_positions_start)(struct gsv_attention_head head, float *scratch);

/* Adds the products with position rows to the scores of `queries` queries and the keys [key,
 * key_end). `scores` is at key 0, which may be before the array. */
void GSV_VARIANT(gsv_positions_add)(struct gsv_attention_head head, float *scores, int32_t query,
                                    int32_t queries, int32_t key, int32_t key_end);

#endif
