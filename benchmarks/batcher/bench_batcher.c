/*
 * bench_batcher.c - cost of many callers: batching of single texts, latency of one client, overhead
 * of a request, behaviour under overload.
 *
 *   bench_batcher MODEL [fp32|int8] [seconds of each part] [rounds]
 *
 * Prints one JSON object with the results of each round. bench.py drops rounds in which other
 * processes used CPU time. The parts of a round alternate; all texts have the same number of
 * tokens.
 */
#define _GNU_SOURCE
#include "benchmarks/batcher/bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CLIENTS = 64, MAX_SAMPLES = 1 << 20 };

/* ----------------------------------------------------------------------- closed-loop clients */

struct crowd {
    const struct bench *bench;
    atomic_bool stop;
    atomic_size_t next, n_done;
    double *latencies; /* [MAX_SAMPLES] us */
};

static void note(struct crowd *crowd, uint64_t begin)
{
    const size_t n = atomic_fetch_add(&crowd->n_done, 1);

    if (n < MAX_SAMPLES)
        crowd->latencies[n] = (double)(bench_now_ns() - begin) / 1e3;
}

static void *client(void *argument)
{
    struct crowd *crowd = argument;
    float *row = malloc(crowd->bench->dim * sizeof(*row));
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    while (!atomic_load(&crowd->stop)) {
        const gpuserve_job job = bench_job(crowd->bench, atomic_fetch_add(&crowd->next, 1), row);
        const uint64_t begin = bench_now_ns();

        if (gpuserve_run(crowd->bench->model, &job, &error) != GPUSERVE_OK)
            bench_die("a client's text", &error);
        note(crowd, begin);
    }
    free(row);
    return NULL;
}

static void run_threads(struct crowd *crowd, double seconds)
{
    pthread_t threads[N_CLIENTS];

    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_create(&threads[i], NULL, client, crowd);
    bench_sleep_until(bench_now_ns() + (uint64_t)(seconds * 1e9));
    atomic_store(&crowd->stop, true);
    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
}

/* A client without its own thread: its completion callback submits its next text. */
struct slot {
    struct crowd *crowd;
    float *row;
    uint64_t begin;
    atomic_bool is_over;
};

static void submit_next(struct slot *slot);

static void completed(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct slot *slot = user;

    if (status != GPUSERVE_OK)
        bench_die("a client's text failed", NULL);
    note(slot->crowd, slot->begin);
    gpuserve_request_free(&request);
    if (atomic_load(&slot->crowd->stop))
        atomic_store(&slot->is_over, true);
    else
        submit_next(slot);
}

static void submit_next(struct slot *slot)
{
    const struct bench *bench = slot->crowd->bench;
    const gpuserve_job job = bench_job(bench, atomic_fetch_add(&slot->crowd->next, 1), slot->row);
    gpuserve_request *request;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    slot->begin = bench_now_ns();
    if (gpuserve_submit(&request, bench->model, &job, completed, slot, &error) != GPUSERVE_OK)
        bench_die("a submission", &error);
}

static void run_callbacks(struct crowd *crowd, double seconds)
{
    struct slot slots[N_CLIENTS];

    for (size_t i = 0; i < N_CLIENTS; i++) {
        slots[i].crowd = crowd;
        slots[i].row = malloc(crowd->bench->dim * sizeof(float));
        atomic_init(&slots[i].is_over, false);
        submit_next(&slots[i]);
    }
    bench_sleep_until(bench_now_ns() + (uint64_t)(seconds * 1e9));
    atomic_store(&crowd->stop, true);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        while (!atomic_load(&slots[i].is_over))
            bench_sleep_until(bench_now_ns() + 100000);
        free(slots[i].row);
    }
}

struct figures {
    double rate, p50_us, p99_us, cpu_us; /* CPU time per text */
};

static struct figures closed_loop(const struct bench *bench, double seconds,
                                  void (*run)(struct crowd *, double))
{
    struct crowd crowd = { .bench = bench, .latencies = malloc(MAX_SAMPLES * sizeof(double)) };
    struct figures figures;
    uint64_t begin, cpu;
    size_t n;

    begin = bench_now_ns();
    cpu = bench_cpu_ns();
    run(&crowd, seconds);
    n = atomic_load(&crowd.n_done);
    figures.rate = (double)n / ((double)(bench_now_ns() - begin) / 1e9);
    figures.cpu_us = (double)(bench_cpu_ns() - cpu) / 1e3 / (double)n;
    n = n < MAX_SAMPLES ? n : MAX_SAMPLES;
    figures.p50_us = bench_quantile(crowd.latencies, n, 0.5);
    figures.p99_us = bench_quantile(crowd.latencies, n, 0.99);
    free(crowd.latencies);
    return figures;
}

/* ----------------------------------------------------------------------------------- the run */

/* One part of a round: closed-loop clients, or the offline rate. */
static const struct part {
    const char *name;
    void (*run)(struct crowd *, double); /* NULL: offline rate */
} parts[] = {
    { "offline", NULL },
    { "threads", run_threads },
    { "callbacks", run_callbacks },
    { "offline_again", NULL },
};

enum { N_PARTS = sizeof(parts) / sizeof(parts[0]) };

static void measure_part(const struct bench *bench, double seconds, const struct part *part)
{
    if (part->run) {
        const struct figures found = closed_loop(bench, seconds, part->run);

        printf("\"%s\": {\"texts_per_s\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
               "\"cpu_us\": %.1f}",
               part->name, found.rate, found.p50_us, found.p99_us, found.cpu_us);
    } else {
        printf("\"%s\": %.1f", part->name, bench_offline(bench, seconds));
    }
}

static void bench_throughput(const struct bench *bench, double seconds, int n_rounds)
{
    bench_offline(bench, seconds / 2); /* warm-up, of both kinds of clients too */
    closed_loop(bench, seconds / 2, run_threads);
    closed_loop(bench, seconds / 2, run_callbacks);
    printf(" \"throughput\": [");
    for (int i = 0; i < n_rounds; i++) {
        const struct bench_watch watch = bench_watch_begin();

        printf("%s{", i ? ",\n  " : "");
        for (int j = 0; j < N_PARTS; j++) { /* rotated, alternating direction */
            const int at = (i / 2 + j) % N_PARTS;

            if (j > 0)
                printf(", ");
            measure_part(bench, seconds, &parts[i % 2 ? N_PARTS - 1 - at : at]);
        }
        printf(", ");
        bench_watch_print(&watch);
        printf("\"round\": %d}", i);
    }
    printf("],\n");
}

/* Each word is one token of BERT's vocabulary; the last three words encode the text's number. */
static void make_texts(struct bench *bench)
{
    static const char *const words[] = {
        "river",   "market", "doctor", "window",  "garden", "letter", "summer", "engine",
        "teacher", "bridge", "story",  "village", "music",  "winter", "paper",  "kitchen",
    };
    uint32_t state = 12345;

    for (size_t i = 0; i < N_TEXTS; i++) {
        char text[200];
        int length = 0;

        for (int j = 0; j < 9; j++) {
            state = state * 1664525u + 1013904223u;
            length +=
                snprintf(text + length, sizeof(text) - (size_t)length, "%s ", words[state >> 28]);
        }
        snprintf(text + length, sizeof(text) - (size_t)length, "%s %s %s", words[i >> 8],
                 words[i >> 4 & 15], words[i & 15]);
        bench->texts[i] = strdup(text);
    }
}

/* All texts must have the same number of tokens, so that all parts do equal work per text. */
static void check_texts(struct bench *bench)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        int32_t ids[64];
        size_t n = 0;

        if (gpuserve_tokenize(bench->model, bench->texts[i], strlen(bench->texts[i]), ids, NULL, 64,
                              &n, NULL, &error) != GPUSERVE_OK)
            bench_die("tokenizing", &error);
        if (i > 0 && n != bench->n_tokens)
            bench_die("unequal work: the texts differ in tokens", NULL);
        bench->n_tokens = n;
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const double seconds = argc > 3 ? atof(argv[3]) : 1.0;
    const int n_rounds = argc > 4 ? atoi(argv[4]) : 5;

    if (argc < 2 || !(seconds > 0) || n_rounds < 1) {
        fprintf(stderr, "usage: bench_batcher MODEL [fp32|int8] [seconds of each part] [rounds]\n");
        return 2;
    }
    bench.path = argv[1];
    bench.dtype =
        argc > 2 && strcmp(argv[2], "int8") == 0 ? GPUSERVE_DTYPE_INT8 : GPUSERVE_DTYPE_FLOAT32;
    options.device = "cpu";
    options.dtype = bench.dtype;
    if (gpuserve_context_create(&bench.context, &context_options, &error) != GPUSERVE_OK ||
        gpuserve_model_open(&bench.model, bench.context, bench.path, &options, &error) !=
            GPUSERVE_OK)
        bench_die("opening the model", &error);
    bench.dim = gpuserve_model_dim(bench.model);
    make_texts(&bench);
    check_texts(&bench);
    printf("{\"dtype\": \"%s\", \"tokens_each\": %zu,\n",
           bench.dtype == GPUSERVE_DTYPE_INT8 ? "int8" : "fp32", bench.n_tokens);
    bench_throughput(&bench, seconds, n_rounds);
    bench_latency(&bench);
    printf(",\n");
    printf(" \"overload\": [");
    for (int i = 0; i < n_rounds; i++) {
        bench_overload(&bench, 10, 2 * seconds);
        printf(i + 1 < n_rounds ? ",\n  " : "]}\n");
    }
    gpuserve_model_close(&bench.model);
    gpuserve_context_unref(&bench.context);
    for (size_t i = 0; i < N_TEXTS; i++)
        free(bench.texts[i]);
    return 0;
}
