/*
 * late_similarity.c - MaxSim of all texts with each other, or of pairs.
 *
 *   matrix: token vectors of all texts as documents in memory, then the queries block by block
 *   pairs:  block by block, the first texts as queries, the second ones as documents
 */
#include "cli/commands/embed.h"

#include "cli/cli.h"
#include "cli/io/input.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 128          /* texts of a job */
#define MATRIX_TEXTS 10000 /* all token vectors are in memory */

struct late_texts {
    char **at; /* [n] owned */
    size_t *sizes;
    size_t n, capacity;
};

/* Token vectors of texts: those of text i begin at row offsets[i]. */
struct vectors {
    float *rows;
    size_t *offsets; /* [n + 1] */
    size_t n;
    size_t n_rows, capacity;
};

struct comparison {
    struct cli_output *output;
    gpuserve_model *model;
    const struct cli_args *args;
    size_t dim, max_tokens;
    float *block; /* [BLOCK * max_tokens, dim]; pages that no token needs stay unused */
    size_t n_truncated;
};

static void add_text(struct late_texts *texts, const char *text, size_t size)
{
    size_t capacity = texts->capacity;

    texts->at = cli_grow(texts->at, &capacity, texts->n + 1, sizeof(*texts->at));
    texts->sizes = cli_grow(texts->sizes, &texts->capacity, texts->n + 1, sizeof(*texts->sizes));
    texts->at[texts->n] = cli_copy(text, size);
    texts->sizes[texts->n++] = size;
}

static void clear_texts(struct late_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        free(texts->at[i]);
    texts->n = 0;
}

static void free_texts(struct late_texts *texts)
{
    clear_texts(texts);
    free(texts->at);
    free(texts->sizes);
}

static void free_vectors(struct vectors *vectors)
{
    free(vectors->rows);
    free(vectors->offsets);
}

static void append(struct comparison *c, struct vectors *to, const size_t *offsets, size_t n)
{
    const size_t n_rows = offsets[n];

    to->rows = cli_grow(to->rows, &to->capacity, to->n_rows + n_rows, c->dim * sizeof(*to->rows));
    memcpy(to->rows + to->n_rows * c->dim, c->block, n_rows * c->dim * sizeof(*to->rows));
    for (size_t i = 0; i < n; i++)
        to->offsets[to->n + i + 1] = to->n_rows + offsets[i + 1];
    to->n += n;
    to->n_rows += n_rows;
}

/* Append the token vectors of texts [first, first + n) in a role. */
static int add_block(struct comparison *c, const struct late_texts *texts, size_t first, size_t n,
                     const char *role, struct vectors *to)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_item items[BLOCK];
    size_t offsets[BLOCK + 1];

    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.prompt_name = role;
    job.truncation = c->args->truncate;
    job.n_items = n;
    job.texts = (const char *const *)texts->at + first;
    job.text_sizes = texts->sizes + first;
    job.items = items;
    job.token_offsets = offsets;
    job.output = c->block;
    job.output_capacity = n * c->max_tokens * c->dim;
    if (gpuserve_run(c->model, &job, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    for (size_t i = 0; i < n; i++)
        c->n_truncated += items[i].truncated;
    append(c, to, offsets, n);
    return CLI_OK;
}

static int add_all(struct comparison *c, const struct late_texts *texts, const char *role,
                   struct vectors *to)
{
    int result = CLI_OK;

    to->offsets = cli_alloc(texts->n + 1, sizeof(*to->offsets));
    for (size_t first = 0; first < texts->n && result == CLI_OK; first += BLOCK) {
        const size_t left = texts->n - first;

        result = add_block(c, texts, first, left < BLOCK ? left : BLOCK, role, to);
    }
    return result;
}

static float max_sim(const struct comparison *c, const struct vectors *queries, size_t i,
                     const struct vectors *documents, size_t j)
{
    return gpuserve_max_sim(queries->rows + queries->offsets[i] * c->dim,
                            queries->offsets[i + 1] - queries->offsets[i],
                            documents->rows + documents->offsets[j] * c->dim,
                            documents->offsets[j + 1] - documents->offsets[j], c->dim);
}

static int write_row(struct comparison *c, const struct vectors *queries, size_t i,
                     const struct vectors *documents, float *row)
{
    for (size_t j = 0; j < documents->n; j++)
        row[j] = max_sim(c, queries, i, documents, j);
    fprintf(c->output->stream, "{\"index\":%zu,\"similarity\":[", i);
    cli_output_floats(c->output, row, documents->n, ",");
    fputs("]}\n", c->output->stream);
    return cli_output_check(c->output);
}

static int write_matrix(struct comparison *c, const struct late_texts *texts)
{
    struct vectors queries = { 0 }, documents = { 0 };
    float *row = cli_alloc(texts->n, sizeof(*row));
    int result = add_all(c, texts, "query", &queries);

    if (result == CLI_OK)
        result = add_all(c, texts, "document", &documents);
    for (size_t i = 0; i < texts->n && result == CLI_OK; i++)
        result = write_row(c, &queries, i, &documents, row);
    free_vectors(&queries);
    free_vectors(&documents);
    free(row);
    return result;
}

static int compare_all(struct comparison *c, struct cli_input *input)
{
    struct late_texts texts = { 0 };
    struct cli_record record;
    int found = 1, result = CLI_OK;

    while (result == CLI_OK && (found = cli_input_next(input, &record)) > 0) {
        if (texts.n == MATRIX_TEXTS)
            result = cli_fail("the input has more than %d texts: the matrix of token vectors is "
                              "too large",
                              MATRIX_TEXTS);
        else
            add_text(&texts, record.text, record.text_size);
    }
    if (result == CLI_OK && found < 0)
        result = CLI_FAILED;
    if (result == CLI_OK)
        result = write_matrix(c, &texts);
    free_texts(&texts);
    return result;
}

static int write_pairs(struct comparison *c, const struct late_texts *first,
                       const struct late_texts *second)
{
    struct vectors queries = { 0 }, documents = { 0 };
    int result = add_all(c, first, "query", &queries);

    if (result == CLI_OK)
        result = add_all(c, second, "document", &documents);
    for (size_t i = 0; i < first->n && result == CLI_OK; i++) {
        const float score = max_sim(c, &queries, i, &documents, i);

        fputs("{\"similarity\":", c->output->stream);
        cli_output_floats(c->output, &score, 1, "");
        fputs("}\n", c->output->stream);
    }
    free_vectors(&queries);
    free_vectors(&documents);
    return result == CLI_OK && fflush(c->output->stream) ? cli_output_check(c->output) : result;
}

static int compare_pairs(struct comparison *c, struct cli_input *input)
{
    struct late_texts first = { 0 }, second = { 0 };
    struct cli_record record;
    int found = 1, result = CLI_OK;

    while (found > 0 && result == CLI_OK) {
        while (first.n < BLOCK && (found = cli_input_next(input, &record)) > 0) {
            add_text(&first, record.text, record.text_size);
            add_text(&second, record.second, record.second_size);
            if (cli_input_would_wait(input))
                break;
        }
        result = found < 0 ? CLI_FAILED : write_pairs(c, &first, &second);
        clear_texts(&first);
        clear_texts(&second);
    }
    free_texts(&first);
    free_texts(&second);
    return result;
}

int cli_late_similarity(struct cli_output *output, gpuserve_model *model, struct cli_input *input,
                        const struct cli_args *args)
{
    const gpuserve_model_properties properties = cli_model_properties(model);
    struct comparison c = {
        .output = output,
        .model = model,
        .args = args,
        .dim = properties.token_dim,
        .max_tokens = properties.max_tokens,
    };
    int result;

    c.block = cli_alloc(BLOCK * c.max_tokens * c.dim, sizeof(*c.block));
    result = args->pairs ? compare_pairs(&c, input) : compare_all(&c, input);
    free(c.block);
    if (result == CLI_OK && c.n_truncated > 0 && !args->quiet)
        cli_warn("%zu texts were too long and were cut", c.n_truncated);
    return result;
}
