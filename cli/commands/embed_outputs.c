/*
 * embed_outputs.c - `gpuserve embed --outputs LIST`: several outputs of each text from one pass, as
 * JSON lines.
 *
 *   {"index":0,"n_tokens":5,"truncated":false,"embedding":[..],"sparse":{"indices":[..],
 *    "values":[..]},"colbert":[[..],..],"labels":[{"label":"..","score":0.9},..]}
 *
 * With several heads: "heads":{"NAME":[{"label":"..","score":0.9},..],..} in place of "labels".
 */
#include "cli/commands/embed.h"

#include "cli/io/output.h"
#include "cli/io/pipeline.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

/* Floats of a chunk, as if each text had the most tokens; pages that no token needs stay unused. */
#define CHUNK_FLOATS ((size_t)1 << 24)
#define CHUNK_TEXTS 512

enum kind { DENSE, SPARSE, COLBERT, LABELS, N_KINDS };

static const struct {
    const char *name; /* in --outputs */
    uint32_t task;
} kinds[N_KINDS] = {
    [DENSE] = { "dense", GPUSERVE_TASK_EMBED },
    [SPARSE] = { "sparse", GPUSERVE_TASK_SPARSE },
    [COLBERT] = { "colbert", GPUSERVE_TASK_TOKEN_VECTORS },
    [LABELS] = { "labels", GPUSERVE_TASK_CLASSIFY },
};

struct outputs {
    gpuserve_model *model;
    gpuserve_model_properties properties;
    struct cli_output output;
    struct cli_progress progress;
    enum kind list[N_KINDS]; /* [n] in the order of `kinds` */
    size_t n;
    size_t columns[N_KINDS];
    size_t first_vector; /* of a text's token vectors in late interaction */
    uint32_t *indices;   /* [columns[SPARSE]] */
    float *values;
};

static bool is_wanted(const struct outputs *outputs, enum kind kind)
{
    for (size_t i = 0; i < outputs->n; i++)
        if (outputs->list[i] == kind)
            return true;
    return false;
}

/* ---------------------------------------------------------------------------------------- names */

static enum kind find(const char *name, size_t size)
{
    enum kind kind = DENSE;

    while (kind < N_KINDS &&
           (strlen(kinds[kind].name) != size || memcmp(kinds[kind].name, name, size) != 0))
        kind++;
    return kind;
}

/* Parses the comma-separated list of --outputs. */
static int read_list(struct outputs *outputs, const char *text)
{
    bool wanted[N_KINDS] = { false };
    const char *at = text;

    for (;;) {
        const size_t size = strcspn(at, ",");
        const enum kind kind = find(at, size);

        if (kind == N_KINDS)
            return cli_usage("--outputs: \"%.*s\" is not one of dense, sparse, colbert, labels",
                             size < 40 ? (int)size : 40, at);
        if (wanted[kind])
            return cli_usage("--outputs: \"%s\" is given twice", kinds[kind].name);
        wanted[kind] = true;
        if (!at[size])
            break;
        at += size + 1;
    }
    for (enum kind kind = DENSE; kind < N_KINDS; kind++)
        if (wanted[kind])
            outputs->list[outputs->n++] = kind;
    return CLI_OK;
}

static bool has(const struct outputs *outputs, enum kind kind)
{
    return outputs->properties.tasks >> kinds[kind].task & 1;
}

static int check_model(const struct outputs *outputs, const struct cli_args *args)
{
    char had[64] = "";

    for (enum kind kind = DENSE; kind < N_KINDS; kind++)
        if (has(outputs, kind))
            snprintf(had + strlen(had), sizeof(had) - strlen(had), "%s%s", *had ? ", " : "",
                     kinds[kind].name);
    for (size_t i = 0; i < outputs->n; i++)
        if (!has(outputs, outputs->list[i]))
            return cli_fail("%s: --outputs has \"%s\", which the model does not have: it has %s",
                            args->model, kinds[outputs->list[i]].name, *had ? had : "none of them");
    return CLI_OK;
}

/* --------------------------------------------------------------------------------------- output */

static void write_sparse(struct outputs *outputs, const float *row)
{
    const size_t columns = outputs->columns[SPARSE];
    const size_t n =
        gpuserve_sparse_compact(row, columns, outputs->indices, outputs->values, columns);
    FILE *out = outputs->output.stream;

    fputs(",\"sparse\":{\"indices\":[", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%u", i ? "," : "", outputs->indices[i]);
    fputs("],\"values\":[", out);
    cli_output_floats(&outputs->output, outputs->values, n, ",");
    fputs("]}", out);
}

static void write_vectors(struct outputs *outputs, const float *rows, size_t n)
{
    const size_t columns = outputs->columns[COLBERT];

    fputs(",\"colbert\":[", outputs->output.stream);
    for (size_t i = outputs->first_vector; i < n; i++) {
        fputs(i > outputs->first_vector ? ",[" : "[", outputs->output.stream);
        cli_output_floats(&outputs->output, rows + i * columns, columns, ",");
        fputc(']', outputs->output.stream);
    }
    fputc(']', outputs->output.stream);
}

static void write_string(FILE *out, const char *text)
{
    json_t *string = json_string(text);

    if (!string || json_dumpf(string, out, JSON_ENCODE_ANY) != 0)
        fputs("null", out); /* a write error is detected at the end */
    json_decref(string);
}

static void write_label(struct outputs *outputs, const char *label, const float *score,
                        bool is_first)
{
    FILE *out = outputs->output.stream;

    fputs(is_first ? "{\"label\":" : ",{\"label\":", out);
    write_string(out, label);
    fputs(",\"score\":", out);
    cli_output_floats(&outputs->output, score, 1, "");
    fputc('}', out);
}

/* Several heads: an object of lists, by the head's name. */
static void write_heads(struct outputs *outputs, const float *row)
{
    FILE *out = outputs->output.stream;
    gpuserve_head head = GPUSERVE_HEAD_INIT;

    fputs(",\"heads\":{", out);
    for (size_t k = 0; gpuserve_model_head(outputs->model, k, &head, NULL) == GPUSERVE_OK; k++) {
        fputs(k ? "," : "", out);
        write_string(out, head.name);
        fputs(":[", out);
        for (size_t i = 0; i < head.n_labels; i++)
            write_label(outputs, head.labels[i], row++, i == 0);
        fputc(']', out);
    }
    fputc('}', out);
}

static void write_labels(struct outputs *outputs, const float *row)
{
    if (outputs->properties.n_heads > 1) {
        write_heads(outputs, row);
        return;
    }
    fputs(",\"labels\":[", outputs->output.stream);
    for (size_t i = 0; i < outputs->columns[LABELS]; i++)
        write_label(outputs, gpuserve_model_label(outputs->model, i), row + i, i == 0);
    fputc(']', outputs->output.stream);
}

static void write_text(struct outputs *outputs, const struct cli_chunk *chunk, size_t i)
{
    FILE *out = outputs->output.stream;

    fprintf(out, "{\"index\":%zu,\"n_tokens\":%u,\"truncated\":%s", chunk->first + i,
            chunk->items[i].n_tokens, chunk->items[i].truncated ? "true" : "false");
    for (size_t k = 0; k < outputs->n; k++) {
        const enum kind kind = outputs->list[k];
        const float *rows = k == 0 ? chunk->rows : chunk->more[k - 1];
        const size_t row = kind == COLBERT ? chunk->token_offsets[i] : i;

        rows += row * outputs->columns[kind];
        if (kind == SPARSE) {
            write_sparse(outputs, rows);
        } else if (kind == COLBERT) {
            write_vectors(outputs, rows, chunk->token_offsets[i + 1] - row);
        } else if (kind == LABELS) {
            write_labels(outputs, rows);
        } else {
            fputs(",\"embedding\":[", out);
            cli_output_floats(&outputs->output, rows, outputs->columns[kind], ",");
            fputc(']', out);
        }
    }
    fputs("}\n", out);
}

static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct outputs *outputs = user;

    cli_progress_update(&outputs->progress, (double)(chunk->first + chunk->n), chunk->share);
    for (size_t i = 0; i < chunk->n; i++)
        write_text(outputs, chunk, i);
    return fflush(outputs->output.stream) ? cli_output_check(&outputs->output) : CLI_OK;
}

/* ------------------------------------------------------------------------------------------ run */

/* Labels of the classifier, or of all heads. */
static size_t label_columns(const gpuserve_model *model)
{
    gpuserve_head head = GPUSERVE_HEAD_INIT;
    size_t n = 0;

    for (size_t i = 0; gpuserve_model_head(model, i, &head, NULL) == GPUSERVE_OK; i++)
        n += head.n_labels;
    return n > 0 ? n : gpuserve_model_label_count(model);
}

static int set_columns(struct outputs *outputs, const struct cli_args *args)
{
    if (is_wanted(outputs, DENSE) &&
        cli_vector_dim(&outputs->columns[DENSE], outputs->model, args) != CLI_OK)
        return CLI_FAILED;
    outputs->columns[SPARSE] = outputs->properties.sparse_dim;
    outputs->columns[COLBERT] = outputs->properties.token_dim;
    outputs->columns[LABELS] = label_columns(outputs->model);
    outputs->first_vector = outputs->properties.first_vector;
    outputs->indices = cli_alloc(outputs->columns[SPARSE] + 1, sizeof(*outputs->indices));
    outputs->values = cli_alloc(outputs->columns[SPARSE] + 1, sizeof(*outputs->values));
    return CLI_OK;
}

static int run(struct outputs *outputs, struct cli_input *input, const struct cli_args *args)
{
    struct cli_pump pump = { .model = outputs->model, .job = GPUSERVE_JOB_INIT };
    gpuserve_output more[N_KINDS] = { { 0 } };
    size_t floats = 1; /* of a text, for the chunk size; never 0 */
    int result;

    pump.job.task = kinds[outputs->list[0]].task;
    if (is_wanted(outputs, LABELS) && outputs->properties.n_heads > 1)
        pump.job.heads = "*";
    pump.job.more = more;
    pump.job.n_more = outputs->n - 1;
    pump.by_token = is_wanted(outputs, COLBERT);
    for (size_t i = 0; i < outputs->n; i++) {
        const enum kind kind = outputs->list[i];
        const size_t n =
            outputs->columns[kind] * (kind == COLBERT ? outputs->properties.max_tokens : 1);

        *(i == 0 ? &pump.row_floats : &pump.more_floats[i - 1]) = n;
        if (i > 0)
            more[i - 1].task = kinds[kind].task;
        floats += n;
    }
    cli_vector_options(&pump.job, args);
    pump.chunk_texts = CHUNK_FLOATS / floats < CHUNK_TEXTS ? CHUNK_FLOATS / floats : CHUNK_TEXTS;
    if (pump.chunk_texts == 0)
        pump.chunk_texts = 1;
    if (args->batch && args->batch < pump.chunk_texts)
        pump.chunk_texts = args->batch;
    pump.sink = write_chunk;
    pump.user = outputs;
    cli_pump_from_input(&pump, input);
    cli_progress_begin(&outputs->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&outputs->progress);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}

static int open_all(struct outputs *outputs, const struct cli_args *args)
{
    int result = cli_model_open(&outputs->model, args);

    if (result == CLI_OK) {
        outputs->properties = cli_model_properties(outputs->model);
        result = check_model(outputs, args);
    }
    if (result == CLI_OK)
        result = set_columns(outputs, args);
    return result == CLI_OK ? cli_output_open(&outputs->output, args->output) : result;
}

int cli_embed_outputs(const struct cli_args *args)
{
    struct outputs outputs = { 0 };
    struct cli_input input;
    int result = read_list(&outputs, args->outputs);

    if (result != CLI_OK)
        return result;
    if (!is_wanted(&outputs, DENSE) && (args->dimensions || args->normalize))
        return cli_usage("--dimensions and --normalize are of the dense output, which --outputs "
                         "does not have");
    if (!is_wanted(&outputs, LABELS) && args->heads.n)
        return cli_usage("--head needs the output labels: --outputs dense,labels");
    result = cli_input_from(&input, args, false);
    if (result != CLI_OK)
        return result;
    result = open_all(&outputs, args);
    if (result == CLI_OK)
        result = run(&outputs, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&outputs.output);
    cli_output_abandon(&outputs.output);
    free(outputs.indices);
    free(outputs.values);
    gpuserve_model_close(&outputs.model);
    cli_input_close(&input);
    return result;
}
