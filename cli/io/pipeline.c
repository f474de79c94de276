/*
 * pipeline.c - a ring of chunks between an input and the library's asynchronous requests.
 *
 * `n` chunks from `oldest` on are submitted; the next one is being filled. At most CHUNKS chunks
 * are in flight. If the library's queue is full (GPUSERVE_E_BUSY), the oldest chunk is finished
 * first, then the submission is retried. Chunk memory is borrowed by the request until
 * gpuserve_request_free().
 */
#include "cli/io/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHUNKS 6
#define CHUNK_TEXTS 512
#define CHUNK_BYTES ((size_t)1 << 20)
#define BUSY_WAIT_MS 10

/* Ring buffer: `n` chunks from `oldest` on are submitted, the chunk after them is being filled. */
struct ring {
    struct cli_chunk chunks[CHUNKS + 1];
    size_t limit; /* max texts per chunk */
    size_t oldest, n;
};

static void ring_init(struct ring *ring, const struct cli_pump *pump)
{
    memset(ring, 0, sizeof(*ring));
    ring->limit = pump->chunk_texts ? pump->chunk_texts : CHUNK_TEXTS;
    for (size_t i = 0; i <= CHUNKS; i++) {
        struct cli_chunk *chunk = &ring->chunks[i];

        chunk->texts = cli_alloc(ring->limit, sizeof(*chunk->texts));
        chunk->sizes = cli_alloc(ring->limit, sizeof(*chunk->sizes));
        chunk->seconds = cli_alloc(ring->limit, sizeof(*chunk->seconds));
        chunk->second_sizes = cli_alloc(ring->limit, sizeof(*chunk->second_sizes));
        chunk->items = cli_alloc(ring->limit, sizeof(*chunk->items));
    }
}

static void ring_free(struct ring *ring)
{
    for (size_t i = 0; i <= CHUNKS; i++) {
        struct cli_chunk *chunk = &ring->chunks[i];

        if (chunk->request)
            gpuserve_cancel(chunk->request);
    }
    for (size_t i = 0; i <= CHUNKS; i++) {
        struct cli_chunk *chunk = &ring->chunks[i];

        gpuserve_request_free(
            &chunk->request); /* blocks until the request no longer uses the chunk's memory */
        free(chunk->texts);
        free(chunk->sizes);
        free(chunk->seconds);
        free(chunk->second_sizes);
        free(chunk->items);
        free(chunk->rows);
        for (size_t k = 0; k < CLI_MORE_OUTPUTS; k++)
            free(chunk->more[k]);
        free(chunk->token_offsets);
        free(chunk->bytes);
    }
}

static void append(struct cli_chunk *chunk, const char *text, size_t size)
{
    chunk->bytes = cli_grow(chunk->bytes, &chunk->bytes_capacity, chunk->n_bytes + size, 1);
    if (size)
        memcpy(chunk->bytes + chunk->n_bytes, text, size);
    chunk->n_bytes += size;
}

/* Fills until the chunk is full, the input ends (*ended) or reading would block (*idle). */
static int fill(struct cli_pump *pump, struct ring *ring, struct cli_chunk *chunk, bool *ended,
                bool *idle)
{
    struct cli_record record;

    chunk->n = 0;
    chunk->n_bytes = 0;
    while (chunk->n < ring->limit && chunk->n_bytes < CHUNK_BYTES) {
        if (pump->would_wait && pump->would_wait(pump->source)) {
            *idle = true;
            if (chunk->n || ring->n)
                return CLI_OK; /* submit the partial chunk before blocking */
        }
        const int found = pump->next(pump->source, &record);

        if (found < 0)
            return CLI_FAILED;
        *ended = found == 0;
        if (*ended)
            return CLI_OK;
        chunk->sizes[chunk->n] = record.text_size;
        chunk->second_sizes[chunk->n] = record.second_size;
        append(chunk, record.text, record.text_size);
        append(chunk, record.second, record.second_size);
        chunk->n++;
    }
    return CLI_OK;
}

/* Prints the error of a chunk. The library numbers the items of a job from 0, messages number texts
 * from 1. An error "item N: ..." names that text; other errors name the whole range of the
 * chunk. */
static int fail_chunk(const struct cli_pump *pump, const struct cli_chunk *chunk,
                      const gpuserve_error *error)
{
    const char *const name = pump->name ? pump->name : "", *const comma = pump->name ? ", " : "";
    gpuserve_error said = *error;
    size_t item, first = chunk->first + 1, last = chunk->first + chunk->n;
    int size = 0;
    char *where;

    if (sscanf(error->message, "item %zu: %n", &item, &size) == 1 && size > 0 && item < chunk->n) {
        snprintf(said.message, sizeof(said.message), "%s", error->message + size);
        first = last = first + item;
    }
    where = first == last ? cli_format("%s%stext %zu", name, comma, first)
                          : cli_format("%s%stexts %zu to %zu", name, comma, first, last);
    cli_fail_with(&said, where);
    free(where);
    return CLI_FAILED;
}

/* Waits for the oldest chunk and passes it to the sink. */
static int finish_oldest(struct cli_pump *pump, struct ring *ring)
{
    struct cli_chunk *chunk = &ring->chunks[ring->oldest];
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gpuserve_wait(chunk->request, -1, &error) != GPUSERVE_OK)
        return fail_chunk(pump, chunk, &error);
    gpuserve_request_free(&chunk->request);
    for (size_t i = 0; i < chunk->n; i++) {
        pump->n_tokens += chunk->items[i].n_tokens;
        pump->n_truncated += chunk->items[i].truncated != 0;
    }
    ring->oldest = (ring->oldest + 1) % (CHUNKS + 1);
    ring->n--;
    return pump->sink(pump->user, chunk);
}

static void point_at_texts(struct cli_chunk *chunk)
{
    const char *at = chunk->bytes ? chunk->bytes : "";

    for (size_t i = 0; i < chunk->n; i++) {
        chunk->texts[i] = at;
        chunk->seconds[i] = at + chunk->sizes[i];
        at = chunk->seconds[i] + chunk->second_sizes[i];
    }
}

/* Memory of the chunk's outputs, made at its first use. */
static void point_at_outputs(const struct cli_pump *pump, size_t limit, struct cli_chunk *chunk,
                             gpuserve_output outputs[CLI_MORE_OUTPUTS], gpuserve_job *job)
{
    if (!chunk->rows)
        chunk->rows = cli_alloc(limit * pump->row_floats, sizeof(float));
    if (pump->by_token && !chunk->token_offsets)
        chunk->token_offsets = cli_alloc(limit + 1, sizeof(*chunk->token_offsets));
    for (size_t k = 0; k < job->n_more; k++) {
        if (!chunk->more[k])
            chunk->more[k] = cli_alloc(limit * pump->more_floats[k], sizeof(float));
        outputs[k] = (gpuserve_output){ .task = job->more[k].task,
                                        .rows = chunk->more[k],
                                        .capacity = limit * pump->more_floats[k] };
    }
    job->output = chunk->rows;
    job->output_capacity = limit * pump->row_floats * (job->precision ? sizeof(float) : 1);
    job->token_offsets = chunk->token_offsets;
    job->more = outputs;
}

static int submit(struct cli_pump *pump, struct ring *ring, struct cli_chunk *chunk)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_output outputs[CLI_MORE_OUTPUTS];
    gpuserve_job job = pump->job;
    gpuserve_status status;

    point_at_texts(chunk);
    point_at_outputs(pump, ring->limit, chunk, outputs, &job);
    chunk->first = pump->n_texts;
    chunk->share = pump->share ? pump->share(pump->source) : -1.0;
    job.n_items = chunk->n;
    job.texts = chunk->texts;
    job.text_sizes = chunk->sizes;
    job.pairs = pump->pairs ? chunk->seconds : NULL;
    job.pair_sizes = pump->pairs ? chunk->second_sizes : NULL;
    job.items = chunk->items;
    while ((status = gpuserve_submit(&chunk->request, pump->model, &job, NULL, NULL, &error)) ==
           GPUSERVE_E_BUSY) {
        const uint32_t ms = error.retry_after_ms ? error.retry_after_ms : BUSY_WAIT_MS;
        const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

        /* The queue is full of this pipeline's own chunks: finish one. */
        if (ring->n && finish_oldest(pump, ring) != CLI_OK)
            return CLI_FAILED;
        if (!ring->n)
            nanosleep(&pause, NULL);
    }
    if (status != GPUSERVE_OK)
        return fail_chunk(pump, chunk, &error);
    pump->n_texts += chunk->n;
    ring->n++;
    return CLI_OK;
}

static int run(struct cli_pump *pump, struct ring *ring)
{
    bool ended = false;

    while (!ended) {
        struct cli_chunk *chunk = &ring->chunks[(ring->oldest + ring->n) % (CHUNKS + 1)];
        bool idle = false;

        if (fill(pump, ring, chunk, &ended, &idle) != CLI_OK)
            return CLI_FAILED;
        if (chunk->n && submit(pump, ring, chunk) != CLI_OK)
            return CLI_FAILED;
        while (ring->n && (ring->n == CHUNKS || ended || idle)) {
            if (finish_oldest(pump, ring) != CLI_OK)
                return CLI_FAILED;
        }
    }
    return CLI_OK;
}

int cli_pump_run(struct cli_pump *pump)
{
    struct ring *ring = cli_alloc(1, sizeof(*ring));
    int result;

    ring_init(ring, pump);
    result = run(pump, ring);
    ring_free(ring);
    free(ring);
    return result;
}

static int next_of_input(void *source, struct cli_record *record)
{
    return cli_input_next(source, record);
}

static bool input_would_wait(const void *source)
{
    return cli_input_would_wait(source);
}

static double share_of_input(const void *source)
{
    return cli_reader_share(&((const struct cli_input *)source)->reader);
}

void cli_pump_from_input(struct cli_pump *pump, struct cli_input *input)
{
    pump->next = next_of_input;
    pump->would_wait = input_would_wait;
    pump->share = share_of_input;
    pump->source = input;
    pump->name = input->arguments ? NULL : input->reader.name;
}

void cli_pump_remarks(const struct cli_pump *pump, const struct cli_args *args)
{
    if (pump->n_truncated && !args->quiet)
        cli_warn("%zu of %zu texts were longer than %zu tokens and were cut", pump->n_truncated,
                 pump->n_texts, gpuserve_model_max_tokens(pump->model));
}
