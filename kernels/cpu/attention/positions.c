/*
 * positions: the terms Q position_key + K position_query of disentangled attention (DeBERTa).
 *
 *   start   rows of the tables in use by a text of this length; K times all of them
 *   add     for each tile of queries: Q times the rows in use, then for each query and key the
 *           column that belongs to their distance
 *
 * The index of a distance ascends, mostly by one: neighbouring keys then read neighbouring columns,
 * and a vector of them is one load. The table of runs tells where. Q reads the rows in descending
 * order, since the distance query - key falls with the key.
 */
#include "kernels/cpu/attention/attention.h"

/* Columns column[0] .. column[n - 1] of a row; zeros behind them. */
GSV_INLINE vf columns_at(const float *row, const struct gsv_distance_table *table, int32_t at,
                         int n)
{
    float lanes[GSV_VL] = { 0 };

    if (table->run[at] >= GSV_VL)
        return vf_load(row + table->column[at]);
    for (int i = 0; i < n; i++)
        lanes[i] = row[table->column[at + i]];
    return vf_load(lanes);
}

static void count_runs(const struct gsv_distance_table *table, int32_t n)
{
    table->run[n - 1] = 1;
    for (int32_t i = n - 2; i >= 0; i--)
        table->run[i] = table->column[i + 1] == table->column[i] + 1 ? table->run[i + 1] + 1 : 1;
}

/* Divides the scratch, and fills the tables of distances. */
static void lay_out(const struct gsv_attention_head *h, float *scratch)
{
    struct gsv_positions *p = h->positions;
    const int32_t distances = 2 * h->length - 1, max = h->length - 1;
    const int32_t *index = h->op->position_index + (h->op->bias_span - 1);
    int32_t *tables = (int32_t *)(void *)scratch;

    p->first = index[-max];
    p->rows = index[max] - p->first + 1;
    p->ld = (size_t)((p->rows + GSV_NR - 1) / GSV_NR * GSV_NR);
    p->by_key = (struct gsv_distance_table){ tables, tables + distances };
    p->by_query = (struct gsv_distance_table){ tables + 2 * distances, tables + 3 * distances };
    p->panels = scratch + (8 * (size_t)h->length + 15) / 16 * 16;
    p->of_queries = p->panels + p->ld * (size_t)h->size;
    p->of_keys = p->of_queries + GSV_MR * p->ld;
    for (int32_t d = -max; d <= max; d++) {
        p->by_key.column[d + max] = p->first + p->rows - 1 - index[-d];
        p->by_query.column[d + max] = index[d] - p->first;
    }
    count_runs(&p->by_key, distances);
    count_runs(&p->by_query, distances);
}

/* `rows` rows of Q or K times the packed columns [column, column_end]. */
static void multiply(const struct gsv_attention_head *h, const float *in, int32_t rows,
                     int32_t column, int32_t column_end, float *out)
{
    const gsv_tile_f32_fn product = GSV_VARIANT(gsv_tiles_f32)[rows];
    const struct gsv_positions *p = h->positions;

    for (int32_t panel = column / GSV_NR; panel <= column_end / GSV_NR; panel++)
        product(in, h->layout.ld, p->panels + (size_t)panel * GSV_NR * (size_t)h->size, h->size,
                out + (size_t)panel * GSV_NR, p->ld, (const char *)p->panels, 0);
}

static void multiply_keys(const struct gsv_attention_head *h)
{
    const struct gsv_positions *p = h->positions;
    const int32_t max = h->length - 1;

    for (int32_t key = 0; key < h->length;) {
        const int32_t rows = gsv_tile_height(h->length - key, GSV_MR);

        multiply(h, h->k + (size_t)key * h->layout.ld, rows,
                 p->by_query.column[max - (key + rows - 1)], p->by_query.column[max + max - key],
                 p->of_keys + (size_t)key * p->ld);
        key += rows;
    }
}

void GSV_VARIANT(gsv_positions_start)(struct gsv_attention_head head, float *scratch)
{
    const struct gsv_attention_head *h = &head;
    const struct gpuserve_op_attention *op = h->op;
    const struct gsv_positions *p = h->positions;
    const size_t ld = (size_t)op->n_heads * (size_t)h->size, column = (size_t)h->head * h->size;
    const float factor = op->scale * VMATH_LOG2E;
    const float *rows;

    lay_out(h, scratch);
    if (op->position_query) {
        rows = (const float *)op->position_query + (size_t)p->first * ld + column;
        GSV_VARIANT(gsv_pack_panels)(rows, (ptrdiff_t)ld, p->rows, h->size, factor, p->panels);
        multiply_keys(h);
    }
    if (op->position_key) {
        rows = (const float *)op->position_key + (size_t)(p->first + p->rows - 1) * ld + column;
        GSV_VARIANT(gsv_pack_panels)(rows, -(ptrdiff_t)ld, p->rows, h->size, factor, p->panels);
    }
}

static void add_of_queries(const struct gsv_attention_head *h, float *scores, int32_t query,
                           int32_t queries, int32_t key, int32_t key_end)
{
    const struct gsv_positions *p = h->positions;
    const int32_t max = h->length - 1;

    multiply(h, h->q + (size_t)query * h->layout.ld, queries,
             p->by_key.column[max + key - (query + queries - 1)],
             p->by_key.column[max + key_end - 1 - query], p->of_queries);
    for (int32_t r = 0; r < queries; r++) {
        const float *row = p->of_queries + (size_t)r * p->ld;
        float *to = scores + (size_t)r * h->score_ld;

        for (int32_t k = key; k < key_end; k += GSV_VL) {
            const int n = key_end - k < GSV_VL ? key_end - k : GSV_VL;

            vf_store(to + k,
                     vf_load(to + k) + columns_at(row, &p->by_key, max + k - (query + r), n));
        }
    }
}

/* Up to GSV_VL queries by GSV_VL keys: one key per vector, then transposed. */
static void add_block_of_keys(const struct gsv_attention_head *h, int32_t query, int queries,
                              int32_t key, int keys, float *scores)
{
    const struct gsv_positions *p = h->positions;
    vf block[GSV_VL];

    for (int i = 0; i < GSV_VL; i++)
        block[i] = i < keys ? columns_at(p->of_keys + (size_t)(key + i) * p->ld, &p->by_query,
                                         h->length - 1 + query - (key + i), queries)
                            : vf_set(0.0f);
    vf_transpose(block);
    for (int i = 0; i < queries; i++) {
        float *to = scores + (size_t)i * h->score_ld + key;

        vf_store(to, vf_load(to) + block[i]);
    }
}

void GSV_VARIANT(gsv_positions_add)(struct gsv_attention_head head, float *scores, int32_t query,
                                    int32_t queries, int32_t key, int32_t key_end)
{
    const struct gsv_attention_head *h = &head;

    if (h->op->position_key)
        add_of_queries(h, scores, query, queries, key, key_end);
    if (!h->op->position_query)
        return;
    for (int32_t r = 0; r < queries; r += GSV_VL) {
        const int height = queries - r < GSV_VL ? queries - r : GSV_VL;

        for (int32_t k = key; k < key_end; k += GSV_VL)
            add_block_of_keys(h, query + r, height, k, key_end - k < GSV_VL ? key_end - k : GSV_VL,
                              scores + (size_t)r * h->score_ld);
    }
}
