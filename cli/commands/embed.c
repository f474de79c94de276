/*
 * embed.c - `gpuserve embed`: one vector per text, as JSON lines, .npy or plain numbers.
 *
 * With --sparse the output is the nonzero vocabulary weights of each text (indices and values).
 */
#include "cli/model.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"

#include <stdlib.h>
#include <string.h>

#define SPARSE_TEXTS 64 /* rows are as wide as the vocabulary, so chunks are small */

struct embed {
    const struct cli_input *input;
    struct cli_output output;
    struct cli_progress progress;
    uint32_t format;
    size_t dim;
    bool sparse;
    uint32_t *indices; /* [dim] */
    float *values;
};

static uint32_t output_format(const struct cli_args *args)
{
    const char *dot = args->output ? strrchr(args->output, '.') : NULL;

    if (args->format)
        return args->format;
    if (dot && strcmp(dot, ".npy") == 0)
        return CLI_NPY;
    return dot && strcmp(dot, ".txt") == 0 ? CLI_TEXT : CLI_JSON;
}

static void write_json(struct cli_output *output, const struct cli_chunk *chunk, size_t i,
                       size_t dim)
{
    fprintf(output->stream, "{\"index\":%zu,\"n_tokens\":%u,\"truncated\":%s,\"embedding\":[",
            chunk->first + i, chunk->items[i].n_tokens,
            chunk->items[i].truncated ? "true" : "false");
    cli_output_floats(output, chunk->rows + i * dim, dim, ",");
    fputs("]}\n", output->stream);
}

static void write_sparse(struct embed *embed, const struct cli_chunk *chunk, size_t i)
{
    const size_t n = gpuserve_sparse_compact(chunk->rows + i * embed->dim, embed->dim,
                                             embed->indices, embed->values, embed->dim);
    FILE *out = embed->output.stream;

    fprintf(out, "{\"index\":%zu,\"n_tokens\":%u,\"truncated\":%s,\"indices\":[", chunk->first + i,
            chunk->items[i].n_tokens, chunk->items[i].truncated ? "true" : "false");
    for (size_t j = 0; j < n; j++)
        fprintf(out, "%s%u", j ? "," : "", embed->indices[j]);
    fputs("],\"values\":[", out);
    cli_output_floats(&embed->output, embed->values, n, ",");
    fputs("]}\n", out);
}

static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct embed *embed = user;

    cli_progress_update(&embed->progress, (double)(chunk->first + chunk->n), chunk->share);
    if (embed->format == CLI_NPY)
        return cli_npy_rows(&embed->output, chunk->rows, chunk->n, embed->dim);
    for (size_t i = 0; i < chunk->n; i++) {
        if (embed->sparse) {
            write_sparse(embed, chunk, i);
            continue;
        }
        if (embed->format == CLI_JSON) {
            write_json(&embed->output, chunk, i, embed->dim);
            continue;
        }
        cli_output_floats(&embed->output, chunk->rows + i * embed->dim, embed->dim, " ");
        fputc('\n', embed->output.stream);
    }
    if (fflush(embed->output.stream)) /* a reader of the pipe gets each chunk at once */
        return cli_output_check(&embed->output);
    return CLI_OK;
}

static int embed_input(struct embed *embed, gpuserve_model *model, struct cli_input *input,
                       const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    pump.job.task = embed->sparse ? GPUSERVE_TASK_SPARSE : GPUSERVE_TASK_EMBED;
    pump.job.dimensions = args->dimensions;
    pump.job.normalize = args->normalize;
    pump.job.truncation = args->truncate;
    pump.job.prompt = args->prompt;
    pump.job.prompt_name = args->prompt_name;
    pump.row_floats = embed->dim;
    pump.chunk_texts = args->batch;
    if (embed->sparse && !args->batch)
        pump.chunk_texts = SPARSE_TEXTS;
    pump.sink = write_chunk;
    pump.user = embed;
    cli_pump_from_input(&pump, input);
    if (embed->format == CLI_NPY && cli_npy_begin(&embed->output, embed->dim) != CLI_OK)
        return CLI_FAILED;
    cli_progress_begin(&embed->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&embed->progress);
    if (result == CLI_OK && embed->format == CLI_NPY)
        result = cli_npy_end(&embed->output, pump.n_texts, embed->dim);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}

static int set_columns(struct embed *embed, const gpuserve_model *model,
                       const struct cli_args *args)
{
    if (embed->sparse) {
        embed->dim = gpuserve_model_sparse_dim(model);
        if (embed->dim == 0)
            return cli_fail("%s: the model is not a masked language model, which --sparse needs",
                            args->model);
        embed->indices = cli_alloc(embed->dim, sizeof(*embed->indices));
        embed->values = cli_alloc(embed->dim, sizeof(*embed->values));
        return CLI_OK;
    }
    return cli_vector_dim(&embed->dim, model, args);
}

int cli_embed(const struct cli_args *args)
{
    struct embed embed = { .format = output_format(args), .sparse = args->sparse };
    gpuserve_model *model = NULL;
    struct cli_input input;
    int result;

    if (args->sparse && (embed.format != CLI_JSON || args->dimensions || args->normalize))
        return cli_usage(
            "--sparse writes JSON objects: --format, --dimensions and --normalize are not valid");
    result = cli_input_from(&input, args, false);
    if (result != CLI_OK)
        return result;
    embed.input = &input;
    result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = set_columns(&embed, model, args);
    if (result == CLI_OK)
        result = cli_output_open(&embed.output, args->output);
    if (result == CLI_OK)
        result = embed_input(&embed, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&embed.output);
    cli_output_abandon(&embed.output);
    free(embed.indices);
    free(embed.values);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
