/*
 * bench.c - `gpuserve bench`: throughput and latency of a model on this machine.
 *
 *   W1-N   one text of N tokens per job, repeated: latency
 *   W2     2,000 texts of mixed lengths in one job: throughput
 *   W3     32 texts of 256 tokens in one job: throughput
 *   input  the texts of --input: throughput, and latency of a sample, one text per job
 *
 * Each workload runs once for warm-up, then for --seconds and at least MIN_RUNS times. The reported
 * throughput is that of the median run. The result cache is off.
 */
#include "cli/commands/bench_text.h"
#include "cli/commands/lessons.h"
#include "cli/io/output.h"
#include "cli/io/input.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKLOADS "W1-8,W1-32,W1-128,W2,W3"
#define W2_TEXTS 2000
#define W3_TEXTS 32
#define W_TOKENS 256 /* length of the longest texts of W2 and W3 */
#define INPUT_TEXTS 20000
#define SAMPLE_TEXTS 200
#define MIN_RUNS 3
#define MAX_RUNS 100000

struct bench {
    gpuserve_model *model;
    const struct cli_args *args;
    struct bench_texts texts;
    float *output;
    gpuserve_item *items;
    size_t row_floats;
    double *seconds; /* of each run */
    size_t n_runs, capacity;
    size_t n_tokens; /* of the last run */
};

/* ----------------------------------------------------------------------------------- measuring */

/* Runs one job of n texts from index `first` on. */
static int run_job(struct bench *bench, size_t first, size_t n)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.task = bench->args->head ? GPUSERVE_TASK_CLASSIFY : GPUSERVE_TASK_EMBED;
    job.n_items = n;
    job.texts = (const char *const *)bench->texts.texts + first;
    job.text_sizes = bench->texts.sizes + first;
    job.dimensions = bench->args->head ? 0 : bench->args->dimensions;
    job.prompt = bench->args->prompt;
    job.prompt_name = bench->args->prompt_name;
    job.output = bench->output;
    job.output_capacity = n * bench->row_floats;
    job.items = bench->items;
    job.cache = GPUSERVE_CACHE_OFF; /* compute every text, duplicates too */
    if (gpuserve_run(bench->model, &job, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    bench->n_tokens = 0;
    for (size_t i = 0; i < n; i++)
        bench->n_tokens += bench->items[i].n_tokens;
    return CLI_OK;
}

static void add_time(struct bench *bench, double seconds)
{
    bench->seconds =
        cli_grow(bench->seconds, &bench->capacity, bench->n_runs + 1, sizeof(*bench->seconds));
    bench->seconds[bench->n_runs++] = seconds;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Quantile of the sorted times, by nearest rank. */
static double quantile(const struct bench *bench, double q)
{
    return bench->seconds[(size_t)(q * (double)(bench->n_runs - 1) + 0.5)];
}

/* Runs the same texts in one job repeatedly. */
static int measure_job(struct bench *bench)
{
    const size_t n = bench->texts.n;
    const double limit = bench->args->seconds > 0 ? bench->args->seconds : 3;
    const double end = cli_now() + limit;

    bench->output = cli_alloc(n * bench->row_floats, sizeof(*bench->output));
    bench->items = cli_alloc(n, sizeof(*bench->items));
    bench->n_runs = 0;
    if (run_job(bench, 0, n) != CLI_OK)
        return CLI_FAILED;
    while (bench->n_runs < MAX_RUNS && (bench->n_runs < MIN_RUNS || cli_now() < end)) {
        const double begin = cli_now();

        if (run_job(bench, 0, n) != CLI_OK)
            return CLI_FAILED;
        add_time(bench, cli_now() - begin);
    }
    qsort(bench->seconds, bench->n_runs, sizeof(*bench->seconds), by_value);
    return CLI_OK;
}

/* Runs single texts of the input, evenly sampled. */
static int measure_single(struct bench *bench)
{
    const size_t n = bench->texts.n < SAMPLE_TEXTS ? bench->texts.n : SAMPLE_TEXTS;

    bench->n_runs = 0;
    for (size_t i = 0; i < n; i++) {
        const double begin = cli_now();

        if (run_job(bench, i * bench->texts.n / n, 1) != CLI_OK)
            return CLI_FAILED;
        add_time(bench, cli_now() - begin);
    }
    qsort(bench->seconds, bench->n_runs, sizeof(*bench->seconds), by_value);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------ workloads */

static void set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

static json_t *throughput_facts(const struct bench *bench)
{
    const double median = quantile(bench, 0.5);
    json_t *facts = json_pack("{s:I, s:I, s:I}", "runs", (json_int_t)bench->n_runs, "texts",
                              (json_int_t)bench->texts.n, "tokens", (json_int_t)bench->n_tokens);

    set_real(facts, "texts_per_s", (double)bench->texts.n / median);
    set_real(facts, "tokens_per_s", (double)bench->n_tokens / median);
    set_real(facts, "texts_per_s_slowest", (double)bench->texts.n / quantile(bench, 1));
    set_real(facts, "texts_per_s_fastest", (double)bench->texts.n / quantile(bench, 0));
    return facts;
}

static void set_latency(const struct bench *bench, json_t *facts)
{
    set_real(facts, "p50_ms", quantile(bench, 0.5) * 1e3);
    set_real(facts, "p99_ms", quantile(bench, 0.99) * 1e3);
}

static json_t *latency_facts(const struct bench *bench)
{
    json_t *facts = json_pack("{s:I, s:I}", "runs", (json_int_t)bench->n_runs, "tokens",
                              (json_int_t)bench->n_tokens);

    set_latency(bench, facts);
    return facts;
}

/* Generates the texts of a workload; CLI_USAGE for an unknown name. */
static int make_texts(struct bench *bench, const char *name)
{
    const size_t limit = gpuserve_model_max_tokens(bench->model);
    const size_t max_length = limit && limit < W_TOKENS ? limit : W_TOKENS;
    uint64_t random = 1;
    int result = CLI_OK;
    char *end;

    if (strncmp(name, "W1-", 3) == 0) {
        const unsigned long n = strtoul(name + 3, &end, 10);

        if (*end || n < 3 || n > limit)
            return cli_usage("workload %s: expected 3 to %zu tokens", name, limit);
        return cli_bench_add_made(&bench->texts, bench->model, n, &random);
    }
    if (strcmp(name, "W2") == 0) {
        for (size_t i = 0; i < W2_TEXTS && result == CLI_OK; i++)
            result = cli_bench_add_made(&bench->texts, bench->model,
                                        cli_bench_length(&random, max_length), &random);
        return result;
    }
    if (strcmp(name, "W3") != 0)
        return cli_usage("unknown workload \"%s\"", name);
    for (size_t i = 0; i < W3_TEXTS && result == CLI_OK; i++)
        result = cli_bench_add_made(&bench->texts, bench->model, max_length, &random);
    return result;
}

static void end_workload(struct bench *bench)
{
    cli_bench_free(&bench->texts);
    free(bench->output);
    free(bench->items);
    bench->output = NULL;
    bench->items = NULL;
}

static int run_workload(struct bench *bench, const char *name, json_t *results)
{
    int result = make_texts(bench, name);

    if (result == CLI_OK)
        result = measure_job(bench);
    if (result == CLI_OK)
        json_object_set_new(results, name,
                            name[1] == '1' ? latency_facts(bench) : throughput_facts(bench));
    end_workload(bench);
    return result;
}

static int run_list(struct bench *bench, json_t *results)
{
    const char *list = bench->args->workload ? bench->args->workload : DEFAULT_WORKLOADS;
    int result = CLI_OK;

    while (*list && result == CLI_OK) {
        const size_t size = strcspn(list, ",");
        char *name = cli_copy(list, size);

        result = run_workload(bench, name, results);
        free(name);
        list += size + (list[size] == ',');
    }
    return result;
}

static int read_input(struct bench *bench)
{
    struct cli_record record;
    struct cli_input input;
    int found, result = cli_input_from(&input, bench->args, false);

    if (result != CLI_OK)
        return result;
    while ((found = cli_input_next(&input, &record)) > 0 && bench->texts.n < INPUT_TEXTS)
        cli_bench_add(&bench->texts, record.text, record.text_size);
    cli_input_close(&input);
    if (found < 0)
        return CLI_FAILED;
    return bench->texts.n ? CLI_OK : cli_fail("%s: the file has no texts", bench->args->input);
}

static int run_input(struct bench *bench, json_t *results)
{
    json_t *facts;
    int result = read_input(bench);

    if (result == CLI_OK)
        result = measure_job(bench);
    if (result == CLI_OK) {
        facts = throughput_facts(bench);
        json_object_set_new(results, "input", facts);
        result = measure_single(bench);
        if (result == CLI_OK)
            set_latency(bench, facts);
    }
    end_workload(bench);
    return result;
}

/* ------------------------------------------------------------------------------------- printing */

static void print_results(const json_t *results)
{
    const char *name;
    json_t *r;

    json_object_foreach((json_t *)results, name, r)
    {
        printf("%-8s", name);
        if (json_object_get(r, "texts_per_s"))
            printf("%10.1f texts/s %12.0f tokens/s   (%.1f to %.1f in %lld runs)",
                   json_real_value(json_object_get(r, "texts_per_s")),
                   json_real_value(json_object_get(r, "tokens_per_s")),
                   json_real_value(json_object_get(r, "texts_per_s_slowest")),
                   json_real_value(json_object_get(r, "texts_per_s_fastest")),
                   (long long)json_integer_value(json_object_get(r, "runs")));
        if (json_object_get(r, "p50_ms"))
            printf("%10.3f ms p50 %10.3f ms p99", json_real_value(json_object_get(r, "p50_ms")),
                   json_real_value(json_object_get(r, "p99_ms")));
        putchar('\n');
    }
}

int cli_bench(const struct cli_args *args)
{
    struct bench bench = { .args = args };
    json_t *results, *model;
    int result;

    if (args->n_rest) {
        cli_usage("bench does not accept texts as arguments");
        cli_hint("--input sets the texts, otherwise bench generates them");
        return CLI_USAGE;
    }
    if (args->operations && !args->chain)
        return cli_usage("--operations belongs to --chain");
    if (args->chain && args->lstm)
        return cli_usage("--chain and --lstm are two benchmarks: give one of them");
    if (args->chain)
        return cli_bench_chain(args);
    if (args->lstm)
        return cli_bench_lstm(args);
    results = json_object();
    result = cli_model_open(&bench.model, args);
    if (result == CLI_OK) {
        bench.row_floats =
            args->head ? gpuserve_model_label_count(bench.model) : gpuserve_model_dim(bench.model);
        result = args->input ? run_input(&bench, results) : run_list(&bench, results);
    }
    if (result == CLI_OK && !args->json)
        print_results(results);
    if (result == CLI_OK && args->json) {
        model = cli_facts_parse(cli_model_facts(bench.model));
        result = model
                     ? cli_facts_print(json_pack("{s:s, s:o, s:O}", "gpuserve", gpuserve_version(),
                                                 "model", model, "workloads", results),
                                       true)
                     : CLI_FAILED;
    }
    json_decref(results);
    free(bench.seconds);
    gpuserve_model_close(&bench.model);
    return result;
}
