/*
 * bench_dtypes.c - `gpuserve bench --dtypes`: speed, memory and accuracy of every compute type; and
 * `gpuserve bench --batches`: milliseconds of a text against the batch size.
 *
 * The texts are those of workload W2, fewer of them. float32 runs first: the cosine similarity of
 * the other types' vectors is to its vectors. A type that the device or the model does not support
 * is a row with the reason.
 */
#include "cli/commands/bench/bench.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TEXTS 200
#define MAX_TOKENS 256
#define BATCH_TOKENS 32 /* tokens of each text of --batches */
#define MAX_BATCH 256

static const struct {
    const char *name;
    uint32_t dtype;
} dtypes[] = {
    { "float32", GPUSERVE_DTYPE_FLOAT32 },   { "tf32", GPUSERVE_DTYPE_TF32 },
    { "bfloat16", GPUSERVE_DTYPE_BFLOAT16 }, { "float16", GPUSERVE_DTYPE_FLOAT16 },
    { "int8", GPUSERVE_DTYPE_INT8 },
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

/* --------------------------------------------------------------------------------------- cosine */

static double cosine(const float *a, const float *b, size_t n)
{
    double dot = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : 0;
}

/* Mean and minimum over the texts, of the last run against the reference. */
static void add_cosines(json_t *row, const struct cli_bench *bench, const float *reference)
{
    const size_t columns = bench->row_floats;
    double sum = 0, min = 1;

    for (size_t i = 0; i < bench->texts.n; i++) {
        const double c = cosine(bench->output + i * columns, reference + i * columns, columns);

        sum += c;
        min = fmin(min, c);
    }
    json_object_set_new(row, "cosine_mean", json_real(fmin(1, sum / (double)bench->texts.n)));
    json_object_set_new(row, "cosine_min", json_real(min));
}

/* --------------------------------------------------------------------------------------- dtypes */

static float *copy_output(const struct cli_bench *bench)
{
    const size_t n = bench->texts.n * bench->row_floats;
    float *copy = cli_alloc(n, sizeof(*copy));

    memcpy(copy, bench->output, n * sizeof(*copy));
    return copy;
}

/* One row: opens the model in a type, measures it, and closes it. A refused type is no failure. */
static int measure_dtype(gpuserve_context *context, const struct cli_args *args, size_t which,
                         float **reference, json_t *row)
{
    gpuserve_model_options options = cli_model_options(args);
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct cli_bench bench = { .args = args };
    gpuserve_status status;
    int result;

    options.dtype = dtypes[which].dtype;
    status = gpuserve_model_footprint(context, args->model, &options, &footprint, &error);
    if (status == GPUSERVE_OK)
        status = gpuserve_model_open(&bench.model, context, args->model, &options, &error);
    if (status == GPUSERVE_E_UNSUPPORTED && *reference) {
        json_object_set_new(row, "unsupported", json_string(error.message));
        return CLI_OK;
    }
    if (status != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    result = cli_bench_prepare(&bench);
    if (result == CLI_OK)
        result = cli_bench_add_mixed(&bench, N_TEXTS, MAX_TOKENS);
    if (result == CLI_OK)
        result = cli_bench_measure(&bench);
    if (result == CLI_OK) {
        if (!*reference)
            *reference = copy_output(&bench);
        json_object_set_new(row, "texts_per_s", json_real(cli_bench_rate(&bench)));
        json_object_set_new(row, "weights_bytes",
                            json_integer((json_int_t)footprint.weights_bytes));
        json_object_set_new(row, "total_bytes", json_integer((json_int_t)footprint.total_bytes));
        add_cosines(row, &bench, *reference);
    }
    cli_bench_end(&bench);
    gpuserve_model_close(&bench.model);
    return result;
}

static double real_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_dtypes(const json_t *rows)
{
    const json_t *row;
    size_t i;

    printf("dtype      texts/s   x float32  weights MB  total MB  cosine mean  cosine min\n");
    json_array_foreach((json_t *)rows, i, row)
    {
        const char *why = json_string_value(json_object_get(row, "unsupported"));

        printf("%-9s", json_string_value(json_object_get(row, "dtype")));
        if (why)
            printf(" -         %s\n", why);
        else
            printf("%9.1f %11.2f %11.1f %9.1f %12.6f %11.6f\n", real_of(row, "texts_per_s"),
                   real_of(row, "texts_per_s") / real_of(json_array_get(rows, 0), "texts_per_s"),
                   real_of(row, "weights_bytes") / 1e6, real_of(row, "total_bytes") / 1e6,
                   real_of(row, "cosine_mean"), real_of(row, "cosine_min"));
    }
}

/* Prints and releases the rows. */
static int print_table(const struct cli_args *args, const char *name, json_t *rows,
                       void (*print)(const json_t *rows))
{
    if (args->json)
        return cli_facts_print(json_pack("{s:s, s:s, s:o}", "gpuserve", gpuserve_version(), "model",
                                         args->model, name, rows),
                               true);
    print(rows);
    json_decref(rows);
    return CLI_OK;
}

int cli_bench_dtypes(const struct cli_args *args)
{
    gpuserve_context *context;
    float *reference = NULL;
    json_t *rows;
    int result;

    if (!args->model)
        return cli_model_missing();
    if (args->heads.n || args->dtype)
        return cli_usage("bench --dtypes compares embeddings in every type: --head and --dtype are "
                         "not valid");
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    rows = json_array();
    result = CLI_OK;
    for (size_t i = 0; i < N_DTYPES && result == CLI_OK; i++) {
        json_t *row = json_pack("{s:s}", "dtype", dtypes[i].name);

        result = measure_dtype(context, args, i, &reference, row);
        json_array_append_new(rows, row);
    }
    free(reference);
    gpuserve_context_unref(&context);
    if (result == CLI_OK)
        return print_table(args, "dtypes", rows, print_dtypes);
    json_decref(rows);
    return result;
}

/* -------------------------------------------------------------------------------------- batches */

static int measure_batch(struct cli_bench *bench, size_t n, json_t *rows)
{
    uint64_t random = 1;
    int result = CLI_OK;

    for (size_t i = 0; i < n && result == CLI_OK; i++)
        result = cli_bench_add_made(&bench->texts, bench->model, BATCH_TOKENS, &random);
    if (result == CLI_OK)
        result = cli_bench_measure(bench);
    if (result == CLI_OK) {
        const double seconds = cli_bench_quantile(bench, 0.5);
        json_t *row = json_pack("{s:I}", "texts", (json_int_t)n);

        json_object_set_new(row, "batch_ms", json_real(seconds * 1e3));
        json_object_set_new(row, "text_ms", json_real(seconds * 1e3 / (double)n));
        json_object_set_new(row, "texts_per_s", json_real((double)n / seconds));
        json_array_append_new(rows, row);
    }
    cli_bench_reset(bench);
    return result;
}

static void print_batches(const json_t *rows)
{
    const json_t *row;
    size_t i;

    printf("texts   ms a batch   ms a text    texts/s\n");
    json_array_foreach((json_t *)rows, i, row)
        printf("%5lld %12.3f %11.3f %10.1f\n",
               (long long)json_integer_value(json_object_get(row, "texts")),
               real_of(row, "batch_ms"), real_of(row, "text_ms"), real_of(row, "texts_per_s"));
}

int cli_bench_batches(const struct cli_args *args)
{
    struct cli_bench bench = { .args = args };
    json_t *rows = json_array();
    int result = cli_model_open(&bench.model, args);

    if (result == CLI_OK)
        result = cli_bench_prepare(&bench);
    for (size_t n = 1; n <= MAX_BATCH && result == CLI_OK; n *= 2)
        result = measure_batch(&bench, n, rows);
    cli_bench_end(&bench);
    gpuserve_model_close(&bench.model);
    if (result == CLI_OK)
        return print_table(args, "batches", rows, print_batches);
    json_decref(rows);
    return result;
}
