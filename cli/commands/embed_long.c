/*
 * embed_long.c - embeds texts over the token limit: windows or late chunking.
 *
 *   input -> a group of texts -> gpuserve_long_texts_create, _run -> rows -> the sink of `embed`
 *
 * A group ends at GROUP_TEXTS texts or GROUP_BYTES bytes, so memory does not grow with the input.
 * If the next text is not available yet (a pipe), the group is computed first.
 */
#include "cli/commands/embed.h"

#include "cli/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_TEXTS 256
#define GROUP_BYTES ((size_t)1 << 20)

int cli_long_check(const struct cli_args *args)
{
    const bool by_spans = args->chunk_by == GPUSERVE_CHUNK_BY_SPANS + 1;

    if (!args->chunking &&
        (args->chunk_by || args->chunk_tokens || args->window_tokens || args->stride))
        return cli_usage(
            "--chunk-by, --chunk-tokens, --window-tokens and --stride need --chunking");
    if (args->chunking && (args->outputs || args->sparse || args->truncate))
        return cli_usage("--chunking excludes --outputs, --sparse and --truncate");
    if (args->chunking != GPUSERVE_LONG_LATE + 1 && (args->chunk_by || args->chunk_tokens))
        return cli_usage("--chunk-by and --chunk-tokens need --chunking late");
    if (by_spans && args->chunk_tokens)
        return cli_usage("--chunk-by spans excludes --chunk-tokens");
    return CLI_OK;
}

/* --------------------------------------------------------------------------------------- input */

static int add_span(struct cli_long *l, const json_t *value)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);

    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(begin) > UINT32_MAX ||
        json_integer_value(end) < 0 || json_integer_value(end) > UINT32_MAX)
        return CLI_FAILED;
    l->spans = cli_grow(l->spans, &l->spans_capacity, l->n_spans + 1, sizeof(*l->spans));
    l->spans[l->n_spans++] =
        (gpuserve_span){ (uint32_t)json_integer_value(begin), (uint32_t)json_integer_value(end) };
    return CLI_OK;
}

/* The spans of the current JSON line. */
static int add_spans(struct cli_long *l)
{
    const json_t *list = l->input->object ? json_object_get(l->input->object, "spans") : NULL;
    int result = json_is_array(list) ? CLI_OK : CLI_FAILED;

    for (size_t i = 0; result == CLI_OK && i < json_array_size(list); i++)
        result = add_span(l, json_array_get(list, i));
    if (result != CLI_OK) {
        char *where = cli_input_where(l->input);

        cli_fail("%s: --chunk-by spans needs JSON lines with a field \"spans\", a list of byte "
                 "offsets [begin, end]",
                 where);
        free(where);
    }
    return result;
}

static int add_text(struct cli_long *l, const struct cli_record *record)
{
    const size_t n = l->n;

    l->bytes = cli_grow(l->bytes, &l->bytes_capacity, l->n_bytes + record->text_size, 1);
    l->sizes = cli_grow(l->sizes, &l->sizes_capacity, n + 1, sizeof(*l->sizes));
    l->pointers = cli_grow(l->pointers, &l->pointers_capacity, n + 1, sizeof(*l->pointers));
    l->span_offsets =
        cli_grow(l->span_offsets, &l->offsets_capacity, n + 2, sizeof(*l->span_offsets));
    if (record->text_size)
        memcpy(l->bytes + l->n_bytes, record->text, record->text_size);
    l->n_bytes += record->text_size;
    l->sizes[n] = record->text_size;
    l->span_offsets[n] = l->n_spans;
    l->n++;
    if (l->args->chunk_by == GPUSERVE_CHUNK_BY_SPANS + 1 && add_spans(l) != CLI_OK)
        return CLI_FAILED;
    l->span_offsets[n + 1] = l->n_spans;
    return CLI_OK;
}

/* ----------------------------------------------------------------------------------------- run */

static gpuserve_long_options options_of(const struct cli_long *l)
{
    const struct cli_args *args = l->args;
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;

    options.method = args->chunking - 1;
    options.chunk_by = args->chunk_by ? args->chunk_by - 1 : 0;
    options.chunk_tokens = args->chunk_tokens;
    options.window_tokens = args->window_tokens;
    options.stride = args->stride;
    options.dimensions = args->dimensions;
    options.normalize = args->normalize;
    options.prompt = args->prompt;
    options.prompt_name = args->prompt_name;
    if (options.chunk_by == GPUSERVE_CHUNK_BY_SPANS) {
        options.spans = l->spans;
        options.span_offsets = l->span_offsets;
    }
    return options;
}

/* The library counts texts of a call from 0, messages count those of the input from 1. */
static int fail_group(const struct cli_long *l, const gpuserve_error *error)
{
    gpuserve_error said = *error;
    size_t first = l->first + 1, last = l->first + l->n, text;
    int size = 0;
    char *where;

    if (sscanf(error->message, "text %zu: %n", &text, &size) == 1 && size > 0 && text < l->n) {
        snprintf(said.message, sizeof(said.message), "%s", error->message + size);
        first = last = first + text;
    }
    where =
        first == last ? cli_format("text %zu", first) : cli_format("texts %zu to %zu", first, last);
    cli_fail_with(&said, where);
    free(where);
    return CLI_FAILED;
}

/* Gives the vectors to the sink. */
static int write_group(struct cli_long *l, const gpuserve_long_result *result)
{
    struct cli_chunk rows = {
        .first = l->n_vectors,
        .n = result->n_vectors,
        .rows = (float *)(uintptr_t)result->vectors, /* read only */
        .share = cli_reader_share(&l->input->reader),
    };

    l->at = 0;
    l->chunks = result->chunks;
    l->n_chunks = result->n_chunks;
    l->n_vectors += rows.n;
    return l->sink(l->user, &rows);
}

static int run_group(struct cli_long *l)
{
    const gpuserve_long_options options = options_of(l);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const char *at = l->bytes ? l->bytes : "";
    gpuserve_long_result vectors = GPUSERVE_LONG_RESULT_INIT;
    gpuserve_status status;
    int result;

    if (l->n == 0)
        return CLI_OK;
    for (size_t i = 0; i < l->n; i++) {
        l->pointers[i] = at;
        at += l->sizes[i];
    }
    status = gpuserve_long_texts_create(&l->texts, l->model, l->pointers, l->sizes, l->n, &options,
                                        &error);
    if (status == GPUSERVE_OK)
        status = gpuserve_long_texts_run(l->texts, l->model, NULL, &error);
    if (status == GPUSERVE_OK)
        status = gpuserve_long_texts_result(l->texts, &vectors, &error);
    result = status == GPUSERVE_OK ? write_group(l, &vectors) : fail_group(l, &error);
    gpuserve_long_texts_free(&l->texts);
    l->first += l->n;
    l->n = l->n_bytes = l->n_spans = 0;
    return result;
}

int cli_long_run(struct cli_long *l)
{
    const size_t limit = l->args->batch ? l->args->batch : GROUP_TEXTS;
    struct cli_record record;
    int found = 1, result = CLI_OK;

    while (result == CLI_OK && found > 0) {
        if (l->n == limit || l->n_bytes >= GROUP_BYTES ||
            (l->n > 0 && cli_input_would_wait(l->input))) {
            result = run_group(l);
            continue;
        }
        found = cli_input_next(l->input, &record);
        if (found > 0)
            result = add_text(l, &record);
    }
    if (result == CLI_OK)
        result = run_group(l); /* also the texts before an invalid record */
    free(l->bytes);
    free(l->pointers);
    free(l->sizes);
    free(l->span_offsets);
    free(l->spans);
    return found < 0 ? CLI_FAILED : result;
}

void cli_long_head(struct cli_long *l, FILE *out, size_t i)
{
    const char *comma = "";

    if (l->args->chunking == GPUSERVE_LONG_LATE + 1) {
        const gpuserve_chunk *chunk = &l->chunks[i];

        fprintf(out, "{\"index\":%zu,\"span\":[%" PRIu32 ",%" PRIu32 "],\"n_tokens\":%" PRIu32 ",",
                l->first + chunk->text, chunk->begin, chunk->end, chunk->n_tokens);
        return;
    }
    fprintf(out, "{\"index\":%zu,\"spans\":[", l->first + i);
    for (; l->at < l->n_chunks && l->chunks[l->at].row == i; l->at++, comma = ",")
        fprintf(out, "%s[%" PRIu32 ",%" PRIu32 "]", comma, l->chunks[l->at].begin,
                l->chunks[l->at].end);
    fputs("],", out);
}
