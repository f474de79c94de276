/*
 * row_stream.c - embeddings as JSON lines or Arrow record batches, computed and sent in blocks of
 * texts.
 *
 *   gsv_row_stream_start -> (calibration for int8) -> start_block: job -> on_block: lines or batch
 *   block taken by the client -> stream.next = next_block: job -> on_block: lines or batch -> ...
 *
 * The first block decides the status: an error of it is an ordinary reply. The rows of all blocks
 * use one array, so memory does not depend on the number of texts, except for the request itself.
 */
#include "lib/http/inference/embedding.h"

#include "lib/http/core/arrow.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"

#include <stdio.h>
#include <string.h>

/* Texts and numbers of a block: some batches of the scheduler, and about a megabyte of JSON. */
enum { BLOCK_TEXTS = 256, BLOCK_FLOATS = 1 << 17 };

static const char lines_type[] = "application/x-ndjson";

static struct gsv_row_stream *stream_of(const struct gsv_exchange *exchange)
{
    return (struct gsv_row_stream *)exchange->stream;
}

/* ------------------------------------------------------------------------------- what is asked */

void gsv_row_stream_read(struct gsv_exchange *exchange, struct gsv_row_stream *rows)
{
    const char *accepted = gsv_header(exchange, "Accept");
    const unsigned json = gsv_accepted_by_name(accepted, "application/json");
    const unsigned lines = gsv_accepted_by_name(accepted, lines_type);
    const unsigned arrow = gsv_accepted_by_name(accepted, GSV_ARROW_TYPE);

    rows->is_arrow = arrow > 0 && arrow >= json && arrow >= lines;
    if (rows->is_arrow || (lines > 0 && lines >= json))
        exchange->stream = &rows->stream;
}

const char *gsv_row_stream_type(const struct gsv_row_stream *rows)
{
    return rows->is_arrow ? GSV_ARROW_TYPE : lines_type;
}

bool gsv_row_stream_refuse(struct gsv_exchange *exchange, const struct gsv_row_stream *rows,
                           const char *name)
{
    return gsv_refuse(exchange, GSV_P_UNSUPPORTED, name, "`%s` is not supported with `Accept: %s`",
                      name, gsv_row_stream_type(rows));
}

/* --------------------------------------------------------------------------------------- blocks */

static void put_lines(struct gsv_exchange *exchange, struct gsv_row_stream *rows)
{
    struct gsv_buffer *to = &exchange->reply;
    const size_t n = exchange->work.job.n_items;

    for (size_t i = 0; i < n; i++) {
        rows->put_row(exchange, i, rows->at + i);
        gsv_buffer_text(to, "\n");
    }
    if (rows->at + n == rows->inputs.n && rows->put_end) {
        rows->put_end(exchange);
        gsv_buffer_text(to, "\n");
    }
}

static enum gsv_arrow_element element_of(uint32_t precision)
{
    static const enum gsv_arrow_element elements[] = {
        [GPUSERVE_PRECISION_FLOAT32] = GSV_ARROW_FLOAT32,
        [GPUSERVE_PRECISION_FLOAT16] = GSV_ARROW_FLOAT16,
        [GPUSERVE_PRECISION_INT8] = GSV_ARROW_INT8,
        [GPUSERVE_PRECISION_UINT8] = GSV_ARROW_UINT8,
        [GPUSERVE_PRECISION_BINARY] = GSV_ARROW_INT8,
        [GPUSERVE_PRECISION_UBINARY] = GSV_ARROW_UINT8,
    };

    return elements[precision];
}

/* Arrow schema with metadata: model, vector space, precision, dimensions. */
static void put_schema(struct gsv_exchange *exchange, const struct gsv_row_stream *rows,
                       size_t n_elements)
{
    char dimensions[24];
    const struct gsv_arrow_pair about[] = {
        { "model", exchange->served->name },
        { "space", exchange->work.result.fingerprint },
        { "precision", gsv_precision_name(rows->precision) },
        { "dimensions", dimensions },
    };

    snprintf(dimensions, sizeof(dimensions), "%zu", rows->columns);
    gsv_arrow_put_schema(&exchange->reply, element_of(rows->precision), n_elements, about,
                         sizeof(about) / sizeof(about[0]));
}

/* The vectors of the block in their precision, which the job has made itself if it could. */
static bool put_values(const struct gsv_exchange *exchange, const struct gsv_row_stream *rows,
                       void *values, size_t size)
{
    const gpuserve_job *job = &exchange->work.job;

    if (job->precision == rows->precision) {
        memcpy(values, job->output, size);
        return true;
    }
    return gpuserve_quantize(job->output, job->n_items, rows->columns, rows->precision,
                             rows->compact ? rows->compact->ranges : NULL, values, size,
                             NULL) == GPUSERVE_OK;
}

/* A record batch; the last one has the usage in its metadata, as it is known then. */
static void put_batch(struct gsv_exchange *exchange, struct gsv_row_stream *rows)
{
    const size_t n = exchange->work.job.n_items, columns = rows->columns;
    const size_t row_bytes = gpuserve_quantized_bytes(rows->precision, columns);
    const bool is_binary = rows->precision == GPUSERVE_PRECISION_BINARY ||
                           rows->precision == GPUSERVE_PRECISION_UBINARY;
    const size_t n_elements = is_binary ? row_bytes : columns;
    const bool is_last = rows->at + n == rows->inputs.n;
    struct gsv_buffer *to = &exchange->reply;
    char tokens[24];
    const struct gsv_arrow_pair usage[] = { { "prompt_tokens", tokens },
                                            { "total_tokens", tokens } };
    void *values;

    snprintf(tokens, sizeof(tokens), "%zu", exchange->usage.n_tokens);
    if (rows->at == 0)
        put_schema(exchange, rows, n_elements);
    values = gsv_arrow_put_batch(to, element_of(rows->precision), n_elements, rows->at, n, usage,
                                 is_last ? sizeof(usage) / sizeof(usage[0]) : 0);
    if (values && !put_values(exchange, rows, values, n * row_bytes))
        to->failed = true;
    if (is_last)
        gsv_arrow_put_end(to);
}

/* An error after the first batch: Arrow has no form for it, so the stream ends without its end. */
static void cut_arrow(struct gsv_exchange *exchange)
{
    gsv_buffer_reset(&exchange->reply);
    gsv_arrow_put_cut(&exchange->reply);
    exchange->stream->is_cut = true;
}

static void on_block(struct gsv_exchange *exchange)
{
    struct gsv_row_stream *rows = stream_of(exchange);

    if (rows->is_arrow)
        put_batch(exchange, rows);
    else
        put_lines(exchange, rows);
    gsv_reply(exchange, 200, gsv_row_stream_type(rows));
    if (exchange->status != 200)
        return;
    rows->at += exchange->work.job.n_items;
    rows->stream.n_before = rows->at;
    rows->stream.is_last = rows->at == rows->inputs.n;
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
    rows->stream.fail = rows->is_arrow ? cut_arrow : NULL;
    rows->compact = compact;
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
