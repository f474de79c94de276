/*
 * embed.c - `gpuserve embed`: one vector per text, as JSON lines, .npy or plain numbers.
 *
 * With --precision the values are float16, int8, uint8 or sign bits; in JSON and text as numbers.
 * With --chunking texts over the token limit are embedded whole (embed_long.c).
 * With --sparse the output is the nonzero vocabulary weights of each text (indices and values).
 */
#include "cli/commands/embed.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"
#include "cli/model.h"
#include "cli/plot/map.h"

#include <stdlib.h>
#include <string.h>

#define SPARSE_TEXTS 64 /* rows are as wide as the vocabulary, so chunks are small */

struct embed {
    const struct cli_input *input;
    struct cli_output output;
    struct cli_progress progress;
    uint32_t format;
    const char *separator;
    size_t dim;
    bool sparse;
    uint32_t precision;
    float *ranges;     /* [2, dim] of int8 and uint8 */
    bool is_converted; /* the rows of a chunk have the precision already */
    uint8_t *made;     /* [made_capacity] converted rows of a chunk, else */
    size_t made_capacity;
    uint32_t *indices; /* [dim] */
    float *values;
    struct cli_long *long_texts; /* of --chunking, or NULL */
    struct cli_map *map;         /* of --plot, or NULL */
    bool is_map_only;            /* no vectors are written */
};

static uint32_t output_format(const struct cli_args *args)
{
    const char *dot = args->output ? strrchr(args->output, '.') : NULL;

    if (args->format)
        return args->format;
    if (dot && strcmp(dot, ".npy") == 0)
        return CLI_NPY;
    return dot && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".tsv") == 0 || strcmp(dot, ".csv") == 0)
               ? CLI_TEXT
               : CLI_JSON;
}

/* Between the values of CLI_TEXT. */
static const char *separator_of(const struct cli_args *args)
{
    const char *dot = args->output ? strrchr(args->output, '.') : NULL;

    if (dot && strcmp(dot, ".tsv") == 0)
        return "\t";
    return dot && strcmp(dot, ".csv") == 0 ? "," : " ";
}

static const char *npy_type(uint32_t precision)
{
    static const char *const types[] = {
        [GPUSERVE_PRECISION_FLOAT32] = CLI_NPY_FLOAT32,
        [GPUSERVE_PRECISION_FLOAT16] = CLI_NPY_FLOAT16,
        [GPUSERVE_PRECISION_INT8] = CLI_NPY_INT8,
        [GPUSERVE_PRECISION_UINT8] = CLI_NPY_UINT8,
        [GPUSERVE_PRECISION_BINARY] = CLI_NPY_INT8,
        [GPUSERVE_PRECISION_UBINARY] = CLI_NPY_UINT8,
    };

    return types[precision];
}

/* Elements of a converted row: bytes, or 16-bit or 32-bit floats. */
static size_t row_elements(const struct embed *embed)
{
    const size_t bytes = gpuserve_quantized_bytes(embed->precision, embed->dim);

    if (embed->precision == GPUSERVE_PRECISION_FLOAT32)
        return bytes / sizeof(float);
    return embed->precision == GPUSERVE_PRECISION_FLOAT16 ? bytes / 2 : bytes;
}

/* The rows of a chunk in the precision. */
static const uint8_t *made_rows(const struct embed *embed, const struct cli_chunk *chunk)
{
    return embed->is_converted ? (const uint8_t *)chunk->rows : embed->made;
}

/* Converts the rows of a chunk into embed->made: vectors of --chunking or of --plot. */
static int convert_rows(struct embed *embed, const struct cli_chunk *chunk, size_t *bytes)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    *bytes = chunk->n * gpuserve_quantized_bytes(embed->precision, embed->dim);
    if (embed->is_converted)
        return CLI_OK;
    embed->made = cli_grow(embed->made, &embed->made_capacity, *bytes, 1);
    if (gpuserve_quantize(chunk->rows, chunk->n, embed->dim, embed->precision, embed->ranges,
                          embed->made, *bytes, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, "--precision");
    return CLI_OK;
}

/* The values of a row: floats, or converted bytes as numbers. */
static void write_values(struct embed *embed, const struct cli_chunk *chunk, size_t i,
                         const char *separator)
{
    const size_t n = gpuserve_quantized_bytes(embed->precision, embed->dim);
    const uint8_t *row = made_rows(embed, chunk) + i * n;
    const bool is_signed = strcmp(npy_type(embed->precision), CLI_NPY_INT8) == 0;

    if (embed->precision == GPUSERVE_PRECISION_FLOAT32) {
        cli_output_floats(&embed->output, chunk->rows + i * embed->dim, embed->dim, separator);
        return;
    }
    for (size_t j = 0; j < n; j++)
        fprintf(embed->output.stream, "%s%d", j ? separator : "",
                is_signed ? (int8_t)row[j] : row[j]);
}

static void write_json(struct embed *embed, const struct cli_chunk *chunk, size_t i)
{
    struct cli_output *output = &embed->output;

    if (embed->long_texts)
        cli_long_head(embed->long_texts, output->stream, i);
    else
        fprintf(output->stream, "{\"index\":%zu,\"n_tokens\":%u,\"truncated\":%s,",
                chunk->first + i, chunk->items[i].n_tokens,
                chunk->items[i].truncated ? "true" : "false");
    fputs("\"embedding\":[", output->stream);
    write_values(embed, chunk, i, ",");
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
    size_t bytes = 0;

    for (size_t i = 0; embed->map && i < chunk->n; i++)
        if (cli_map_add(embed->map, chunk->rows + i * embed->dim, embed->dim, chunk->texts[i],
                        chunk->sizes[i]) != CLI_OK)
            return CLI_FAILED;
    cli_progress_update(&embed->progress, (double)(chunk->first + chunk->n), chunk->share);
    if (embed->is_map_only)
        return CLI_OK;
    if (!embed->sparse && (embed->format == CLI_NPY || embed->precision) &&
        convert_rows(embed, chunk, &bytes) != CLI_OK)
        return CLI_FAILED;
    if (embed->format == CLI_NPY)
        return cli_npy_rows(&embed->output, made_rows(embed, chunk), bytes);
    for (size_t i = 0; i < chunk->n; i++) {
        if (embed->sparse) {
            write_sparse(embed, chunk, i);
            continue;
        }
        if (embed->format == CLI_JSON) {
            write_json(embed, chunk, i);
            continue;
        }
        write_values(embed, chunk, i, embed->separator);
        fputc('\n', embed->output.stream);
    }
    if (fflush(embed->output.stream)) /* a reader of the pipe gets each chunk at once */
        return cli_output_check(&embed->output);
    return CLI_OK;
}

/* Ranges of int8 and uint8: of --ranges, or of the built-in texts with the options of `job`. */
static int set_ranges(struct embed *embed, gpuserve_model *model, const gpuserve_job *job,
                      const struct cli_args *args)
{
    if (!cli_has_ranges(args))
        return CLI_OK;
    return args->ranges ? cli_ranges_read(&embed->ranges, args->ranges, embed->dim)
                        : cli_ranges_builtin(&embed->ranges, model, job, embed->dim);
}

/* The same with --chunking; pump->n_texts becomes the number of vectors. */
static int embed_long(struct embed *embed, struct cli_pump *pump, struct cli_input *input,
                      const struct cli_args *args)
{
    struct cli_long long_texts = { .model = pump->model, .input = input, .args = args };
    int result;

    long_texts.sink = pump->sink;
    long_texts.user = pump->user;
    embed->long_texts = &long_texts;
    result = cli_long_run(&long_texts);
    embed->long_texts = NULL;
    pump->n_texts = long_texts.n_vectors;
    return result;
}

static int embed_input(struct embed *embed, gpuserve_model *model, struct cli_input *input,
                       const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    pump.job.task = embed->sparse ? GPUSERVE_TASK_SPARSE : GPUSERVE_TASK_EMBED;
    cli_vector_options(&pump.job, args);
    pump.row_floats = embed->dim;
    if (set_ranges(embed, model, &pump.job, args) != CLI_OK)
        return CLI_FAILED;
    embed->is_converted = embed->precision && !args->chunking && !embed->map;
    if (embed->is_converted) {
        pump.job.precision = embed->precision;
        pump.job.ranges = embed->ranges;
    }
    pump.chunk_texts = args->batch;
    if (embed->sparse && !args->batch)
        pump.chunk_texts = SPARSE_TEXTS;
    pump.sink = write_chunk;
    pump.user = embed;
    cli_pump_from_input(&pump, input);
    if (embed->format == CLI_NPY &&
        cli_npy_begin(&embed->output, npy_type(embed->precision), row_elements(embed)) != CLI_OK)
        return CLI_FAILED;
    cli_progress_begin(&embed->progress, args->chunking ? "vectors" : "texts", args->quiet);
    result = args->chunking ? embed_long(embed, &pump, input, args) : cli_pump_run(&pump);
    cli_progress_end(&embed->progress);
    if (result == CLI_OK && embed->format == CLI_NPY)
        result = cli_npy_end(&embed->output, npy_type(embed->precision), pump.n_texts,
                             row_elements(embed));
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}

static int set_columns(struct embed *embed, const gpuserve_model *model,
                       const struct cli_args *args)
{
    if (embed->sparse) {
        embed->dim = cli_model_properties(model).sparse_dim;
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
    struct embed embed = { .format = args->plot && !args->output ? CLI_JSON : output_format(args),
                           .separator = separator_of(args),
                           .sparse = args->sparse,
                           .precision = args->precision,
                           .is_map_only = args->plot && !args->output };
    struct cli_map map = { 0 };
    gpuserve_model *model = NULL;
    struct cli_input input;
    int result;

    result = cli_long_check(args);
    if (result != CLI_OK)
        return result;
    if (args->outputs &&
        (embed.format != CLI_JSON || args->sparse || args->precision || args->ranges))
        return cli_usage("--outputs writes JSON objects: --format, --sparse, --precision and "
                         "--ranges are not valid");
    if (args->outputs && args->plot)
        return cli_usage("--plot and --outputs exclude each other");
    if (args->outputs)
        return cli_embed_outputs(args);
    if (args->plot && (args->sparse || args->chunking))
        return cli_usage(
            "--plot draws one dense vector of each text: --sparse and --chunking are not "
            "valid");
    if (args->heads.n)
        return cli_usage("--head needs --outputs with labels; classify computes labels alone");
    if (args->sparse && (embed.format != CLI_JSON || args->dimensions || args->normalize ||
                         args->precision || args->ranges))
        return cli_usage("--sparse writes JSON objects: --format, --dimensions, --normalize, "
                         "--precision and --ranges are not valid");
    if (args->precision == GPUSERVE_PRECISION_FLOAT16 && embed.format != CLI_NPY)
        return cli_usage("--precision float16 needs a .npy file: --format npy --output FILE");
    result = cli_output_suffix(args, "embed", ".npy .txt .tsv .csv .json .jsonl");
    if (result != CLI_OK)
        return result;
    if (args->ranges && !cli_has_ranges(args))
        return cli_usage("--ranges needs --precision int8 or uint8");
    result = cli_input_from(&input, args, false);
    if (result != CLI_OK)
        return result;
    embed.input = &input;
    embed.map = args->plot ? &map : NULL;
    result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = set_columns(&embed, model, args);
    if (result == CLI_OK)
        result = cli_output_open(&embed.output, args->output);
    if (result == CLI_OK)
        result = embed_input(&embed, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&embed.output);
    if (result == CLI_OK && embed.map)
        result = cli_map_write(embed.map, args->plot, args->model);
    cli_output_abandon(&embed.output);
    cli_map_reset(&map);
    free(embed.indices);
    free(embed.values);
    free(embed.ranges);
    free(embed.made);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
