/*
 * bench_share.c - `gpuserve bench --share N`: 1 to N models on one device at a set load.
 *
 *   one model alone: texts/s -> rate -> for n = 1..N: open a model more, n clients for --seconds
 *                                    -> utilization, answers/s, latency
 *
 * Each client sends single texts to its model at random intervals (a Poisson process) of the rate,
 * and waits for each answer. A latency counts from the scheduled time, so a client that is behind
 * does not hide the waiting. The utilization of a CPU is the process's CPU time over that of its
 * threads; that of a GPU is the driver's, sampled.
 */
#include "cli/commands/bench/bench.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_MODELS 64
#define N_TEXTS 100
#define TEXT_TOKENS 32
#define DEFAULT_SECONDS 3
#define DEFAULT_LOAD 0.25
#define SAMPLE_NS 50000000

struct client {
    struct cli_bench bench; /* its model, and one text at a time */
    pthread_t thread;
    double rate, begin, end;
    uint64_t random;
    int result;
};

struct share {
    const struct cli_args *args;
    gpuserve_context *context;
    gpuserve_device_info device;
    struct client clients[MAX_MODELS];
    size_t n; /* open models */
    double rate, seconds;
    struct cli_plot plot;
};

/* -------------------------------------------------------------------------------------- clients */

static void sleep_until(double at)
{
    const double left = at - cli_now();
    const struct timespec delay = { (time_t)left, (long)((left - floor(left)) * 1e9) };

    if (left > 0)
        nanosleep(&delay, NULL);
}

static void *run_client(void *argument)
{
    struct client *client = argument;
    double at = client->begin;

    client->result = CLI_OK;
    client->bench.n_runs = 0;
    for (size_t i = 0; client->result == CLI_OK; i++) {
        at += -log(cli_bench_uniform(&client->random)) / client->rate;
        if (at >= client->end || cli_now() >= client->end)
            break;
        sleep_until(at);
        client->result = cli_bench_run_one(&client->bench, i % client->bench.texts.n, at);
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------- utilization */

static double process_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Mean load of a GPU until `end`, 0 to 1; -1 if the driver does not tell. */
static double sample_load(struct share *share, double end)
{
    const struct timespec pause = { 0, SAMPLE_NS };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    double sum = 0;
    int n = 0;

    while (cli_now() < end) {
        nanosleep(&pause, NULL);
        if (gpuserve_device_refresh(share->context, &share->device, &error) != GPUSERVE_OK ||
            share->device.load_percent < 0)
            continue;
        sum += share->device.load_percent / 100.0;
        n++;
    }
    return n ? sum / n : -1;
}

static bool is_cpu(const struct share *share)
{
    return strcmp(share->device.selector, "cpu") == 0;
}

/* The hardware threads that compute: --threads, or all that are usable. */
static double n_threads(const struct share *share)
{
    if (share->args->threads)
        return (double)share->args->threads;
    return share->device.n_cores > 0 ? (double)share->device.n_cores : 1;
}

/* ---------------------------------------------------------------------------------------- rounds
 */

static int open_client(struct share *share)
{
    gpuserve_model_options options = cli_model_options(share->args);
    struct client *client = &share->clients[share->n];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint64_t random = 1;
    char name[32];
    int result;

    snprintf(name, sizeof(name), "share-%zu", share->n + 1);
    options.name = name;
    options.device = share->device.selector;
    client->bench.args = share->args;
    client->random = share->n + 1;
    if (gpuserve_model_open(&client->bench.model, share->context, share->args->model, &options,
                            &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    share->n++;
    result = cli_bench_prepare(&client->bench);
    for (size_t i = 0; i < N_TEXTS && result == CLI_OK; i++)
        result =
            cli_bench_add_made(&client->bench.texts, client->bench.model, TEXT_TOKENS, &random);
    if (result != CLI_OK)
        return result;
    return cli_bench_begin(&client->bench);
}

/* The latencies of all clients, sorted; owned. */
static double *collect(const struct share *share, size_t *n)
{
    double *all;

    *n = 0;
    for (size_t i = 0; i < share->n; i++)
        *n += share->clients[i].bench.n_runs;
    all = cli_alloc(*n ? *n : 1, sizeof(*all));
    *n = 0;
    for (size_t i = 0; i < share->n; i++) {
        const struct cli_bench *bench = &share->clients[i].bench;

        if (bench->n_runs > 0)
            memcpy(all + *n, bench->seconds, bench->n_runs * sizeof(*all));
        *n += bench->n_runs;
    }
    cli_sort_doubles(all, *n);
    return all;
}

/* Nearest rank; 0 of none. */
static double rank(const double *sorted, size_t n, double q)
{
    return n ? sorted[(size_t)(q * (double)(n - 1) + 0.5)] : 0;
}

static void add_row(struct share *share, json_t *rows, double utilization)
{
    const double offered = share->rate * (double)share->n;
    size_t n;
    double *sorted = collect(share, &n);
    const double p50 = rank(sorted, n, 0.5) * 1e3, p99 = rank(sorted, n, 0.99) * 1e3;
    json_t *row = json_pack("{s:I, s:f, s:f, s:f, s:f}", "models", (json_int_t)share->n,
                            "offered_per_s", offered, "answered_per_s", (double)n / share->seconds,
                            "p50_ms", p50, "p99_ms", p99);

    json_object_set_new(row, "utilization", utilization < 0 ? json_null() : json_real(utilization));
    json_array_append_new(rows, row);
    cli_plot_add(&share->plot, (double)share->n, utilization < 0 ? 0 : 100 * utilization, p50, p99);
    free(sorted);
}

/* Runs all open models at once. */
static int run_round(struct share *share, json_t *rows)
{
    const double begin = cli_now(), used = process_seconds();
    int result = CLI_OK;
    double utilization = 0;
    size_t started = 0;

    for (size_t i = 0; i < share->n; i++) {
        struct client *client = &share->clients[i];

        client->rate = share->rate;
        client->begin = begin;
        client->end = begin + share->seconds;
        if (pthread_create(&client->thread, NULL, run_client, client) != 0) {
            result = cli_fail("bench cannot start a thread for each model");
            break;
        }
        started++;
    }
    if (result == CLI_OK && !is_cpu(share))
        utilization = sample_load(share, begin + share->seconds);
    for (size_t i = 0; i < started; i++) {
        pthread_join(share->clients[i].thread, NULL);
        if (result == CLI_OK)
            result = share->clients[i].result;
    }
    if (is_cpu(share))
        utilization = (process_seconds() - used) / (cli_now() - begin) / n_threads(share);
    if (result == CLI_OK)
        add_row(share, rows, utilization);
    return result;
}

/* The rate that is a quarter of what one model answers to one client, after a first pass. */
static int set_rate(struct share *share)
{
    struct cli_bench *bench = &share->clients[0].bench;
    int result = CLI_OK;
    double begin = 0;

    share->rate = share->args->rate;
    for (size_t i = 0; share->args->rate <= 0 && i < 2 * N_TEXTS && result == CLI_OK; i++) {
        if (i == N_TEXTS)
            begin = cli_now();
        result = cli_bench_run_one(bench, i % N_TEXTS, cli_now());
        if (i == 2 * N_TEXTS - 1)
            share->rate = DEFAULT_LOAD * N_TEXTS / (cli_now() - begin);
    }
    return result;
}

/* ------------------------------------------------------------------------------------- printing */

static double number_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_rows(const struct share *share, const json_t *rows)
{
    const json_t *row;
    size_t i;

    printf("%s, %.1f texts/s of %d tokens for each model\n", share->device.name, share->rate,
           TEXT_TOKENS);
    printf("models  offered/s  answered/s  utilization   p50 ms   p99 ms\n");
    json_array_foreach((json_t *)rows, i, row)
    {
        printf("%6lld %10.1f %11.1f", (long long)json_integer_value(json_object_get(row, "models")),
               number_of(row, "offered_per_s"), number_of(row, "answered_per_s"));
        if (json_is_null(json_object_get(row, "utilization")))
            printf("            -");
        else
            printf("%11.0f %%", 100 * number_of(row, "utilization"));
        printf(" %8.2f %8.2f\n", number_of(row, "p50_ms"), number_of(row, "p99_ms"));
    }
}

static int print_share(struct share *share, json_t *rows)
{
    int result = CLI_OK;

    if (share->args->plot)
        result = cli_plot_write(&share->plot, share->args->plot);
    if (result == CLI_OK && share->args->json)
        return cli_facts_print(json_pack("{s:s, s:s, s:s, s:f, s:O}", "gpuserve",
                                         gpuserve_version(), "model", share->args->model, "device",
                                         share->device.selector, "rate", share->rate, "share",
                                         rows),
                               true);
    if (result == CLI_OK)
        print_rows(share, rows);
    return result;
}

static int run_rounds(struct share *share, json_t *rows)
{
    int result = CLI_OK;

    for (uint32_t n = 0; n < share->args->share && result == CLI_OK; n++) {
        result = open_client(share);
        if (result == CLI_OK && n == 0)
            result = set_rate(share);
        if (result == CLI_OK)
            result = run_round(share, rows);
    }
    return result == CLI_OK ? print_share(share, rows) : result;
}

int cli_bench_share(const struct cli_args *args)
{
    const gpuserve_device_info none = GPUSERVE_DEVICE_INFO_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct share *share;
    json_t *rows;
    int result;

    if (!args->model)
        return cli_model_missing();
    share = cli_alloc(1, sizeof(*share));
    share->args = args;
    share->device = none;
    share->seconds = args->seconds > 0 ? args->seconds : DEFAULT_SECONDS;
    result = cli_context(&share->context, args);
    if (result == CLI_OK && gpuserve_device_select(share->context, args->device, &share->device, 1,
                                                   NULL, NULL, 0, &error) != GPUSERVE_OK)
        result = cli_fail_with(&error, NULL);
    rows = json_array();
    if (result == CLI_OK)
        result = run_rounds(share, rows);
    for (size_t i = 0; i < share->n; i++) {
        cli_bench_end(&share->clients[i].bench);
        gpuserve_model_close(&share->clients[i].bench.model);
    }
    json_decref(rows);
    gpuserve_context_unref(&share->context);
    free(share);
    return result;
}
