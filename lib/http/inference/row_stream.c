/*
 * row_stream.c - embeddings as JSON lines, computed and sent in blocks of texts.
 *
 *   gsv_row_stream_start -> (calibration for int8) -> start_block: job -> on_block: lines
 *   lines taken by the client -> stream.next = next_block: job -> on_block: lines -> ...
 *
 * The first block decides the status: an error of it is an ordinary reply. The rows of all blocks
 * use one array, so memory does not depend on the number of texts, except for the request itself.
 */
#include "lib/http/inference/embedding.h"

#include "lib/http/inference/inference_call.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"

/* Texts and numbers of a block: some batches of the scheduler, and about a megabyte of JSON. */
enum { BLOCK_TEXTS = 256, BLOCK_FLOATS = 1 << 17 };

static struct gsv_row_stream *stream_of(const struct gsv_exchange *exchange)
{
    return (struct gsv_row_stream *)exchange->stream;
}

void gsv_row_stream_read(struct gsv_exchange *exchange, struct gsv_row_stream *rows)
{
    const char *accepted = gsv_header(exchange, "Accept");
    const unsigned lines = gsv_accepted_by_name(accepted, "application/x-ndjson");

    if (lines > 0 && lines >= gsv_accepted_by_name(accepted, "application/json"))
        exchange->stream = &rows->stream;
}

static void on_block(struct gsv_exchange *exchange)
{
    struct gsv_row_stream *rows = stream_of(exchange);
    struct gsv_buffer *to = &exchange->reply;

    for (size_t i = 0; i < exchange->work.job.n_items; i++, rows->at++) {
        rows->put_row(exchange, i, rows->at);
        gsv_buffer_text(to, "\n");
    }
    rows->stream.n_before = rows->at;
    rows->stream.is_last = rows->at == rows->inputs.n;
    if (rows->stream.is_last && rows->put_end) {
        rows->put_end(exchange);
        gsv_buffer_text(to, "\n");
    }
    gsv_reply(exchange, 200, "application/x-ndjson");
}

/* Submits the next texts. False after gsv_refuse. */
static bool start_block(struct gsv_exchange *exchange)
{
    struct gsv_row_stream *rows = stream_of(exchange);
    const struct gsv_inputs *all = &rows->inputs;
    struct gsv_inputs block = *all;
    gpuserve_job job = rows->job;

    block.n = all->n - rows->at < rows->block ? all->n - rows->at : rows->block;
    if (all->texts) {
        block.texts += rows->at;
        block.sizes += rows->at;
    } else {
        const size_t begin = all->offsets[rows->at];

        for (size_t i = 0; i <= block.n; i++)
            rows->offsets[i] = all->offsets[rows->at + i] - begin;
        block.ids += begin;
        block.offsets = rows->offsets;
    }
    gsv_inputs_into(&block, &job);
    job.output = rows->output;
    job.output_capacity = block.n * exchange->work.columns;
    if (exchange->compact)
        gsv_compact_job(exchange, exchange->compact, &job);
    if (job.precision != GPUSERVE_PRECISION_FLOAT32)
        job.output_capacity *= sizeof(float); /* bytes */
    return gsv_call_submit(exchange, &job, on_block);
}

static void next_block(struct gsv_exchange *exchange)
{
    start_block(exchange);
}

/* The calibration has used the call's columns. */
static bool start_first(struct gsv_exchange *exchange)
{
    exchange->work.columns = stream_of(exchange)->columns;
    return start_block(exchange);
}

bool gsv_row_stream_start(struct gsv_exchange *exchange, struct gsv_row_stream *rows,
                          struct gsv_compact *compact, const gpuserve_job *job,
                          const struct gsv_inputs *inputs)
{
    const size_t columns = job->dimensions ? job->dimensions : exchange->served->dim;

    rows->job = *job;
    rows->inputs = *inputs;
    rows->block = columns < BLOCK_FLOATS ? BLOCK_FLOATS / columns : 1;
    if (rows->block > BLOCK_TEXTS)
        rows->block = BLOCK_TEXTS;
    rows->output = gsv_exchange_alloc(exchange, rows->block * columns, sizeof(*rows->output));
    rows->offsets = gsv_exchange_alloc(exchange, rows->block + 1, sizeof(*rows->offsets));
    if (!rows->output || !rows->offsets)
        return false;
    rows->stream.next = next_block;
    rows->columns = columns;
    exchange->compact = compact;
    exchange->usage.n_characters += inputs->n_characters;
    /* Between two blocks a model with `keep_alive` 0 would be suspended. */
    exchange->holds_model = true;
    gsv_idle_note(exchange->server->idle_models, exchange->served, false);
    rows->stream.n_request_bytes = exchange->body.size;
    gsv_buffer_reset(&exchange->body); /* the texts are in the parsed JSON */
    return compact ? gsv_compact_calibrate(exchange, compact, job, start_first)
                   : start_first(exchange);
}
