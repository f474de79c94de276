/*
 * label_entities.c - named entities of texts, of the labels that --labels gives.
 *
 *   texts of a chunk -> query -> entities -> one line per text
 *
 * A chunk ends at CHUNK_BYTES too. Single-threaded.
 */
#include "cli/io/entity_texts.h"

#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (1u << 20)

struct finder {
    gpuserve_model *model;
    struct cli_output *output;
    const struct cli_args *args;
    char *label_bytes;   /* those of --labels, with NULs for commas */
    const char **labels; /* [n_labels] */
    size_t n_labels;
    struct cli_text_chunk texts;
    size_t n_cut;
};

static void write_entities(struct finder *finder, const gpuserve_entity_query *query, size_t i)
{
    const char *text = finder->texts.bytes + finder->texts.text_at[i];
    struct cli_position position = { 0 };
    FILE *out = finder->output->stream;
    uint32_t truncated;
    size_t n;
    const gpuserve_found_entity *found = gpuserve_entity_query_found(query, i, &n, &truncated);

    fputs("{\"entities\":[", out);
    for (size_t j = 0; j < n; j++) {
        const char *label = finder->labels[found[j].label];

        fputs(j > 0 ? ",{\"entity_group\":" : "{\"entity_group\":", out);
        cli_write_text(out, label, strlen(label));
        fputs(",\"score\":", out);
        cli_output_floats(finder->output, &found[j].score, 1, "");
        fputs(",\"word\":", out);
        cli_write_text(out, text + found[j].begin, found[j].end - found[j].begin);
        fprintf(out, ",\"start\":%zu", cli_characters_to(text, found[j].begin, &position));
        fprintf(out, ",\"end\":%zu}", cli_characters_to(text, found[j].end, &position));
    }
    fputs("]}\n", out);
    finder->n_cut += truncated;
}

static gpuserve_status run(gpuserve_entity_query *query, gpuserve_error *error)
{
    gpuserve_status status;

    while ((status = gpuserve_entity_query_run(query, NULL, error)) == GPUSERVE_E_BUSY)
        cli_wait_busy(error);
    return status;
}

static int find(void *user)
{
    struct finder *finder = user;
    const struct cli_text_chunk *chunk = &finder->texts;
    gpuserve_entity_request request = GPUSERVE_ENTITY_REQUEST_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity_query *query = NULL;
    const char *texts[CLI_CHUNK_TEXTS];
    size_t sizes[CLI_CHUNK_TEXTS];
    gpuserve_status status;

    for (size_t i = 0; i < chunk->n; i++) {
        texts[i] = chunk->bytes + chunk->text_at[i];
        sizes[i] = chunk->text_at[i + 1] - chunk->text_at[i];
    }
    request.texts = texts;
    request.text_sizes = sizes;
    request.n_texts = chunk->n;
    request.labels = finder->labels;
    request.n_labels = finder->n_labels;
    request.threshold = (float)finder->args->threshold;
    request.overlap = finder->args->nested ? GPUSERVE_OVERLAP_NESTED : GPUSERVE_OVERLAP_FLAT;
    request.multi_label = finder->args->multi_label;
    request.truncation = finder->args->truncate;
    status = gpuserve_entity_query_create(&query, finder->model, &request, &error);
    if (status == GPUSERVE_OK)
        status = run(query, &error);
    for (size_t i = 0; i < chunk->n && status == GPUSERVE_OK; i++)
        write_entities(finder, query, i);
    gpuserve_entity_query_free(&query);
    return status == GPUSERVE_OK ? CLI_OK : cli_chunk_fail(chunk, &error);
}

static int add_text(void *user, const struct cli_record *record)
{
    struct finder *finder = user;
    const struct cli_text_chunk *texts = &finder->texts;

    finder->texts.is_full = texts->text_at[texts->n] + record->text_size > CHUNK_BYTES;
    return CLI_OK;
}

int cli_label_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                       const struct cli_args *args)
{
    struct finder finder = { .model = model, .output = output, .args = args };
    int result;

    if (args->pairs || args->top || args->score)
        return cli_usage("%s finds entities: --pairs, --top and --raw are not valid", args->model);
    if (!args->labels)
        return cli_usage("%s finds entities of the labels in --labels, which is missing",
                         args->model);
    finder.label_bytes = cli_split_labels(args->labels, &finder.labels, &finder.n_labels);
    finder.texts = (struct cli_text_chunk){ .add = add_text, .write = find, .user = &finder };
    result = cli_chunks_run(&finder.texts, input, output, args);
    if (result == CLI_OK && finder.n_cut > 0 && !args->quiet)
        cli_warn("%zu of %zu texts were over the model's limit of words or tokens and were cut",
                 finder.n_cut, finder.texts.n_texts);
    free(finder.label_bytes);
    free(finder.labels);
    free(finder.texts.bytes);
    return result;
}
