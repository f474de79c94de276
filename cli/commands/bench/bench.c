/*
 * bench.c - `gpuserve bench`: throughput and latency of a model on this machine.
 *
 *   W1-N   one text of N tokens per job, repeated: latency
 *   W2     2,000 texts of mixed lengths in one job: throughput
 *   W3     32 texts of 256 tokens in one job: throughput
 *   input  the texts of --input: throughput, and latency of a sample, one text per job
 *
 * Each workload runs once for warm-up, then for --seconds and at least three times; see
 * bench_run.c. --dtypes, --batches and --share print tables instead; see bench.h.
 */
#include "cli/commands/bench/bench.h"
#include "cli/io/input.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKLOADS "W1-8,W1-32,W1-128,W2,W3"
#define W2_TEXTS 2000
#define W3_TEXTS 32
#define W_TOKENS 256 /* length of the longest texts of W2 and W3 */
#define INPUT_TEXTS 20000

/* ------------------------------------------------------------------------------------ workloads */

static void set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

static json_t *throughput_facts(const struct cli_bench *bench)
{
    const double median = cli_bench_quantile(bench, 0.5);
    json_t *facts = json_pack("{s:I, s:I, s:I}", "runs", (json_int_t)bench->n_runs, "texts",
                              (json_int_t)bench->texts.n, "tokens", (json_int_t)bench->n_tokens);

    set_real(facts, "texts_per_s", cli_bench_rate(bench));
    set_real(facts, "tokens_per_s", (double)bench->n_tokens / median);
    set_real(facts, "texts_per_s_slowest", (double)bench->texts.n / cli_bench_quantile(bench, 1));
    set_real(facts, "texts_per_s_fastest", (double)bench->texts.n / cli_bench_quantile(bench, 0));
    return facts;
}

static void set_latency(const struct cli_bench *bench, json_t *facts)
{
    set_real(facts, "p50_ms", cli_bench_quantile(bench, 0.5) * 1e3);
    set_real(facts, "p99_ms", cli_bench_quantile(bench, 0.99) * 1e3);
}

static json_t *latency_facts(const struct cli_bench *bench)
{
    json_t *facts = json_pack("{s:I, s:I}", "runs", (json_int_t)bench->n_runs, "tokens",
                              (json_int_t)bench->n_tokens);

    set_latency(bench, facts);
    return facts;
}

/* Generates the texts of a workload; CLI_USAGE for an unknown name. */
static int make_texts(struct cli_bench *bench, const char *name)
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
        return cli_bench_add_mixed(bench, W2_TEXTS, max_length);
    }
    if (strcmp(name, "W3") != 0)
        return cli_usage("unknown workload \"%s\"", name);
    for (size_t i = 0; i < W3_TEXTS && result == CLI_OK; i++)
        result = cli_bench_add_made(&bench->texts, bench->model, max_length, &random);
    return result;
}

static int run_workload(struct cli_bench *bench, const struct bench_limit *limit, const char *name,
                        json_t *results)
{
    const bool is_latency = name[1] == '1';
    int result = make_texts(bench, name);
    json_t *facts;

    if (result == CLI_OK)
        result = cli_bench_measure(bench);
    if (result == CLI_OK) {
        facts = is_latency ? latency_facts(bench) : throughput_facts(bench);
        cli_bench_limit_add(limit, bench, is_latency, facts);
        json_object_set_new(results, name, facts);
    }
    cli_bench_reset(bench);
    return result;
}

static int run_list(struct cli_bench *bench, const struct bench_limit *limit, json_t *results)
{
    const char *list = bench->args->workload ? bench->args->workload : DEFAULT_WORKLOADS;
    int result = CLI_OK;

    while (*list && result == CLI_OK) {
        const size_t size = strcspn(list, ",");
        char *name = cli_copy(list, size);

        result = run_workload(bench, limit, name, results);
        free(name);
        list += size + (list[size] == ',');
    }
    return result;
}

static int read_input(struct cli_bench *bench)
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

static int run_input(struct cli_bench *bench, const struct bench_limit *limit, json_t *results)
{
    json_t *facts;
    int result = read_input(bench);

    if (result == CLI_OK)
        result = cli_bench_measure(bench);
    if (result == CLI_OK) {
        facts = throughput_facts(bench);
        cli_bench_limit_add(limit, bench, false, facts);
        json_object_set_new(results, "input", facts);
        result = cli_bench_measure_single(bench);
        if (result == CLI_OK)
            set_latency(bench, facts);
    }
    cli_bench_reset(bench);
    return result;
}

/* ------------------------------------------------------------------------------------- printing */

static void print_limit(const json_t *r)
{
    const char *limit = json_string_value(json_object_get(r, "limit"));

    if (limit)
        printf("%8slimit: %s (threads %.0f %% busy, reading the weights takes %.0f %% of the "
               "time)\n",
               "", limit, json_real_value(json_object_get(r, "threads_busy")) * 100,
               json_real_value(json_object_get(r, "weights_share")) * 100);
}

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
        print_limit(r);
    }
}

/* The tables replace the workloads. */
static int run_tables(const struct cli_args *args)
{
    const bool is_dtypes = args->table == CLI_TABLE_DTYPES;

    if (args->input || args->workload)
        return cli_usage("bench --%s generates its texts: --input and --workload are not valid",
                         args->share ? "share"
                         : is_dtypes ? "dtypes"
                                     : "batches");
    if (args->share)
        return cli_bench_share(args);
    return is_dtypes ? cli_bench_dtypes(args) : cli_bench_batches(args);
}

static int check_lessons(const struct cli_args *args)
{
    if (args->operations && !args->chain)
        return cli_usage("--operations belongs to --chain");
    if (args->max_bytes && !args->transfer)
        return cli_usage("--max-bytes belongs to --transfer");
    if (args->chain + args->lstm + args->transfer > 1)
        return cli_usage("--chain, --lstm and --transfer are separate benchmarks: give one of "
                         "them");
    return CLI_OK;
}

int cli_bench(const struct cli_args *args)
{
    struct cli_bench bench = { .args = args };
    struct bench_limit limit;
    json_t *results, *model;
    int result;

    if (args->n_rest) {
        cli_usage("bench does not accept texts as arguments");
        cli_hint("--input sets the texts, otherwise bench generates them");
        return CLI_USAGE;
    }
    result = check_lessons(args);
    if (result != CLI_OK)
        return result;
    if (args->chain)
        return cli_bench_chain(args);
    if (args->lstm)
        return cli_bench_lstm(args);
    if (args->transfer)
        return cli_bench_transfer(args);
    if (args->share || args->table)
        return run_tables(args);
    results = json_object();
    result = cli_model_open(&bench.model, args);
    if (result == CLI_OK)
        result = cli_bench_prepare(&bench);
    if (result == CLI_OK)
        result = cli_bench_limit_init(&limit, &bench);
    if (result == CLI_OK)
        result =
            args->input ? run_input(&bench, &limit, results) : run_list(&bench, &limit, results);
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
    cli_bench_end(&bench);
    gpuserve_model_close(&bench.model);
    return result;
}
