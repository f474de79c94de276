/*
 * attention_bf16: attention with both products in bfloat16 and sums in float32, for streams whose
 * matrix products are rounded too (int8, bfloat16). Requires the instruction vdpbf16ps or bfdot,
 * or the tile registers of AMX.
 *
 *   pack    K, and V in pairs of keys
 *   for each panel of queries, and the keys that one of them attends to:
 *     pack    Q transposed, times scale * log2(e): one query per lane from here on
 *     scores  keys x panel of queries, and the maximum of each lane
 *     softmax 2^(score - max) in pairs of keys, and its sum in each lane
 *     output  dimensions x panel, divided by the sum and transposed back
 *
 * With one query per lane no sum crosses a vector, and keys need no padding. The bits of a query
 * depend on its own text alone: sums run over pairs of keys in order. A 32-bit word holds two
 * bfloat16. Scratch: gsv_cpu_attention_floats(). Without softcap and position rows, which
 * attention.c has.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_BF16_ATTENTION)
#if defined(GSV_HAS_TILES)
#include "kernels/cpu/attention/attention_bf16_amx.h"
#else
#include "kernels/cpu/attention/attention_bf16_vec.h"
#endif

static void pack_keys(const struct attention_bf16_head *h)
{
    for (int32_t key = 0; key < h->length; key++)
        for (int32_t from = 0; from < h->size; from += 2 * GSV_VL)
            store_words(h->keys + (size_t)key * h->key_ld + from / 2,
                        row_words(h, h->k + (size_t)key * h->layout.ld, from, 1.0f));
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
        store_words(scores + (size_t)(key / 2) * PANEL, vh_pairs(even, odd));
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

    keys.first = keys.first / KEY_STEP * KEY_STEP; /* what this adds is masked */
    pack_queries(h, query, vectors);
    for (int v = 0; v < VECTORS; v++)
        largest[v] = vf_set(-INFINITY);
    score_panel(h, &keys, query, vectors, largest);
    for (int v = 0; v < vectors; v++)
        inverse[v] = vf_set(1.0f) / softmax_lanes(h->scores + v * GSV_VL, &keys, largest[v]);
    end_softmax(h, &keys);
    output_panel(h, &keys, vectors, inverse);
    store_outputs(h, query, vectors);
}

/* Divides the scratch among the arrays of a head. */
static void lay_out(struct attention_bf16_head *h, float *scratch)
{
    const size_t length = ((size_t)h->length + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;

    h->key_ld = ((size_t)h->size + 2 * GSV_VL - 1) / (2 * GSV_VL) * GSV_VL;
    h->value_ld = ((size_t)h->size + GSV_VL - 1) / GSV_VL * GSV_VL;
    h->pairs = length / 2;
    h->scores = scratch;
    h->outputs = h->scores + length * PANEL;
    h->queries = (uint32_t *)(void *)(h->outputs + h->value_ld * PANEL);
    h->values = h->queries + h->key_ld * PANEL;
    h->keys = h->values + h->pairs * h->value_ld;
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
                     (float *)(void *)(h.keys + 2 * h.pairs * h.key_ld));
    pack_keys(&h);
    pack_values(&h);
    start_products();
    for (int32_t query = 0; query < h.length; query += PANEL)
        run_panel(&h, query, h.length - query > HALF * GSV_VL ? VECTORS : HALF);
    end_products();
}
#endif
