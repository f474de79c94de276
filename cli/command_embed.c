/*
 * command_embed.c - `gpuserve embed`: one vector a text, as JSON lines, .npy or numbers.
 */
#include "model.h"
#include "output.h"
#include "progress.h"
#include "pump.h"

#include <string.h>

struct embed {
    const struct cli_input *input;
    struct cli_output output;
    struct cli_progress progress;
    uint32_t format;
    size_t dim;
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

static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct embed *embed = user;
    const struct cli_reader *reader = &embed->input->reader;

    cli_progress_update(&embed->progress, (double)(chunk->first + chunk->n),
                        reader->file_size ? (double)reader->n_read / (double)reader->file_size
                                          : -1.0);
    if (embed->format == CLI_NPY)
        return cli_npy_rows(&embed->output, chunk->rows, chunk->n, embed->dim);
    for (size_t i = 0; i < chunk->n; i++) {
        if (embed->format == CLI_JSON) {
            write_json(&embed->output, chunk, i, embed->dim);
            continue;
        }
        cli_output_floats(&embed->output, chunk->rows + i * embed->dim, embed->dim, " ");
        fputc('\n', embed->output.stream);
    }
    if (fflush(embed->output.stream)) /* a reader at the other end waits for whole chunks */
        return cli_output_check(&embed->output);
    return CLI_OK;
}

static int embed_input(struct embed *embed, gpuserve_model *model, struct cli_input *input,
                       const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    pump.job.task = GPUSERVE_TASK_EMBED;
    pump.job.dimensions = args->dimensions;
    pump.job.normalize = args->normalize;
    pump.job.truncation = args->truncate;
    pump.job.prompt = args->prompt;
    pump.job.prompt_name = args->prompt_name;
    pump.row_floats = embed->dim;
    pump.chunk_texts = args->batch;
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

int cli_embed(const struct cli_args *args)
{
    struct embed embed = { .format = output_format(args) };
    gpuserve_model *model = NULL;
    struct cli_input input;
    int result = cli_input_from(&input, args, false);

    if (result != CLI_OK)
        return result;
    embed.input = &input;
    result = cli_model_open(&model, args);
    if (result == CLI_OK) {
        embed.dim = args->dimensions ? args->dimensions : gpuserve_model_dim(model);
        if (embed.dim > gpuserve_model_dim(model))
            result = cli_fail("--dimensions %zu: the model's vectors have %zu", embed.dim,
                              gpuserve_model_dim(model));
    }
    if (result == CLI_OK)
        result = cli_output_open(&embed.output, args->output);
    if (result == CLI_OK)
        result = embed_input(&embed, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&embed.output);
    cli_output_abandon(&embed.output);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
