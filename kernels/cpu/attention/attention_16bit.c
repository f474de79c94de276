/*
 * attention_16bit: attention whose products have operands of 16 bits, for streams that round the
 * operands of matrix products too. int8 streams: bfloat16 (the instructions vdpbf16ps or bfdot, or
 * the tile registers of AMX), or int16 on x86 processors without them. bfloat16 streams: bfloat16.
 *
 *   pack    K, and V in pairs of keys
 *   for each panel of queries, and the keys that one of them attends to:
 *     pack    Q transposed: one query per lane from here on
 *     scores  keys x panel of queries, and the maximum of each lane
 *     weights 2^(score - max) in pairs of keys, and their sum in each lane
 *     output  dimensions x panel, divided by the sum and transposed back
 *
 * With one query per lane no sum crosses a vector, and keys need no padding. The bits of a query
 * depend on its own text alone: sums run over pairs of keys in order. A 32-bit word holds two
 * operands. Scratch: gsv_cpu_attention_floats(). Without softcap and position rows, which
 * attention.c has.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_16BIT_ATTENTION)
#if defined(GSV_HAS_BF16)
#include "kernels/cpu/attention/attention_bf16.h"
#else
#include "kernels/cpu/attention/attention_s16.h"
#endif
#if defined(GSV_HAS_TILES)
#include "kernels/cpu/attention/attention_bf16_amx.h"
#else
#include "kernels/cpu/attention/attention_16bit_vec.h"
#endif

/* Dimensions [from, from + 2 * GSV_VL) of a row, zeros past the last. */
struct row_part {
    vf low, high;
};

GSV_INLINE struct row_part part_of(const struct attention_16bit_head *h, const float *row,
                                   int32_t from)
{
    const int32_t left = h->size - from;
    struct row_part part = { load_upto(row + from, left), vf_set(0.0f) };

    if (left > GSV_VL)
        part.high = load_upto(row + from + GSV_VL, left - GSV_VL);
    return part;
}

static void pack_keys(const struct attention_16bit_head *h)
{
    for (int32_t key = 0; key < h->length; key++) {
        const float *row = h->k + (size_t)key * h->layout.ld;

        for (int32_t from = 0; from < h->size; from += 2 * GSV_VL) {
            const struct row_part part = part_of(h, row, from);

            store_words(h->keys + (size_t)key * h->key_ld + from / 2,
                        key_words(h, part.low, part.high));
        }
    }
}

/* Lanes past the last query are zero. */
static void pack_queries(const struct attention_16bit_head *h, int32_t query, int vectors)
{
    for (int v = 0; v < vectors; v++) {
        for (int32_t from = 0; from < h->size; from += 2 * GSV_VL) {
            uint32_t *to = h->queries + (size_t)(from / 2) * PANEL + v * GSV_VL;
            vf block[GSV_VL];

            for (int32_t i = 0; i < GSV_VL; i++) {
                const int32_t row = query + v * GSV_VL + i;
                struct row_part part = { vf_set(0.0f), vf_set(0.0f) };

                if (row < h->length)
                    part = part_of(h, h->q + (size_t)row * h->layout.ld, from);
                block[i] = (vf)query_words(h, part.low, part.high);
            }
            vf_transpose(block);
            for (int i = 0; i < GSV_VL; i++)
                store_words(to + (size_t)i * PANEL, (vi)block[i]);
        }
    }
}

/* The bias indexed by query - key, from -(length - 1) to the end of the last panel. */
static void reverse_bias(struct attention_16bit_head *h, const float *bias, float *to)
{
    const int32_t end = (h->length + PANEL - 1) / PANEL * PANEL;

    h->bias = to + h->length - 1;
    for (int32_t i = 1 - h->length; i < end; i++)
        h->bias[i] = i < h->length ? bias[-i] * VMATH_LOG2E : 0.0f;
}

static void store_outputs(const struct attention_16bit_head *h, int32_t query, int vectors)
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

static void run_panel(const struct attention_16bit_head *h, int32_t query, int vectors)
{
    struct gsv_key_range keys = gsv_keys_of(&h->layout, query, PANEL);
    vf largest[VECTORS], inverse[VECTORS];

    keys.first = keys.first / KEY_STEP * KEY_STEP; /* what this adds is masked */
    pack_queries(h, query, vectors);
    for (int v = 0; v < VECTORS; v++)
        largest[v] = vf_set(-INFINITY);
    score_panel(h, &keys, query, vectors, largest);
    for (int v = 0; v < vectors; v++)
        inverse[v] = weights_of_lanes(h, h->scores + v * GSV_VL, &keys, largest[v]);
    end_softmax(h, &keys);
    output_panel(h, &keys, vectors, inverse);
    store_outputs(h, query, vectors);
}

/* Divides the scratch among the arrays of a head. */
static void lay_out(struct attention_16bit_head *h, float *scratch)
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

void GSV_VARIANT(gsv_attention_16bit)(const struct gpuserve_op_attention *op, int32_t sequence,
                                      int32_t head, float *scratch)
{
    const struct gsv_head_layout layout = gsv_head_layout(op, sequence, head);
    const float *qkv = (const float *)op->qkv;
    struct attention_16bit_head h = {
        .op = op,
        .layout = layout,
        .q = qkv + layout.q,
        .k = qkv + layout.k,
        .v = qkv + layout.v,
        .out = (float *)op->out + layout.out,
        .length = layout.length,
        .size = op->head_size,
    };

    if (!start_head(&h)) {
        GSV_BASE(gsv_attention)(op, sequence, head, scratch);
        return;
    }
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
