/*
 * heads.c - scores of head files: one embedding, then the layers of each chosen head.
 *
 *   embedding -> layers of head 0 -> activation -> block 0 of `scores`
 *             -> layers of head 1 -> activation -> block 1 of `scores` ...
 *
 * A block is [n_sequences, labels of the head], so a head runs the same operations, with the same
 * bits, whichever heads are chosen. The blocks are adjacent in the order of the model's heads: one
 * copy brings all of them to the host, where they become rows in the order of the choice. Heads
 * differ in whether their input is normalized; the rows are pooled once for either kind.
 *
 * Inner layers alternate between the buffer of pooled rows that the embedding is not in, and
 * `inner`. The embedding stays as it is for the next head.
 */
#include "lib/model/encoder/rows.h"

#include "lib/base/alloc.h"

#include <string.h>

static size_t block_floats(const struct gsv_head *head, int32_t n_sequences)
{
    return gsv_round_up((size_t)n_sequences * head->n_labels, GSV_ITEM_ALIGNMENT / sizeof(float));
}

size_t gsv_score_floats(const struct gsv_spec *spec, uint32_t heads, int32_t n_sequences)
{
    size_t n = 0;

    for (size_t i = 0; i < spec->heads.n; i++)
        if (heads >> i & 1)
            n += block_floats(&spec->heads.at[i], n_sequences);
    return n;
}

uint32_t gsv_head_set(const struct gsv_head_choice *choice)
{
    uint32_t heads = choice->n == 0;

    for (size_t i = 0; i < choice->n; i++)
        heads |= UINT32_C(1) << choice->at[i];
    return heads;
}

/* The heads whose input is normalized, or those whose input is not. */
static uint32_t heads_of_kind(const struct gsv_spec *spec, uint32_t heads, bool normalized)
{
    for (size_t i = 0; i < spec->heads.n; i++)
        if (spec->heads.at[i].normalizes != normalized)
            heads &= ~(UINT32_C(1) << i);
    return heads;
}

/* Run one head on the embedding in `rows`. */
static gpuserve_status run_head(const struct gsv_rows *rows, const struct gsv_head *head,
                                float *block, uint32_t score)
{
    float *const inner[2] = { gsv_other_buffer(rows), rows->work->inner };
    const uint32_t activation = score == GPUSERVE_SCORE_DEFAULT ? (uint32_t)head->score : score;
    struct gsv_rows at = *rows;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < head->n_layers && st == GPUSERVE_OK; i++)
        st = gsv_rows_layer_to(&at, head->first_item + i,
                               i == head->n_layers - 1 ? block : inner[i % 2]);
    return st == GPUSERVE_OK ? gsv_rows_score(&at, activation) : st;
}

gpuserve_status gsv_rows_heads(struct gsv_rows *rows, uint32_t heads, uint32_t score)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    gpuserve_status st = GPUSERVE_OK;

    for (int normalized = 0; normalized < 2; normalized++) {
        const uint32_t some = heads_of_kind(spec, heads, normalized);

        if (some != 0 && st == GPUSERVE_OK)
            st = gsv_rows_embed(rows, spec->facts.dim, normalized);
        for (size_t i = 0; i < spec->heads.n && st == GPUSERVE_OK; i++) {
            const uint32_t before = heads & ((UINT32_C(1) << i) - 1);

            if (some >> i & 1)
                st = run_head(rows, &spec->heads.at[i],
                              rows->work->scores +
                                  gsv_score_floats(spec, before, rows->batch->n_sequences),
                              score);
        }
    }
    return st;
}

/* Rows of the choice from the blocks of its heads. */
static void gather(const struct gsv_rows *rows, const struct gsv_run *run, int32_t n_texts)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const size_t row = (size_t)gsv_run_columns(&spec->facts, run);
    const uint32_t heads = gsv_head_set(&run->heads);
    float *to = run->output;

    for (size_t i = 0; i < run->heads.n; i++) {
        const size_t columns = spec->heads.at[run->heads.at[i]].n_labels;
        const uint32_t before = heads & ((UINT32_C(1) << run->heads.at[i]) - 1);
        const float *from =
            rows->work->bounce + gsv_score_floats(spec, before, rows->batch->n_sequences);

        for (size_t text = 0; text < (size_t)n_texts; text++)
            memcpy(to + text * row, from + text * columns, columns * sizeof(float));
        to += columns;
    }
}

gpuserve_status gsv_finish_heads(const struct gsv_rows *rows, const struct gsv_run *run,
                                 int32_t n_texts, gpuserve_error *error)
{
    const struct gsv_exec *work = rows->work;
    const struct gsv_spec *spec = work->net->spec;
    const bool is_one = gsv_chosen_count(&run->heads) == 1;
    const size_t n =
        is_one ? (size_t)n_texts * (size_t)gsv_run_columns(&spec->facts, run)
               : gsv_score_floats(spec, gsv_head_set(&run->heads), rows->batch->n_sequences);
    gpuserve_status st = work->net->backend->batch_end(
        work->stream, is_one ? run->output : work->bounce, work->scores, n * sizeof(float), error);

    if (st == GPUSERVE_OK)
        st = work->net->backend->stream_wait(work->stream, error);
    if (st == GPUSERVE_OK && !is_one)
        gather(rows, run, n_texts);
    return st;
}
