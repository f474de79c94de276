/*
 * plan_measure.c - the measurement of `gpuserve plan`: times of batches on one thread, and the rate
 * of all threads, in each dtype.
 *
 * One round is one batch of each size; a line through them gives the time of a batch and of a
 * token. Rounds repeat until the time is up, so that their spread shows how even the machine is.
 */
#include "cli/commands/bench/bench.h"
#include "cli/commands/plan/plan.h"
#include "cli/io/input.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SECONDS 10
#define N_TEXTS 200 /* generated, or read from --input */
#define RATE_TEXTS 64
#define MAX_TOKENS 256
#define MIN_ROUNDS 3

static const size_t sizes[] = { 1, 2, 4, 8, 16, 32 };
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static const struct {
    const char *name;
    uint32_t dtype;
} dtypes[] = {
    { "float32", GPUSERVE_DTYPE_FLOAT32 },
    { "bfloat16", GPUSERVE_DTYPE_BFLOAT16 },
    { "float16", GPUSERVE_DTYPE_FLOAT16 },
    { "int8", GPUSERVE_DTYPE_INT8 },
};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

struct measuring {
    const struct cli_args *args;
    gpuserve_context *context;
    struct plan_measured *measured;
    struct cli_bench bench; /* of the open model */
    uint64_t random;
};

/* ---------------------------------------------------------------------------------------- texts */

static int add_input(struct cli_bench *bench)
{
    struct cli_record record;
    struct cli_input input;
    int found, result = cli_input_from(&input, bench->args, false);

    if (result != CLI_OK)
        return result;
    while ((found = cli_input_next(&input, &record)) > 0 && bench->texts.n < N_TEXTS)
        cli_bench_add(&bench->texts, record.text, record.text_size);
    cli_input_close(&input);
    if (found < 0)
        return CLI_FAILED;
    return bench->texts.n ? CLI_OK : cli_fail("%s: the file has no texts", bench->args->input);
}

static int open_model(struct measuring *m, uint32_t dtype, uint32_t n_threads)
{
    gpuserve_model_options options = cli_model_options(m->args);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    int result;

    m->bench = (struct cli_bench){ .args = m->args };
    options.dtype = dtype;
    options.device = "cpu";
    options.n_threads = n_threads;
    status = gpuserve_model_open(&m->bench.model, m->context, m->args->model, &options, &error);
    if (status != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    result = cli_bench_prepare(&m->bench);
    if (result == CLI_OK)
        result = m->args->input ? add_input(&m->bench)
                                : cli_bench_add_mixed(&m->bench, N_TEXTS, MAX_TOKENS);
    return result == CLI_OK ? cli_bench_begin(&m->bench) : result; /* and a run for warm-up */
}

static void close_model(struct measuring *m)
{
    cli_bench_end(&m->bench);
    gpuserve_model_close(&m->bench.model);
}

static void note_lengths(struct measuring *m)
{
    struct plan_measured *measured = m->measured;

    measured->n_lengths = 0;
    for (size_t i = 0; i < m->bench.texts.n && i < PLAN_MAX_LENGTHS; i++)
        measured->lengths[measured->n_lengths++] =
            m->bench.items[i].n_tokens > 0 ? (double)m->bench.items[i].n_tokens : 1;
}

/* ---------------------------------------------------------------------------------- one thread */

/* One batch of up to `size` texts that fit a batch; random texts. */
static int time_batch(struct measuring *m, size_t size, double *tokens, double *seconds)
{
    const struct plan_measured *measured = m->measured;
    const size_t n = measured->n_lengths;
    const size_t first = (size_t)(cli_bench_uniform(&m->random) * (double)n) % n;
    size_t count = 1;
    double begin;

    *tokens = measured->lengths[first];
    while (count < size && first + count < n &&
           *tokens + measured->lengths[first + count] <= measured->max_batch_tokens)
        *tokens += measured->lengths[first + count++];
    begin = cli_now();
    if (cli_bench_run_texts(&m->bench, first, count) != CLI_OK)
        return CLI_FAILED;
    *seconds = fmax(cli_now() - begin, 1e-9);
    return CLI_OK;
}

static int run_round(struct measuring *m, struct plan_dtype *dtype)
{
    double tokens[N_SIZES], seconds[N_SIZES];
    struct cli_service fit;

    for (size_t i = 0; i < N_SIZES; i++)
        if (time_batch(m, sizes[i], &tokens[i], &seconds[i]) != CLI_OK)
            return CLI_FAILED;
    fit = cli_service_fit(tokens, seconds, N_SIZES);
    dtype->rounds[dtype->n_rounds++] = fit;
    for (size_t i = 0; i < N_SIZES && dtype->n_factors < PLAN_MAX_FACTORS; i++)
        dtype->factors[dtype->n_factors++] = seconds[i] / (fit.batch_s + fit.token_s * tokens[i]);
    return CLI_OK;
}

static int run_rounds(struct measuring *m, struct plan_dtype *dtype, double limit)
{
    const double end = cli_now() + limit;

    while (dtype->n_rounds < PLAN_MAX_ROUNDS && (dtype->n_rounds < MIN_ROUNDS || cli_now() < end))
        if (run_round(m, dtype) != CLI_OK)
            return CLI_FAILED;
    return CLI_OK;
}

/* Texts a second of jobs of up to RATE_TEXTS texts: all of them in `limit` seconds, two at least.
 */
static int measure_rate(struct measuring *m, double limit, double *rate)
{
    const size_t n = m->bench.texts.n, job = n < RATE_TEXTS ? n : RATE_TEXTS;
    const double begin = cli_now();
    size_t n_jobs = 0;

    while (n_jobs < 2 || cli_now() - begin < limit) {
        if (cli_bench_run_texts(&m->bench, n_jobs * job % (n - job + 1), job) != CLI_OK)
            return CLI_FAILED;
        n_jobs++;
    }
    *rate = (double)(n_jobs * job) / fmax(cli_now() - begin, 1e-9);
    return CLI_OK;
}

/* -------------------------------------------------------------------------------------- memory */

static bool footprint(struct measuring *m, uint32_t dtype, uint32_t n_threads, double *bytes)
{
    gpuserve_model_options options = cli_model_options(m->args);
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_status status;

    context_options.n_threads = n_threads;
    context_options.cache_dir = m->args->cache_dir;
    options.dtype = dtype;
    options.device = "cpu";
    status = gpuserve_context_create(&context, &context_options, NULL);
    if (status == GPUSERVE_OK)
        status = gpuserve_model_footprint(context, m->args->model, &options, &footprint, NULL);
    gpuserve_context_unref(&context);
    *bytes = (double)footprint.total_bytes;
    return status == GPUSERVE_OK;
}

/* A line through the footprints with 2 and with 4 threads. */
static int measure_memory(struct measuring *m, uint32_t dtype, struct plan_memory *memory)
{
    double two, four;

    if (!footprint(m, dtype, 2, &two) || !footprint(m, dtype, 4, &four))
        return cli_fail("%s: its memory cannot be computed", m->args->model);
    memory->per_thread_bytes = fmax(0, (four - two) / 2);
    memory->base_bytes = fmax(0, two - 2 * memory->per_thread_bytes);
    return CLI_OK;
}

/* --------------------------------------------------------------------------------------- dtypes */

/* Reads the processor, the threads and the size of a batch from the open model. */
static int read_facts(struct measuring *m)
{
    json_t *facts = cli_facts_parse(cli_model_facts(m->bench.model));
    const char *name = json_string_value(json_object_get(facts, "device_name"));
    const char *isa = json_string_value(json_object_get(facts, "device_isa"));

    if (!facts)
        return CLI_FAILED;
    snprintf(m->measured->processor, sizeof(m->measured->processor), "%s (%s)", name ? name : "CPU",
             isa ? isa : "");
    m->measured->threads = (int)json_integer_value(json_object_get(facts, "threads"));
    m->measured->max_batch_tokens =
        (double)json_integer_value(json_object_get(facts, "max_batch_tokens"));
    json_decref(facts);
    return CLI_OK;
}

static int measure_one_thread(struct measuring *m, struct plan_dtype *dtype, uint32_t number,
                              double seconds)
{
    int result = open_model(m, number, 1);

    if (result == CLI_OK)
        result = read_facts(m);
    if (result == CLI_OK) {
        note_lengths(m);
        result = run_rounds(m, dtype, seconds * 0.6);
    }
    if (result == CLI_OK)
        result = measure_rate(m, seconds * 0.2, &dtype->one_thread);
    close_model(m);
    return result;
}

static int measure_dtype(struct measuring *m, size_t which, double seconds)
{
    struct plan_dtype *dtype = &m->measured->dtypes[m->measured->n_dtypes];
    int result;

    memset(dtype, 0, sizeof(*dtype));
    snprintf(dtype->name, sizeof(dtype->name), "%s", dtypes[which].name);
    result = measure_one_thread(m, dtype, dtypes[which].dtype, seconds);
    if (result != CLI_OK)
        return result;
    result = open_model(m, dtypes[which].dtype, 0);
    if (result == CLI_OK)
        result = read_facts(m);
    if (result == CLI_OK)
        result = measure_rate(m, seconds * 0.2, &dtype->all_threads);
    close_model(m);
    if (result == CLI_OK)
        result = measure_memory(m, dtypes[which].dtype, &dtype->memory);
    m->measured->n_dtypes += result == CLI_OK;
    return result;
}

/* --dtype, or those that differ in speed on a CPU. */
static bool is_asked(const struct cli_args *args, size_t which)
{
    if (args->dtype != GPUSERVE_DTYPE_DEFAULT)
        return dtypes[which].dtype == args->dtype;
    return dtypes[which].dtype != GPUSERVE_DTYPE_FLOAT16;
}

int plan_measure(struct plan_measured *measured, const struct cli_args *args)
{
    struct measuring m = { .args = args, .measured = measured, .random = 1 };
    const double limit = args->seconds > 0 ? args->seconds : DEFAULT_SECONDS;
    const double n = args->dtype == GPUSERVE_DTYPE_DEFAULT ? 3 : 1;
    int result = CLI_OK;

    memset(measured, 0, sizeof(*measured));
    if (cli_context(&m.context, args) != CLI_OK)
        return CLI_FAILED;
    for (size_t i = 0; i < N_DTYPES && result == CLI_OK; i++) {
        if (!is_asked(args, i))
            continue;
        result = measure_dtype(&m, i, limit / n);
        /* A model may refuse a dtype; the message says why. float32 is the one that must work. */
        if (result == CLI_FAILED && measured->n_dtypes > 0)
            result = CLI_OK;
    }
    gpuserve_context_unref(&m.context);
    if (result == CLI_OK && measured->n_dtypes == 0)
        return cli_usage("plan measures fp32, bf16, fp16 and int8 on a CPU");
    return result;
}
