/*
 * simulate.c - simulates larger machines: the real runtime over devices of configured speed.
 *
 *   simulate cpu CORES LOAD SECONDS [WAIT_US]
 *                                        one model, one worker per core
 *   simulate gpu DEVICES LOAD SECONDS [WAIT_US]
 *                                        a model on each device, two streams alternating
 *   simulate request CORES
 *                                        one client, one text at a time, a device of zero time
 *
 * Tokenizer and model are the tests' fakes (tests/runtime/fake.c): a batch sleeps for the time that
 * the device would compute. Queue, batching, locks, wake-ups and copies are the library's own, on
 * the real processors. LOAD is the fraction of the devices' capacity, sent by an open loop with
 * random arrivals; 0 is a closed loop of 32 texts per core, or 1024 per device.
 *
 * Prints one JSON object: the devices' limit, the reached rate, latencies, and the CPU time per
 * text, which includes the runtime and the clients.
 */
#define _GNU_SOURCE
#include "tests/runtime/fake.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { TEXT_TOKENS = 14, MAX_MODELS = 16, N_TEXTS = 4096, MAX = 1 << 21 };

/* Approximate speed of BERT base in int8 on a core of 2.6 GHz, and in float16 on a GPU. It is ten
 * times slower than small models, so that the two real processors are not the bottleneck. */
#define CORE_TOKENS_A_SECOND 2300.0
#define CORE_BATCH_US 100.0
#define GPU_TOKENS_A_SECOND 150000.0
#define GPU_BATCH_US 500.0
#define GPU_CLIENTS 1024
#define CORE_CLIENTS 32

static struct {
    gpuserve_model *models[MAX_MODELS];
    size_t n_models;
    char texts[N_TEXTS][160];
    atomic_bool stop;
    atomic_size_t next, n_done, n_pending, n_refused;
    double *latencies; /* [MAX] us */
} simulation;

struct client {
    gpuserve_model *model;
    uint64_t begin;
    bool is_closed; /* closed loop: sends its next text on completion */
    float row[FAKE_DIM];
};

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    const struct timespec until = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        continue;
}

static void die(const char *what)
{
    fprintf(stderr, "simulate: %s\n", what);
    exit(1);
}

/* ----------------------------------------------------------------------------------- clients */

static void send_text(struct client *client);

static void completed(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct client *client = user;
    const size_t n = atomic_fetch_add(&simulation.n_done, 1);

    if (status != GPUSERVE_OK)
        die("a text failed");
    if (n < MAX)
        simulation.latencies[n] = (double)(read_clock(CLOCK_MONOTONIC) - client->begin) / 1e3;
    gpuserve_request_free(&request);
    if (client->is_closed && !atomic_load(&simulation.stop)) {
        send_text(client);
        return;
    }
    free(client);
    atomic_fetch_sub(&simulation.n_pending, 1);
}

static void send_text(struct client *client)
{
    const char *text = simulation.texts[atomic_fetch_add(&simulation.next, 1) % N_TEXTS];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *request;

    job.n_items = 1;
    job.texts = &text;
    job.output = client->row;
    job.output_capacity = FAKE_DIM;
    job.cache = GPUSERVE_CACHE_OFF;
    client->begin = read_clock(CLOCK_MONOTONIC);
    if (gpuserve_submit(&request, client->model, &job, completed, client, NULL) == GPUSERVE_OK)
        return;
    atomic_fetch_add(&simulation.n_refused, 1);
    atomic_fetch_sub(&simulation.n_pending, 1);
    free(client);
}

static void start_client(size_t i, bool is_closed)
{
    struct client *client = calloc(1, sizeof(*client));

    client->model = simulation.models[i % simulation.n_models];
    client->is_closed = is_closed;
    atomic_fetch_add(&simulation.n_pending, 1);
    send_text(client);
}

/* Poisson arrivals: exponentially distributed gaps. */
static void open_loop(double texts_per_s, double seconds)
{
    const uint64_t begin = read_clock(CLOCK_MONOTONIC), end = begin + (uint64_t)(seconds * 1e9);
    double due = (double)begin;
    uint64_t state = 88172645463325252u;

    for (size_t i = 0; due < (double)end; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        due += -log(((double)(state >> 11) + 1) / 9007199254740993.0) / texts_per_s * 1e9;
        if (due > (double)read_clock(CLOCK_MONOTONIC) + 50000)
            sleep_until((uint64_t)due);
        start_client(i, false);
    }
}

static void closed_loop(size_t n_clients, double seconds)
{
    for (size_t i = 0; i < n_clients; i++)
        start_client(i, true);
    sleep_until(read_clock(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9));
}

/* ------------------------------------------------------------------------------------ machine */

static void open_models(bool is_gpu, size_t n, uint32_t wait_us)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context;

    context_options.n_threads = is_gpu ? 2 : (uint32_t)n;
    context_options.plugin_dir = PLUGIN_DIR;
    options.device = is_gpu ? "cuda:0" : "cpu";
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.max_queue_tokens = 1u << 24;
    options.max_wait_us = wait_us;
    simulation.n_models = is_gpu ? n : 1;
    if (gpuserve_context_create(&context, &context_options, &error) != GPUSERVE_OK)
        die(error.message);
    for (size_t i = 0; i < simulation.n_models; i++) {
        if (gpuserve_model_open(&simulation.models[i], context, ".", &options, &error) !=
            GPUSERVE_OK)
            die(error.message);
    }
    gpuserve_context_unref(&context);
}

static void make_texts(void)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t length = 0;

        for (size_t j = 0; j < TEXT_TOKENS - 2; j++) /* plus two special tokens */
            length +=
                (size_t)snprintf(simulation.texts[i] + length, sizeof(simulation.texts[i]) - length,
                                 "w%zu ", (i * 31 + j * 17) % 977);
    }
}

/* ------------------------------------------------------------------------------------ request */

static double median_us(double *values, size_t n);

static gpuserve_job job_of(const char *const *text, float *row)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.n_items = 1;
    job.texts = text;
    job.output = row;
    job.output_capacity = FAKE_DIM;
    job.cache = GPUSERVE_CACHE_OFF;
    return job;
}

static void run_blocking(gpuserve_model *model, const gpuserve_job *job)
{
    if (gpuserve_run(model, job, NULL) != GPUSERVE_OK)
        die("a text failed");
}

static void run_submitted(gpuserve_model *model, const gpuserve_job *job)
{
    gpuserve_request *request;

    if (gpuserve_submit(&request, model, job, NULL, NULL, NULL) != GPUSERVE_OK ||
        gpuserve_wait(request, -1, NULL) != GPUSERVE_OK)
        die("a text failed");
    gpuserve_request_free(&request);
}

/* Time of a request without the device, alternating blocking calls and submissions. */
static void measure_requests(void)
{
    static double blocking[N_TEXTS], submitted[N_TEXTS];
    float row[FAKE_DIM];

    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *const text = simulation.texts[i];
        const gpuserve_job job = job_of(&text, row);
        uint64_t begin = read_clock(CLOCK_MONOTONIC);

        run_blocking(simulation.models[0], &job);
        blocking[i] = (double)(read_clock(CLOCK_MONOTONIC) - begin) / 1e3;
        begin = read_clock(CLOCK_MONOTONIC);
        run_submitted(simulation.models[0], &job);
        submitted[i] = (double)(read_clock(CLOCK_MONOTONIC) - begin) / 1e3;
    }
    printf("{\"kind\": \"request\", \"blocking_us\": %.2f, \"submitted_us\": %.2f}\n",
           median_us(blocking, N_TEXTS), median_us(submitted, N_TEXTS));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_us(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return values[n / 2];
}

int main(int argc, char **argv)
{
    const bool is_gpu = argc > 1 && strcmp(argv[1], "gpu") == 0;
    const size_t n = argc > 2 ? (size_t)atoi(argv[2]) : 0;
    const double load = argc > 3 ? atof(argv[3]) : 0, seconds = argc > 4 ? atof(argv[4]) : 2;
    const double speed = is_gpu ? GPU_TOKENS_A_SECOND : CORE_TOKENS_A_SECOND;
    const double limit = speed / TEXT_TOKENS * (double)n;
    uint64_t begin, cpu;
    double spent;
    size_t n_done;

    if (argc < 3 || n == 0 || (is_gpu && n > MAX_MODELS))
        die("usage: simulate cpu|gpu|request CORES|DEVICES [LOAD [SECONDS [WAIT_US]]]");
    prctl(PR_SET_TIMERSLACK, 1000); /* inherited by threads */
    make_texts();
    if (strcmp(argv[1], "request") == 0) {
        open_models(false, n, 0);
        measure_requests();
        gpuserve_model_close(&simulation.models[0]);
        return 0;
    }
    fake_set_speed(speed, is_gpu ? GPU_BATCH_US : CORE_BATCH_US, is_gpu);
    simulation.latencies = malloc(MAX * sizeof(double));
    open_models(is_gpu, n, argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 0);
    begin = read_clock(CLOCK_MONOTONIC);
    cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    if (load > 0)
        open_loop(limit * load, seconds);
    else
        closed_loop(n * (is_gpu ? GPU_CLIENTS : CORE_CLIENTS), seconds);
    n_done = atomic_load(&simulation.n_done);
    spent = (double)(read_clock(CLOCK_MONOTONIC) - begin) / 1e9;
    cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    atomic_store(&simulation.stop, true);
    while (atomic_load(&simulation.n_pending) > 0)
        sleep_until(read_clock(CLOCK_MONOTONIC) + 1000000);
    printf("{\"kind\": \"%s\", \"n\": %zu, \"load\": %.2f, \"limit_texts_per_s\": %.0f, "
           "\"texts_per_s\": %.0f, \"of_limit\": %.3f, \"batch_texts\": %.1f, ",
           argv[1], n, load, limit, (double)n_done / spent, (double)n_done / spent / limit,
           (double)n_done / fake_batches());
    n_done = n_done < MAX ? n_done : MAX;
    qsort(simulation.latencies, n_done, sizeof(double), by_value);
    printf("\"p50_us\": %.0f, \"p99_us\": %.0f, \"cpu_us_per_text\": %.2f, \"refused\": %zu}\n",
           simulation.latencies[n_done / 2], simulation.latencies[n_done * 99 / 100],
           (double)cpu / 1e3 / (double)atomic_load(&simulation.n_done),
           atomic_load(&simulation.n_refused));
    for (size_t i = 0; i < simulation.n_models; i++)
        gpuserve_model_close(&simulation.models[i]);
    free(simulation.latencies);
    return 0;
}
