/*
 * entities.c - named entities of texts by a token classification model.
 *
 *   texts of a chunk -> tokens -> one job -> scores of each token -> entities -> one line per text
 *
 * The number of score rows of a text is known only after tokenization. A chunk ends at CHUNK_TOKENS
 * too. Single-threaded.
 */
#include "cli/io/entity_texts.h"

#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_TOKENS 16384

/* The tokens of a chunk's texts. */
struct chunk {
    size_t token_at[CLI_CHUNK_TEXTS + 1];
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
    struct cli_text_chunk texts;
    struct chunk chunk;
    size_t n_cut;
};

bool cli_labels_tokens(const gpuserve_model *model)
{
    return cli_model_properties(model).tasks >> GPUSERVE_TASK_TOKEN_LABELS & 1;
}

bool cli_takes_labels(const gpuserve_model *model)
{
    return cli_model_properties(model).finds_entities == 1;
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

static int add_text(void *user, const struct cli_record *record)
{
    struct tagger *tagger = user;
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct chunk *chunk = &tagger->chunk;
    const size_t i = tagger->texts.n, begin = chunk->token_at[i];
    size_t n = 0;

    options.max_tokens = (uint32_t)tagger->max_tokens;
    options.truncation = tagger->args->truncate;
    reserve_tokens(chunk, begin + tagger->max_tokens);
    if (gpuserve_tokenize(tagger->model, record->text, record->text_size, chunk->ids + begin,
                          chunk->spans + begin, tagger->max_tokens, &n, &options,
                          &error) != GPUSERVE_OK)
        return fail_here(tagger, &error);
    tagger->n_cut += is_cut(tagger, record, n);
    chunk->token_at[i + 1] = begin + n;
    tagger->texts.is_full = chunk->token_at[i + 1] > CHUNK_TOKENS;
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------- scores */

static int compute(struct tagger *tagger)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct chunk *chunk = &tagger->chunk;
    const size_t n_texts = tagger->texts.n;
    const size_t n_floats = chunk->token_at[n_texts] * tagger->n_labels;
    size_t rows[CLI_CHUNK_TEXTS + 1];
    gpuserve_status status;

    chunk->scores =
        cli_grow(chunk->scores, &chunk->scores_capacity, n_floats, sizeof(*chunk->scores));
    job.task = GPUSERVE_TASK_TOKEN_LABELS;
    job.score = tagger->args->score;
    job.n_items = n_texts;
    job.ids = chunk->ids;
    job.id_offsets = chunk->token_at;
    job.token_offsets = rows;
    job.output = chunk->scores;
    job.output_capacity = n_floats;
    while ((status = gpuserve_run(tagger->model, &job, &error)) == GPUSERVE_E_BUSY)
        cli_wait_busy(&error);
    return status == GPUSERVE_OK ? CLI_OK : cli_chunk_fail(&tagger->texts, &error);
}

/* ------------------------------------------------------------------------------------- output */

/* One text of the chunk. */
struct cli_entities_reading {
    const char *text;
    size_t size, n_tokens;
    const int32_t *ids;
    const gpuserve_span *spans;
    struct cli_position position;
};

static bool is_ignored(const struct cli_args *args, const char *name)
{
    const struct cli_list *ignored = &args->ignored_labels;

    for (size_t i = 0; i < ignored->n; i++) {
        if (strcmp(ignored->items[i], name) == 0)
            return true;
    }
    return ignored->n == 0 && strcmp(name, "O") == 0;
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
        cli_write_text(tagger->output->stream, word, strlen(word));
    free(word);
    return status == GPUSERVE_OK ? CLI_OK : cli_chunk_fail(&tagger->texts, &error);
}

static int write_entity(const struct tagger *tagger, struct cli_entities_reading *r,
                        const gpuserve_entity *entity, const char *name)
{
    const bool grouped = tagger->aggregation != GPUSERVE_AGGREGATION_NONE;
    FILE *out = tagger->output->stream;
    int result;

    fputs(grouped ? "{\"entity_group\":" : "{\"entity\":", out);
    cli_write_text(out, name, strlen(name));
    fputs(",\"score\":", out);
    cli_output_floats(tagger->output, &entity->score, 1, "");
    if (!grouped)
        fprintf(out, ",\"index\":%u", entity->first);
    fputs(",\"word\":", out);
    result = write_word(tagger, r, entity);
    fprintf(out, ",\"start\":%zu",
            cli_characters_to(r->text, r->spans[entity->first].begin, &r->position));
    fprintf(out, ",\"end\":%zu}",
            cli_characters_to(r->text, r->spans[entity->last].end, &r->position));
    return result;
}

static int write_entities(struct tagger *tagger, size_t i)
{
    struct chunk *chunk = &tagger->chunk;
    const size_t first = chunk->token_at[i];
    const struct cli_text_chunk *texts = &tagger->texts;
    struct cli_entities_reading r = { .text = texts->bytes + texts->text_at[i],
                                      .size = texts->text_at[i + 1] - texts->text_at[i],
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
        return cli_chunk_fail(&tagger->texts, &error);
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

static int write_chunk(void *user)
{
    struct tagger *tagger = user;
    int result = compute(tagger);

    for (size_t i = 0; i < tagger->texts.n && result == CLI_OK; i++)
        result = write_entities(tagger, i);
    return result;
}

int cli_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                 const struct cli_args *args)
{
    struct tagger tagger = { .model = model, .input = input, .output = output, .args = args };
    int result;

    if (args->pairs || args->top)
        return cli_usage("%s labels tokens: --pairs and --top are not valid", args->model);
    tagger.aggregation = args->aggregation ? args->aggregation - 1 : GPUSERVE_AGGREGATION_SIMPLE;
    tagger.max_tokens = gpuserve_model_max_tokens(model);
    tagger.n_labels = gpuserve_model_label_count(model);
    tagger.texts =
        (struct cli_text_chunk){ .add = add_text, .write = write_chunk, .user = &tagger };
    result = cli_chunks_run(&tagger.texts, input, output, args);
    if (result == CLI_OK && tagger.n_cut > 0 && !args->quiet)
        cli_warn("%zu of %zu texts were longer than %zu tokens and were cut", tagger.n_cut,
                 tagger.texts.n_texts, tagger.max_tokens);
    free(tagger.texts.bytes);
    free(tagger.chunk.ids);
    free(tagger.chunk.spans);
    free(tagger.chunk.entities);
    free(tagger.chunk.scores);
    return result;
}
