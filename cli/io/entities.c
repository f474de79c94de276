/*
 * entities.c - named entities of texts by a token classification model.
 *
 *   texts of a chunk -> tokens -> one job -> scores of each token -> entities -> one line per text
 *
 * The number of score rows of a text is known only after tokenization. A chunk ends when it reaches
 * CHUNK_TOKENS or the limit of texts, or when reading the next text would block. Memory is bounded
 * by the chunk, for input of any length. Single-threaded.
 */
#include "cli/io/output.h"

#include "cli/model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHUNK_TEXTS 64
#define CHUNK_TOKENS 16384
#define BUSY_WAIT_MS 10

struct chunk {
    size_t n; /* texts */
    char *bytes;
    size_t n_bytes, bytes_capacity;
    size_t text_at[CHUNK_TEXTS + 1], token_at[CHUNK_TEXTS + 1];
    int32_t *ids; /* [capacity], like the next two arrays */
    gpuserve_span *spans;
    gpuserve_entity *entities;
    size_t capacity;
    float *scores; /* [scores_capacity], n_labels values per token */
    size_t scores_capacity;
};

struct tagger {
    gpuserve_model *model;
    struct cli_input *input;
    struct cli_output *output;
    const struct cli_args *args;
    uint32_t aggregation;
    size_t max_tokens, n_labels;
    size_t limit; /* max texts per chunk */
    struct chunk chunk;
    size_t n_texts, n_cut;
};

bool cli_labels_tokens(gpuserve_model *model)
{
    char *facts = cli_model_facts(model);
    json_t *json = facts ? json_loads(facts, 0, NULL) : NULL;
    const json_t *task;
    bool labels = false;
    size_t i;

    json_array_foreach(json_object_get(json, "tasks"), i, task)
    {
        labels |= json_is_string(task) && strcmp(json_string_value(task), "token_labels") == 0;
    }
    json_decref(json);
    free(facts);
    return labels;
}

/* ------------------------------------------------------------------------------------- tokens */

static int fail_here(const struct tagger *tagger, const gpuserve_error *error)
{
    char *where = cli_input_where(tagger->input);

    cli_fail_with(error, where);
    free(where);
    return CLI_FAILED;
}

static void reserve_tokens(struct chunk *chunk, size_t n_tokens)
{
    size_t capacity = chunk->capacity;

    chunk->ids = cli_grow(chunk->ids, &capacity, n_tokens, sizeof(*chunk->ids));
    capacity = chunk->capacity;
    chunk->spans = cli_grow(chunk->spans, &capacity, n_tokens, sizeof(*chunk->spans));
    chunk->entities =
        cli_grow(chunk->entities, &chunk->capacity, n_tokens, sizeof(*chunk->entities));
}

/* True if the text has more tokens than the model's limit. */
static bool is_cut(const struct tagger *tagger, const struct cli_record *record, size_t n)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;

    options.max_tokens = (uint32_t)tagger->max_tokens + 1;
    return n >= tagger->max_tokens &&
           gpuserve_tokenize(tagger->model, record->text, record->text_size, NULL, NULL, 0, &n,
                             &options, NULL) == GPUSERVE_OK &&
           n > tagger->max_tokens;
}

static int add_text(struct tagger *tagger, const struct cli_record *record)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct chunk *chunk = &tagger->chunk;
    const size_t begin = chunk->token_at[chunk->n];
    size_t n = 0;

    options.max_tokens = (uint32_t)tagger->max_tokens;
    options.truncation = tagger->args->truncate;
    reserve_tokens(chunk, begin + tagger->max_tokens);
    if (gpuserve_tokenize(tagger->model, record->text, record->text_size, chunk->ids + begin,
                          chunk->spans + begin, tagger->max_tokens, &n, &options,
                          &error) != GPUSERVE_OK)
        return fail_here(tagger, &error);
    tagger->n_cut += is_cut(tagger, record, n);
    chunk->bytes =
        cli_grow(chunk->bytes, &chunk->bytes_capacity, chunk->n_bytes + record->text_size + 1, 1);
    memcpy(chunk->bytes + chunk->n_bytes, record->text, record->text_size);
    chunk->n_bytes += record->text_size;
    chunk->n++;
    chunk->text_at[chunk->n] = chunk->n_bytes;
    chunk->token_at[chunk->n] = begin + n;
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------- scores */

static int fail_chunk(const struct tagger *tagger, const gpuserve_error *error)
{
    char *where =
        cli_format("texts %zu to %zu", tagger->n_texts + 1, tagger->n_texts + tagger->chunk.n);

    cli_fail_with(error, where);
    free(where);
    return CLI_FAILED;
}

static int compute(struct tagger *tagger)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct chunk *chunk = &tagger->chunk;
    const size_t n_floats = chunk->token_at[chunk->n] * tagger->n_labels;
    size_t rows[CHUNK_TEXTS + 1];
    gpuserve_status status;

    chunk->scores =
        cli_grow(chunk->scores, &chunk->scores_capacity, n_floats, sizeof(*chunk->scores));
    job.task = GPUSERVE_TASK_TOKEN_LABELS;
    job.score = tagger->args->score;
    job.n_items = chunk->n;
    job.ids = chunk->ids;
    job.id_offsets = chunk->token_at;
    job.token_offsets = rows;
    job.output = chunk->scores;
    job.output_capacity = n_floats;
    while ((status = gpuserve_run(tagger->model, &job, &error)) == GPUSERVE_E_BUSY) {
        const uint32_t ms = error.retry_after_ms ? error.retry_after_ms : BUSY_WAIT_MS;
        const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

        nanosleep(&pause, NULL);
    }
    return status == GPUSERVE_OK ? CLI_OK : fail_chunk(tagger, &error);
}

/* ------------------------------------------------------------------------------------- output */

/* One text of the chunk. */
struct cli_entities_reading {
    const char *text;
    size_t size, n_tokens;
    const int32_t *ids;
    const gpuserve_span *spans;
    size_t byte, n_characters; /* position of the last byte-to-character conversion */
};

static size_t characters_to(struct cli_entities_reading *r, size_t end)
{
    if (end < r->byte)
        r->byte = r->n_characters = 0;
    for (; r->byte < end; r->byte++)
        r->n_characters += ((unsigned char)r->text[r->byte] & 0xC0) != 0x80;
    return r->n_characters;
}

static bool is_ignored(const struct cli_args *args, const char *name)
{
    const struct cli_list *ignored = &args->ignored_labels;

    for (size_t i = 0; i < ignored->n; i++) {
        if (strcmp(ignored->items[i], name) == 0)
            return true;
    }
    return ignored->n == 0 && strcmp(name, "O") == 0;
}

static void write_text(FILE *out, const char *text)
{
    json_t *value = json_string(text);

    if (!value || json_dumpf(value, out, JSON_ENCODE_ANY) != 0)
        fputs("null", out); /* out of memory or disk full: a write error is detected at the end */
    json_decref(value);
}

static int write_word(const struct tagger *tagger, const struct cli_entities_reading *r,
                      const gpuserve_entity *entity)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    size_t capacity = 256, size = 0;
    char *word = cli_alloc(capacity, 1);

    while ((status = gpuserve_entity_word(tagger->model, entity, tagger->aggregation, r->text,
                                          r->size, r->ids, r->spans, r->n_tokens, word, capacity,
                                          &size, &error)) == GPUSERVE_E_TOO_LARGE &&
           size > capacity)
        word = cli_grow(word, &capacity, size, 1);
    if (status == GPUSERVE_OK)
        write_text(tagger->output->stream, word);
    free(word);
    return status == GPUSERVE_OK ? CLI_OK : fail_chunk(tagger, &error);
}

static int write_entity(const struct tagger *tagger, struct cli_entities_reading *r,
                        const gpuserve_entity *entity, const char *name)
{
    const bool grouped = tagger->aggregation != GPUSERVE_AGGREGATION_NONE;
    FILE *out = tagger->output->stream;
    int result;

    fputs(grouped ? "{\"entity_group\":" : "{\"entity\":", out);
    write_text(out, name);
    fputs(",\"score\":", out);
    cli_output_floats(tagger->output, &entity->score, 1, "");
    if (!grouped)
        fprintf(out, ",\"index\":%u", entity->first);
    fputs(",\"word\":", out);
    result = write_word(tagger, r, entity);
    fprintf(out, ",\"start\":%zu", characters_to(r, r->spans[entity->first].begin));
    fprintf(out, ",\"end\":%zu}", characters_to(r, r->spans[entity->last].end));
    return result;
}

static int write_entities(struct tagger *tagger, size_t i)
{
    struct chunk *chunk = &tagger->chunk;
    const size_t first = chunk->token_at[i];
    struct cli_entities_reading r = { .text = chunk->bytes + chunk->text_at[i],
                                      .size = chunk->text_at[i + 1] - chunk->text_at[i],
                                      .n_tokens = chunk->token_at[i + 1] - first,
                                      .ids = chunk->ids + first,
                                      .spans = chunk->spans + first };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const char *comma = "";
    size_t n = 0;
    int result = CLI_OK;

    if (gpuserve_entities(tagger->model, chunk->scores + first * tagger->n_labels, tagger->n_labels,
                          r.text, r.size, r.ids, r.spans, r.n_tokens, tagger->aggregation,
                          chunk->entities, &n, &error) != GPUSERVE_OK)
        return fail_chunk(tagger, &error);
    fputs("{\"entities\":[", tagger->output->stream);
    for (size_t j = 0; j < n && result == CLI_OK; j++) {
        const gpuserve_entity *entity = &chunk->entities[j];
        const char *name = gpuserve_entity_name(tagger->model, entity, tagger->aggregation);

        if (is_ignored(tagger->args, name))
            continue;
        fputs(comma, tagger->output->stream);
        comma = ",";
        result = write_entity(tagger, &r, entity, name);
    }
    fputs("]}\n", tagger->output->stream);
    return result;
}

static int finish_chunk(struct tagger *tagger)
{
    struct chunk *chunk = &tagger->chunk;
    int result = chunk->n > 0 ? compute(tagger) : CLI_OK;

    for (size_t i = 0; i < chunk->n && result == CLI_OK; i++)
        result = write_entities(tagger, i);
    tagger->n_texts += chunk->n;
    chunk->n = chunk->n_bytes = 0;
    if (result == CLI_OK && fflush(tagger->output->stream))
        result = cli_output_check(tagger->output);
    return result;
}

/* -------------------------------------------------------------------------------------- input */

static int read_all(struct tagger *tagger, struct cli_progress *progress)
{
    const struct cli_reader *reader = &tagger->input->reader;
    struct cli_record record;
    int found = 1, result = CLI_OK;

    while (result == CLI_OK && found > 0) {
        const struct chunk *chunk = &tagger->chunk;

        if (chunk->n == tagger->limit || chunk->token_at[chunk->n] > CHUNK_TOKENS ||
            (chunk->n > 0 && cli_input_would_wait(tagger->input))) {
            result = finish_chunk(tagger);
            cli_progress_update(progress, (double)tagger->n_texts, cli_reader_share(reader));
            continue;
        }
        found = cli_input_next(tagger->input, &record);
        if (found > 0)
            result = add_text(tagger, &record);
    }
    if (result == CLI_OK)
        result = finish_chunk(tagger); /* also writes the texts before an invalid record */
    return found < 0 ? CLI_FAILED : result;
}

int cli_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                 const struct cli_args *args)
{
    struct tagger tagger = { .model = model, .input = input, .output = output, .args = args };
    struct cli_progress progress;
    int result;

    if (args->pairs || args->top)
        return cli_usage("%s labels tokens: --pairs and --top are not valid", args->model);
    tagger.aggregation = args->aggregation ? args->aggregation - 1 : GPUSERVE_AGGREGATION_SIMPLE;
    tagger.max_tokens = gpuserve_model_max_tokens(model);
    tagger.n_labels = gpuserve_model_label_count(model);
    tagger.limit = args->batch && args->batch < CHUNK_TEXTS ? args->batch : CHUNK_TEXTS;
    cli_progress_begin(&progress, "texts", args->quiet);
    result = read_all(&tagger, &progress);
    cli_progress_end(&progress);
    if (result == CLI_OK && tagger.n_cut > 0 && !args->quiet)
        cli_warn("%zu of %zu texts were longer than %zu tokens and were cut", tagger.n_cut,
                 tagger.n_texts, tagger.max_tokens);
    free(tagger.chunk.bytes);
    free(tagger.chunk.ids);
    free(tagger.chunk.spans);
    free(tagger.chunk.entities);
    free(tagger.chunk.scores);
    return result;
}
