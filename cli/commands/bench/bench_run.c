/*
 * bench_run.c - runs texts on a model repeatedly, and measures the times.
 *
 * The result cache is off. The throughput is that of the median run.
 */
#include "cli/commands/bench/bench.h"

#include <stdlib.h>
#include <time.h>

#define MIN_RUNS 3
#define MAX_RUNS 100000
#define SAMPLE_TEXTS 200
#define DEFAULT_SECONDS 3

int cli_bench_prepare(struct cli_bench *bench)
{
    bench->row_floats = bench->args->heads.n ? gpuserve_model_label_count(bench->model)
                                             : gpuserve_model_dim(bench->model);
    return bench->row_floats ? CLI_OK
                             : cli_fail("%s: the model makes no embeddings, which bench needs",
                                        bench->args->model);
}

int cli_bench_run_texts(struct cli_bench *bench, size_t first, size_t n)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.task = bench->args->heads.n ? GPUSERVE_TASK_CLASSIFY : GPUSERVE_TASK_EMBED;
    job.n_items = n;
    job.texts = (const char *const *)bench->texts.texts + first;
    job.text_sizes = bench->texts.sizes + first;
    job.dimensions = bench->args->heads.n ? 0 : bench->args->dimensions;
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

static void add_time(struct cli_bench *bench, double seconds)
{
    bench->seconds =
        cli_grow(bench->seconds, &bench->capacity, bench->n_runs + 1, sizeof(*bench->seconds));
    bench->seconds[bench->n_runs++] = seconds;
}

double cli_bench_quantile(const struct cli_bench *bench, double q)
{
    return bench->seconds[(size_t)(q * (double)(bench->n_runs - 1) + 0.5)];
}

int cli_bench_begin(struct cli_bench *bench)
{
    const size_t n = bench->texts.n;

    bench->output = cli_alloc(n * bench->row_floats, sizeof(*bench->output));
    bench->items = cli_alloc(n, sizeof(*bench->items));
    bench->n_runs = 0;
    return cli_bench_run_texts(bench, 0, n);
}

static double cpu_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int cli_bench_measure(struct cli_bench *bench)
{
    const size_t n = bench->texts.n;
    const double limit = bench->args->seconds > 0 ? bench->args->seconds : DEFAULT_SECONDS;
    const double end = cli_now() + limit;

    if (cli_bench_begin(bench) != CLI_OK)
        return CLI_FAILED;
    bench->cpu_s = -cpu_now();
    bench->wall_s = -cli_now();
    while (bench->n_runs < MAX_RUNS && (bench->n_runs < MIN_RUNS || cli_now() < end)) {
        const double begin = cli_now();

        if (cli_bench_run_texts(bench, 0, n) != CLI_OK)
            return CLI_FAILED;
        add_time(bench, cli_now() - begin);
    }
    bench->cpu_s += cpu_now();
    bench->wall_s += cli_now();
    cli_sort_doubles(bench->seconds, bench->n_runs);
    return CLI_OK;
}

int cli_bench_measure_single(struct cli_bench *bench)
{
    const size_t n = bench->texts.n < SAMPLE_TEXTS ? bench->texts.n : SAMPLE_TEXTS;

    bench->n_runs = 0;
    for (size_t i = 0; i < n; i++) {
        const double begin = cli_now();

        if (cli_bench_run_texts(bench, i * bench->texts.n / n, 1) != CLI_OK)
            return CLI_FAILED;
        add_time(bench, cli_now() - begin);
    }
    cli_sort_doubles(bench->seconds, bench->n_runs);
    return CLI_OK;
}

int cli_bench_run_one(struct cli_bench *bench, size_t i, double begin)
{
    const int result = cli_bench_run_texts(bench, i, 1);

    if (result == CLI_OK)
        add_time(bench, cli_now() - begin);
    return result;
}

double cli_bench_rate(const struct cli_bench *bench)
{
    return (double)bench->texts.n / cli_bench_quantile(bench, 0.5);
}

int cli_bench_add_mixed(struct cli_bench *bench, size_t n, size_t max_length)
{
    const size_t limit = gpuserve_model_max_tokens(bench->model);
    uint64_t random = 1;
    int result = CLI_OK;

    if (limit && limit < max_length)
        max_length = limit;
    for (size_t i = 0; i < n && result == CLI_OK; i++)
        result = cli_bench_add_made(&bench->texts, bench->model,
                                    cli_bench_length(&random, max_length), &random);
    return result;
}

void cli_bench_reset(struct cli_bench *bench)
{
    cli_bench_free(&bench->texts);
    free(bench->output);
    free(bench->items);
    bench->output = NULL;
    bench->items = NULL;
}

void cli_bench_end(struct cli_bench *bench)
{
    cli_bench_reset(bench);
    free(bench->seconds);
    bench->seconds = NULL;
    bench->n_runs = bench->capacity = 0;
}
