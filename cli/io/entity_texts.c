/*
 * entity_texts.c - reads texts into chunks, and writes strings and positions.
 */
#include "cli/io/entity_texts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_WAIT_MS 10

/* -------------------------------------------------------------------------------------- chunks */

static int add_text(struct cli_text_chunk *chunk, const struct cli_record *record, size_t limit)
{
    const size_t begin = chunk->text_at[chunk->n], end = begin + record->text_size;
    const int result = chunk->add(chunk->user, record);

    if (result != CLI_OK)
        return result;
    chunk->bytes = cli_grow(chunk->bytes, &chunk->capacity, end + 1, 1);
    if (record->text_size > 0) /* the text of an empty record may be NULL */
        memcpy(chunk->bytes + begin, record->text, record->text_size);
    chunk->text_at[++chunk->n] = end;
    chunk->is_full |= chunk->n == limit;
    return CLI_OK;
}

static int finish(struct cli_text_chunk *chunk, struct cli_output *output)
{
    int result = chunk->n > 0 ? chunk->write(chunk->user) : CLI_OK;

    chunk->n_texts += chunk->n;
    chunk->n = 0;
    chunk->is_full = false;
    if (result == CLI_OK && fflush(output->stream))
        result = cli_output_check(output);
    return result;
}

int cli_chunks_run(struct cli_text_chunk *chunk, struct cli_input *input, struct cli_output *output,
                   const struct cli_args *args)
{
    const size_t limit =
        args->batch && args->batch < CLI_CHUNK_TEXTS ? args->batch : CLI_CHUNK_TEXTS;
    struct cli_progress progress;
    struct cli_record record;
    int found = 1, result = CLI_OK;

    cli_progress_begin(&progress, "texts", args->quiet);
    while (result == CLI_OK && found > 0) {
        if (chunk->is_full || (chunk->n > 0 && cli_input_would_wait(input))) {
            result = finish(chunk, output);
            cli_progress_update(&progress, (double)chunk->n_texts,
                                cli_reader_share(&input->reader));
            continue;
        }
        found = cli_input_next(input, &record);
        if (found > 0)
            result = add_text(chunk, &record, limit);
    }
    if (result == CLI_OK)
        result = finish(chunk, output);
    cli_progress_end(&progress);
    return found < 0 ? CLI_FAILED : result;
}

int cli_chunk_fail(const struct cli_text_chunk *chunk, const gpuserve_error *error)
{
    char *where = cli_format("texts %zu to %zu", chunk->n_texts + 1, chunk->n_texts + chunk->n);

    cli_fail_with(error, where);
    free(where);
    return CLI_FAILED;
}

void cli_wait_busy(const gpuserve_error *error)
{
    const uint32_t ms = error->retry_after_ms ? error->retry_after_ms : BUSY_WAIT_MS;
    const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

    nanosleep(&pause, NULL);
}

/* --------------------------------------------------------------------------------- parts of a line
 */

char *cli_split_labels(const char *given, const char ***labels, size_t *n_labels)
{
    char *const bytes = cli_format("%s", given);
    const char **found;
    size_t n = 1;

    for (const char *c = given; *c; c++)
        n += *c == ',';
    found = cli_alloc(n, sizeof(*found));
    n = 0;
    for (char *at = bytes; at;) {
        char *comma = strchr(at, ','), *end = comma ? comma : at + strlen(at);

        at += strspn(at, " ");
        while (end > at && end[-1] == ' ')
            end--;
        *end = '\0';
        found[n++] = at;
        at = comma ? comma + 1 : NULL;
    }
    *labels = found;
    *n_labels = n;
    return bytes;
}

void cli_write_text(FILE *out, const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);

    if (!value || json_dumpf(value, out, JSON_ENCODE_ANY) != 0)
        fputs("null", out); /* out of memory or disk full: a write error is detected at the end */
    json_decref(value);
}

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}

/* Backward as well as forward, never from the start again: entities may be nested. */
size_t cli_characters_to(const char *text, size_t end, struct cli_position *position)
{
    for (; position->byte > end; position->byte--)
        position->n_characters -= begins_character(text[position->byte - 1]);
    for (; position->byte < end; position->byte++)
        position->n_characters += begins_character(text[position->byte]);
    return position->n_characters;
}
