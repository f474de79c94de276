/*
 * rerank.c - `gpuserve rerank`: documents sorted by relevance to a query, best first.
 *
 * All documents are read into memory, scored in one library call, and printed in order.
 */
#include "cli/io/input.h"
#include "cli/model.h"
#include "cli/io/output.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DOCUMENTS 1000000 /* all are in memory for sorting */

struct documents {
    char **texts; /* [n] owned, NUL-terminated, but may contain NUL bytes */
    size_t *sizes;
    float *scores;
    size_t *order;
    gpuserve_item *items;
    size_t n, capacity;
};

static int add_document(struct documents *d, const struct cli_record *record)
{
    size_t capacity = d->capacity;

    if (d->n == MAX_DOCUMENTS)
        return cli_fail("the input has more than %d documents", MAX_DOCUMENTS);
    d->texts = cli_grow(d->texts, &capacity, d->n + 1, sizeof(*d->texts));
    d->sizes = cli_grow(d->sizes, &d->capacity, d->n + 1, sizeof(*d->sizes));
    d->texts[d->n] = cli_copy(record->text, record->text_size);
    d->sizes[d->n++] = record->text_size;
    return CLI_OK;
}

/* The query is the first argument; documents come from the other arguments or the input. */
static int read_documents(struct documents *d, const struct cli_args *args)
{
    struct cli_args after_query = *args;
    struct cli_input input;
    struct cli_record record;
    int found, result;

    after_query.rest++;
    after_query.n_rest--;
    result = cli_input_from(&input, &after_query, false);
    if (result != CLI_OK)
        return result;
    while ((found = cli_input_next(&input, &record)) > 0 && result == CLI_OK)
        result = add_document(d, &record);
    cli_input_close(&input);
    if (found < 0 || result != CLI_OK)
        return CLI_FAILED;
    return d->n > 0 ? CLI_OK
                    : cli_fail("no documents: give them after the query, with --input FILE or on "
                               "standard input");
}

static void free_documents(struct documents *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->texts[i]);
    free(d->texts);
    free(d->sizes);
    free(d->scores);
    free(d->order);
    free(d->items);
}

static int rank(struct documents *d, gpuserve_model *model, const struct cli_args *args)
{
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    d->scores = cli_alloc(d->n, sizeof(*d->scores));
    d->order = cli_alloc(d->n, sizeof(*d->order));
    d->items = cli_alloc(d->n, sizeof(*d->items));
    options.method = args->rerank_method;
    options.score = args->score;
    options.top_n = args->top;
    options.query_prompt = args->prompt;
    options.document_sizes = d->sizes;
    job.truncation = args->truncate;
    job.items = d->items;
    if (gpuserve_rerank(model, args->rest[0], (const char *const *)d->texts, d->n, d->scores,
                        d->order, d->n, &options, &job, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    return CLI_OK;
}

static int write_json(struct cli_output *output, const struct documents *d, size_t i)
{
    json_t *text = json_stringn(d->texts[i], d->sizes[i]);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

    json_decref(text);
    if (!quoted)
        return cli_fail("out of memory");
    fprintf(output->stream, "{\"index\":%zu,\"score\":", i);
    cli_output_floats(output, &d->scores[i], 1, "");
    fprintf(output->stream, ",\"text\":%s}\n", quoted);
    free(quoted);
    return cli_output_check(output);
}

static int write_text(struct cli_output *output, const struct documents *d, size_t i)
{
    fprintf(output->stream, "%8.4f  ", (double)d->scores[i]);
    fwrite(d->texts[i], 1, d->sizes[i], output->stream);
    fputc('\n', output->stream);
    return cli_output_check(output);
}

static void remark_truncated(const struct documents *d, const gpuserve_model *model,
                             const struct cli_args *args)
{
    size_t n = 0;

    for (size_t i = 0; i < d->n; i++)
        n += d->items[i].truncated;
    if (n > 0 && !args->quiet)
        cli_warn("%zu of %zu documents were longer than %zu tokens%s and were cut", n, d->n,
                 gpuserve_model_max_tokens(model),
                 cli_model_properties(model).rerank_method == GPUSERVE_RERANK_CROSS_ENCODER
                     ? " with the query"
                     : "");
}

/* As in embed, a .txt file is for humans. */
static bool writes_text(const struct cli_args *args)
{
    const char *const dot = args->output ? strrchr(args->output, '.') : NULL;

    return args->format == CLI_TEXT || (!args->format && dot && strcmp(dot, ".txt") == 0);
}

static int rerank(struct documents *d, gpuserve_model *model, const struct cli_args *args)
{
    struct cli_output output = { 0 };
    const size_t top = args->top && args->top < d->n ? args->top : d->n;
    int result = rank(d, model, args);

    if (result == CLI_OK)
        result = cli_output_open(&output, args->output);
    for (size_t i = 0; i < top && result == CLI_OK; i++)
        result = writes_text(args) ? write_text(&output, d, d->order[i])
                                   : write_json(&output, d, d->order[i]);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    if (result == CLI_OK)
        remark_truncated(d, model, args);
    return result;
}

int cli_rerank(const struct cli_args *args)
{
    struct documents documents = { 0 };
    gpuserve_model *model = NULL;
    int result;

    if (args->n_rest == 0) {
        cli_usage("the query is missing");
        cli_hint("give the query as the first argument, and the documents as the other arguments "
                 "or with --input FILE");
        return CLI_USAGE;
    }
    if (args->format == CLI_NPY)
        return cli_usage("rerank writes json or text, not npy");
    if (!cli_is_utf8(args->rest[0], strlen(args->rest[0])))
        return cli_fail("the query is not UTF-8");
    result = cli_output_suffix(args, "rerank", ".json .jsonl .txt");
    if (result != CLI_OK)
        return result;
    result = read_documents(&documents, args);
    if (result == CLI_OK)
        result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = rerank(&documents, model, args);
    gpuserve_model_close(&model);
    free_documents(&documents);
    return result;
}
