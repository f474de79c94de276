/*
 * run.c - runs one packed batch through the encoder and the layers after it.
 *
 *   EMBED          encode -> modules on tokens -> poolings -> modules -> cut to dimensions ->
 *                  normalize -> with a precision: bytes
 *   CLASSIFY       encode -> first token -> classifier -> scores
 *                  encode -> full embedding as above -> head files -> scores
 *   TOKEN_VECTORS  encode -> modules on tokens, or the late-interaction head (BGE-M3)
 *   MAX_SIM        token vectors as above -> MaxSim with a query
 *   TOKEN_LABELS   encode -> classifier of each token -> scores
 *   SPARSE         encode -> masked-LM head -> maximum logit of each word -> logarithm
 *                  encode -> weight of each token (BGE-M3)
 *
 * Several outputs of a batch are one run with the encoder, and runs without it (gsv_run.again):
 * what follows the encoder reads its output and leaves it as it is.
 *
 * Pooled rows alternate between two buffers, one layer at a time. A NaN stays in the row of its
 * text: attention stays within a text, and nothing after the encoder mixes rows.
 *
 * Threading: one thread uses a gsv_exec at a time; the net is read-only.
 */
#include "lib/model/encoder/encoder.h"
#include "lib/model/encoder/rows.h"
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------- exec */

static gpuserve_status alloc_host_buffers(struct gsv_exec *work,
                                          const struct gsv_exec_options *options,
                                          gpuserve_error *error)
{
    const bool has_parts = gsv_has_parts(work->net->spec);
    const size_t rows = (size_t)options->max_sequences * (has_parts ? 2 : 1);
    const size_t scores =
        work->net->spec->heads.n > 1
            ? gsv_score_floats(work->net->spec, UINT32_MAX, options->max_sequences)
            : 0;
    const size_t cut = work->net->spec->pooled_steps.n > 0 || has_parts
                           ? rows * (size_t)work->layout.pooled_columns
                           : 0;
    const int32_t neighbours = gsv_neighbours_per_token(&work->net->spec->config);
    bool whole = true;

    work->max_sequences = options->max_sequences;
    work->max_tokens = options->max_tokens;
    if (cut + scores > 0) {
        work->bounce = gsv_alloc_array(cut > scores ? cut : scores, sizeof(float));
        whole = work->bounce != NULL;
    }
    if (has_parts) {
        work->parts = gsv_alloc_array(rows, sizeof(*work->parts));
        whole = whole && work->parts;
    }
    if (neighbours > 0) {
        work->neighbours = gsv_alloc_array((size_t)neighbours * (size_t)options->max_tokens,
                                           sizeof(*work->neighbours));
        whole = whole && work->neighbours;
    }
    if (gsv_is_recurrent(&work->net->spec->config)) {
        work->sequences = gsv_alloc_array((size_t)options->max_sequences, sizeof(*work->sequences));
        whole = whole && work->sequences;
    }
    return whole ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
}

gpuserve_status gsv_exec_create(struct gsv_exec **out, const struct gsv_net *net,
                                const struct gsv_exec_options *options, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = net->backend;
    struct gsv_exec *work = gsv_alloc_array(1, sizeof(*work));
    struct gpuserve_stream_options stream;
    void *memory;
    gpuserve_status st;

    *out = NULL;
    if (!work)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    work->net = net;
    if (options->dtype != net->dtype ||
        !gsv_exec_layout(net->spec, backend, options, &work->layout)) {
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "invalid activation size: %d tokens, %d sequences, or a dtype that differs "
                      "from the model's",
                      options->max_tokens, options->max_sequences);
        goto fail;
    }
    st = backend->memory_alloc(net->device, &memory, (size_t)work->layout.total_bytes, error);
    if (st != GPUSERVE_OK)
        goto fail;
    work->memory = memory;
    work->at = gsv_map_activations(&work->layout, work->memory, options->max_tokens);
    for (int i = 0; i < 2; i++)
        work->pooled[i] = (float *)(void *)(work->memory + work->layout.pooled[i]);
    work->inner = (float *)(void *)(work->memory + work->layout.inner);
    work->scores = (float *)(void *)(work->memory + work->layout.scores);
    st = alloc_host_buffers(work, options, error);
    if (st == GPUSERVE_OK)
        st = gsv_write_zero_row(net, options->max_tokens, work->at.hidden, error);
    if (st != GPUSERVE_OK)
        goto fail;
    stream = gsv_stream_options(net->spec, backend, options, &work->layout);
    if (net->streaming.n > 0)
        stream.flags |= GPUSERVE_STREAM_PREFETCHES;
    st = backend->stream_create(net->device, &work->stream, &stream, error);
    if (st == GPUSERVE_OK)
        st = gsv_pipeline_create(work, options, error);
    if (st != GPUSERVE_OK)
        goto fail;
    *out = work;
    return GPUSERVE_OK;
fail:
    gsv_exec_free(&work);
    return st;
}

void gsv_exec_free(struct gsv_exec **out)
{
    struct gsv_exec *work = out ? *out : NULL;

    if (!work)
        return;
    gsv_pipeline_reset(work);
    work->net->backend->stream_destroy(&work->stream);
    if (work->memory)
        work->net->backend->memory_free(work->net->device, work->memory);
    free(work->bounce);
    free(work->parts);
    free(work->neighbours);
    free(work->sequences);
    free(work);
    *out = NULL;
}

int32_t gsv_run_columns(const struct gsv_spec_facts *facts, const struct gsv_run *run)
{
    int32_t n = 0;

    switch (run->task) {
    case GPUSERVE_TASK_CLASSIFY:
        for (size_t i = 0; i < run->heads.n; i++)
            n += (int32_t)facts->label_heads[run->heads.at[i]].n_labels;
        return run->heads.n > 0 ? n : (int32_t)facts->n_labels;
    case GPUSERVE_TASK_TOKEN_LABELS:
        return (int32_t)facts->n_labels;
    case GPUSERVE_TASK_TOKEN_VECTORS:
        return run->raw ? facts->hidden_size : facts->token_dim;
    case GPUSERVE_TASK_SPARSE:
        return facts->weighs_tokens ? 1 : facts->vocab_size;
    case GPUSERVE_TASK_MAX_SIM:
        return 1;
    default:
        return run->compact.precision != 0 ? run->compact.words : run->dimensions;
    }
}

/* ---------------------------------------------------------------------------------------- parts */

/* The end of the part of a text that LAST pooling takes; at least one token. */
static int32_t end_of_part(const struct gsv_config *config, const struct gpuserve_host_batch *host,
                           int32_t begin, int32_t end)
{
    int32_t at = begin;

    if (config->last_rule == GSV_LAST_END) { /* a request without an end token is refused before */
        for (at = end; at > begin && host->ids[at - 1] != config->end_id;)
            at--;
        return at > begin ? at : end;
    }
    if (config->last_rule == GSV_LAST_BEFORE_PADS) {
        while (end - begin > 1 && host->ids[end - 1] == config->pad_id)
            end--;
        return end;
    }
    for (int32_t i = begin; i < end; i++) {
        if (config->last_rule == GSV_LAST_FIRST_END && host->ids[i] == config->end_id)
            return i + 1;
        at = host->ids[i] > host->ids[at] ? i : at;
    }
    if (config->last_rule ==
        GSV_LAST_FIRST_END) /* as in transformers: without an end, the first one */
        at = begin;
    return end > begin ? at + 1 : end;
}

/* Write the cu_seqlens of a batch split into parts to the device: the part of text 0 that is
 * pooled, the rest up to text 1, the part of text 1 that is pooled, ... The even sequences of these
 * are the results. The prompt is left out at the beginning, or the tokens after gsv_last_rule. */
static gpuserve_status write_parts(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                   int32_t skip, gpuserve_error *error)
{
    const struct gsv_spec *spec = work->net->spec;
    const size_t n = 2 * (size_t)work->max_sequences;

    for (size_t i = 0; i < n; i++)
        work->parts[i] = host->n_tokens; /* the remaining sequences are empty */
    for (int32_t s = 0; s < host->n_sequences; s++) {
        const int32_t begin = host->cu_seqlens[s], end = host->cu_seqlens[s + 1];

        work->parts[2 * s] = end - begin > skip ? begin + skip : end;
        work->parts[2 * s + 1] = skip > 0 ? end : end_of_part(&spec->config, host, begin, end);
    }
    return work->net->backend->memory_write(work->net->device, work->memory + work->layout.parts,
                                            work->parts, n * sizeof(*work->parts), error);
}

/* ------------------------------------------------------------------------------------------ run */

#define HIDDEN_GIVEN (UINT64_C(1) << 63) /* flag of a program without the encoder */

static bool is_recurrent(const struct gsv_exec *work)
{
    return gsv_is_recurrent(&work->net->spec->config);
}

/* The operations of the run begin after the encoder, whose output is in memory. */
static bool is_hidden_given(const struct gsv_exec *work, const struct gsv_run *run)
{
    return run->again || is_recurrent(work);
}

/* Program number of a run: equal numbers issue equal operations on this gsv_exec, which a backend
 * may record and replay. The rows of several adapters recur too seldom to be recorded. */
static uint64_t program_of(const struct gsv_exec *work, const struct gsv_run *run,
                           bool hidden_given)
{
    const struct gsv_activations *at = &work->at;
    const int32_t adapter = at->n_ranges == 1 ? at->ranges[0].adapter : 0;
    const uint32_t columns =
        run->task == GPUSERVE_TASK_CLASSIFY ? gsv_head_set(&run->heads) : (uint32_t)run->dimensions;
    /* An embedding has no score; the columns of its precision follow from the dimensions. */
    const uint32_t score = run->score | run->compact.precision;

    if ((at->n_ranges > 1 || work->net->streaming.n > 0) && !hidden_given)
        return GPUSERVE_PROGRAM_ONCE;
    return (hidden_given ? HIDDEN_GIVEN : 0) | (uint64_t)(uint32_t)adapter << 48 |
           (uint64_t)columns << 16 | (uint64_t)run->raw << 14 | (uint64_t)(run->route & 0xF) << 10 |
           (uint64_t)(run->skip > 0) << 9 | (uint64_t)run->normalize << 8 |
           (uint64_t)(score & 0xF) << 4 | (uint64_t)(run->task & 0xF);
}

static gpuserve_status make_token_vectors(struct gsv_rows *rows)
{
    return rows->work->net->spec->late_file ? gsv_rows_late(rows) : gsv_rows_tokens(rows);
}

/* Convert the rows; they move to the other buffer, whose rows are at least as wide. */
static gpuserve_status make_compact(struct gsv_rows *rows, const struct gsv_run *run)
{
    struct gsv_exec *work = rows->work;
    float *out = gsv_other_buffer(rows);
    const struct gpuserve_op_compact op = {
        .in = rows->data,
        .out = (uint32_t *)(void *)out,
        .ranges = (const float *)(const void *)(work->memory + work->layout.ranges),
        .rows = rows->batch->n_sequences,
        .cols = run->compact.columns,
        .ld = rows->ld,
        .words = run->compact.words,
        .precision = run->compact.precision,
    };

    rows->data = out;
    rows->columns = rows->ld = run->compact.words;
    return work->net->backend->compact(work->stream, &op);
}

static gpuserve_status issue(struct gsv_rows *rows, const struct gsv_run *run)
{
    gpuserve_status st =
        is_hidden_given(rows->work, run)
            ? GPUSERVE_OK
            : gsv_encode(rows->work->net, rows->work->stream, rows->batch, &rows->work->at);

    if (st != GPUSERVE_OK)
        return st;
    if (run->task == GPUSERVE_TASK_TOKEN_VECTORS)
        return run->raw ? st : make_token_vectors(rows);
    if (run->task == GPUSERVE_TASK_MAX_SIM) {
        st = make_token_vectors(rows);
        return st == GPUSERVE_OK ? gsv_rows_max_sim(rows) : st;
    }
    if (run->task == GPUSERVE_TASK_TOKEN_LABELS)
        return gsv_rows_label_tokens(rows);
    if (run->task == GPUSERVE_TASK_SPARSE)
        return rows->work->net->spec->lexical_file ? gsv_rows_weigh_tokens(rows)
                                                   : gsv_rows_weigh_words(rows);
    if (run->task == GPUSERVE_TASK_CLASSIFY)
        return gsv_has_heads(rows->work->net->spec)
                   ? gsv_rows_heads(rows, gsv_head_set(&run->heads), run->score)
                   : gsv_rows_classify(rows, run->score);
    st = gsv_rows_embed(rows, run->dimensions, run->normalize);
    return st == GPUSERVE_OK && run->compact.precision != 0 ? make_compact(rows, run) : st;
}

/* Find the result rows. A replayed batch issues no operations, so this depends on the run alone:
 * the first pooling writes buffer 0, and each layer switches buffers. */
static void locate(struct gsv_rows *rows, const struct gsv_run *run)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const bool classifies = run->task == GPUSERVE_TASK_CLASSIFY;
    const int32_t layers = !classifies                 ? gsv_count_dense(spec, run->route)
                           : spec->config.pools_logits ? 0
                                                       : spec->n_classifier;

    if (run->task == GPUSERVE_TASK_SPARSE || run->task == GPUSERVE_TASK_MAX_SIM) {
        rows->data = rows->work->pooled[0];
        rows->columns = rows->ld = gsv_run_columns(&spec->facts, run);
        return;
    }
    rows->data = rows->work->pooled[layers % 2];
    if (classifies)
        rows->columns = (int32_t)spec->facts.n_labels;
    else
        rows->columns = spec->pooled_steps.n > 0 ? spec->facts.dim : run->dimensions;
    rows->ld = rows->skips && layers == 0 ? 2 * rows->columns : rows->columns;
    if (!classifies && run->compact.precision != 0) {
        rows->data = gsv_other_buffer(rows);
        rows->columns = rows->ld = run->compact.words;
    }
}

static void widen(float *output, size_t n, uint32_t dtype)
{
    const uint16_t *upper = (const uint16_t *)(const void *)output + n;

    if (dtype == GPUSERVE_DTYPE_FLOAT16 || dtype == GPUSERVE_DTYPE_INT8)
        gsv_floats_from_f16(output, upper, n);
    else
        gsv_floats_from_bf16(output, upper, n);
}

static void softmax(float *row, size_t n)
{
    float max = row[0], sum = 0.0f;

    for (size_t i = 1; i < n; i++)
        max = row[i] > max ? row[i] : max;
    for (size_t i = 0; i < n; i++) {
        row[i] = expf(row[i] - max);
        sum += row[i];
    }
    for (size_t i = 0; i < n; i++)
        row[i] /= sum;
}

static void score_tokens(float *rows, size_t n_rows, size_t columns, uint32_t score)
{
    for (size_t i = 0; i < n_rows && score == GPUSERVE_SCORE_SOFTMAX; i++)
        softmax(rows + i * columns, columns);
    for (size_t i = 0; i < n_rows * columns && score == GPUSERVE_SCORE_SIGMOID; i++)
        rows[i] = 1.0f / (1.0f + expf(-rows[i]));
}

static void normalize_tokens(float *rows, size_t n_rows, size_t columns)
{
    for (size_t i = 0; i < n_rows; i++) {
        float *row = rows + i * columns;
        float square = 0.0f, length;

        for (size_t j = 0; j < columns; j++)
            square += row[j] * row[j];
        length = fmaxf(sqrtf(square), 1e-12f);
        for (size_t j = 0; j < columns; j++)
            row[j] /= length;
    }
}

/* Read n activations to the host. 16-bit ones are read into the upper half of the output and
 * widened in place. */
static gpuserve_status read_activations(struct gsv_exec *work, const void *from, size_t n,
                                        float *output, gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const size_t size = net->backend->activation_size(net->dtype);
    char *to = (char *)output + n * (sizeof(float) - size);
    gpuserve_status st = net->backend->batch_end(work->stream, to, from, n * size, error);

    if (st == GPUSERVE_OK)
        st = net->backend->stream_wait(work->stream, error);
    if (st == GPUSERVE_OK && size == sizeof(uint16_t))
        widen(output, n, net->dtype);
    return st;
}

/* The token rows that a run leaves on the device. */
static const void *token_rows(const struct gsv_exec *work, const struct gsv_run *run)
{
    if (run->task == GPUSERVE_TASK_TOKEN_LABELS)
        return work->at.wide;
    return run->raw ? work->at.hidden : gsv_token_vectors(work);
}

static gpuserve_status finish_tokens(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                     const struct gsv_run *run, gpuserve_error *error)
{
    const struct gsv_spec *spec = work->net->spec;
    const bool labels = run->task == GPUSERVE_TASK_TOKEN_LABELS;
    const size_t n_rows = (size_t)host->n_tokens;
    const size_t columns = (size_t)gsv_run_columns(&spec->facts, run);
    const gpuserve_status st =
        read_activations(work, token_rows(work, run), n_rows * columns, run->output, error);

    if (st == GPUSERVE_OK && labels)
        score_tokens(run->output, n_rows, columns, run->score);
    if (st == GPUSERVE_OK && !labels && !run->raw && gsv_normalizes_tokens(spec))
        normalize_tokens(run->output, n_rows, columns);
    return st;
}

static gpuserve_status finish_rows(const struct gsv_rows *rows, int32_t n_rows, int32_t columns,
                                   float *output, gpuserve_error *error)
{
    struct gsv_exec *work = rows->work;
    const struct gpuserve_backend *backend = work->net->backend;
    const size_t n = (size_t)n_rows;
    float *to = columns == rows->ld ? output : work->bounce;
    gpuserve_status st = backend->batch_end(work->stream, to, rows->data,
                                            n * (size_t)rows->ld * sizeof(float), error);

    if (st == GPUSERVE_OK)
        st = backend->stream_wait(work->stream, error);
    for (size_t i = 0; st == GPUSERVE_OK && to != output && i < n; i++)
        memcpy(output + i * (size_t)columns, to + i * (size_t)rows->ld,
               (size_t)columns * sizeof(float));
    return st;
}

/* The parts that are pooled, the adapters, the ranges, and what MaxSim compares with. */
static gpuserve_status prepare(struct gsv_rows *rows, const struct gpuserve_host_batch *host,
                               const struct gsv_run *run, gpuserve_error *error)
{
    struct gsv_exec *work = rows->work;
    gpuserve_status st = gsv_find_adapter_ranges(&work->at, host, run, error);

    rows->skips = run->skip > 0 || gsv_pools_before_end(work->net->spec, run->task);
    if (st != GPUSERVE_OK)
        return st;
    if (run->task == GPUSERVE_TASK_MAX_SIM)
        return gsv_write_max_sim(work, run->late, error);
    if (run->compact.ranges)
        st = work->net->backend->memory_write(
            work->net->device, work->memory + work->layout.ranges, run->compact.ranges,
            2 * (size_t)run->compact.columns * sizeof(float), error);
    return rows->skips && st == GPUSERVE_OK ? write_parts(work, host, run->skip, error) : st;
}

gpuserve_status gsv_net_run(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                            const struct gsv_run *run, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = work->net->backend;
    struct gpuserve_batch batch;
    struct gsv_rows rows = { .work = work, .batch = &batch, .route = run->route };
    int32_t replayed = 0;
    gpuserve_status st = prepare(&rows, host, run, error);

    if (st == GPUSERVE_OK && work->neighbours && !run->again)
        st = gsv_write_neighbours(work->net, work->max_tokens, host, work->neighbours,
                                  work->memory + work->layout.neighbours, error);
    if (st == GPUSERVE_OK && is_recurrent(work) && !run->again)
        st = gsv_recurrent_encode(work, host, error);
    if (st == GPUSERVE_OK && work->before && !run->again)
        st = gsv_pipeline_encode(work, host, run, error);
    if (st == GPUSERVE_OK)
        st = backend->batch_begin(work->stream, program_of(work, run, is_hidden_given(work, run)),
                                  host, &batch, &replayed, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!replayed) {
        st = issue(&rows, run);
        if (st != GPUSERVE_OK)
            return gsv_abandon_batch(backend, work->stream, st, error);
    }
    if (gsv_is_by_token(run->task))
        return finish_tokens(work, host, run, error);
    if (run->task == GPUSERVE_TASK_SPARSE && work->net->spec->lexical_file)
        return read_activations(work, work->at.wide, (size_t)host->n_tokens, run->output, error);
    if (run->task == GPUSERVE_TASK_CLASSIFY && gsv_has_heads(work->net->spec))
        return gsv_finish_heads(&rows, run, host->n_sequences, error);
    locate(&rows, run);
    st = finish_rows(&rows, host->n_sequences, gsv_run_columns(&work->net->spec->facts, run),
                     run->output, error);
    if (st == GPUSERVE_OK && run->task == GPUSERVE_TASK_SPARSE)
        gsv_saturate(run->output, (size_t)host->n_sequences * (size_t)rows.columns,
                     work->net->spec->modules.log_twice);
    return st;
}

gpuserve_status gsv_exec_embed(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                               const void *hidden, const struct gsv_run *run, gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const size_t row =
        (size_t)net->spec->config.hidden_size * net->backend->activation_size(net->dtype);
    struct gpuserve_batch batch;
    struct gsv_rows rows = { .work = work, .batch = &batch, .route = run->route };
    int32_t replayed = 0;
    gpuserve_status st = prepare(&rows, host, run, error);

    if (st == GPUSERVE_OK)
        st = net->backend->memory_write(net->device, gsv_token_input(net->spec, &work->at), hidden,
                                        (size_t)host->n_tokens * row, error);
    if (st == GPUSERVE_OK)
        st = net->backend->batch_begin(work->stream, program_of(work, run, true), host, &batch,
                                       &replayed, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!replayed) {
        st = gsv_rows_embed(&rows, run->dimensions, run->normalize);
        if (st != GPUSERVE_OK)
            return gsv_abandon_batch(net->backend, work->stream, st, error);
    }
    locate(&rows, run);
    return finish_rows(&rows, host->n_sequences, run->dimensions, run->output, error);
}
