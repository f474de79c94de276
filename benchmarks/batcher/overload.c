/*
 * overload.c - overload test: an open loop that sends `factor` times the model's peak throughput.
 *
 * The model's queue holds a quarter of a second of work, a typical latency-oriented limit.
 * Measured: goodput relative to the peak, time of a rejection, latency of accepted texts. A
 * rejected text is not sent again (open loop). The sender uses the same cores; its share of CPU
 * time is reported.
 */
#define _GNU_SOURCE
#include "benchmarks/batcher/bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 1 << 20 };

struct load {
    atomic_size_t n_good, n_pending;
    double *accepted; /* [MAX] us */
};

struct one {
    struct load *load;
    uint64_t begin;
    float row[];
};

static void completed(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct one *one = user;

    if (status == GPUSERVE_OK) {
        const size_t n = atomic_fetch_add(&one->load->n_good, 1);

        if (n < MAX)
            one->load->accepted[n] = (double)(bench_now_ns() - one->begin) / 1e3;
    }
    gpuserve_request_free(&request);
    atomic_fetch_sub(&one->load->n_pending, 1);
    free(one);
}

/* True if the text was accepted. */
static bool send_one(const struct bench *bench, gpuserve_model *model, struct load *load,
                     size_t text, double *refusal_us, uint32_t *retry_ms)
{
    struct one *one = malloc(sizeof(*one) + bench->dim * sizeof(float));
    const gpuserve_job job = bench_job(bench, text, one->row);
    gpuserve_request *request;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    one->load = load;
    one->begin = bench_now_ns();
    atomic_fetch_add(&load->n_pending, 1);
    if (gpuserve_submit(&request, model, &job, completed, one, &error) == GPUSERVE_OK)
        return true;
    if (error.status != GPUSERVE_E_BUSY)
        bench_die("a submission", &error);
    *refusal_us = (double)(bench_now_ns() - one->begin) / 1e3;
    *retry_ms = error.retry_after_ms;
    atomic_fetch_sub(&load->n_pending, 1);
    free(one);
    return false;
}

void bench_overload(const struct bench *bench, double factor, double seconds)
{
    const struct bench_watch watch = bench_watch_begin();
    const double before = bench_offline(bench, seconds / 2);
    double peak = before, after;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    struct load load = { .accepted = malloc(MAX * sizeof(double)) };
    double *refused = malloc(MAX * sizeof(double));
    const double rate = peak * factor;
    size_t n_sent = 0, n_refused = 0, n_before = 0, n_good;
    uint32_t retry_ms = 0;
    uint64_t begin, now, counted = 0, cpu = 0, sender = 0, offline_cpu;
    double spent, offline_texts;

    options.device = "cpu";
    options.dtype = bench->dtype;
    options.max_queue_tokens = (uint32_t)(peak * (double)bench->n_tokens / 4) + 1000;
    if (gpuserve_model_open(&model, NULL, bench->path, &options, &error) != GPUSERVE_OK)
        bench_die("a model with a short queue", &error);
    begin = bench_now_ns();
    for (now = begin; (double)(now - begin) < seconds * 1e9; now = bench_now_ns()) {
        const size_t due = (size_t)(rate * (double)(now - begin) / 1e9);

        for (; n_sent < due; n_sent++) {
            double us;

            if (!send_one(bench, model, &load, n_sent, &us, &retry_ms) && n_refused < MAX)
                refused[n_refused++] = us;
        }
        bench_sleep_until(now + 1000000);
        if (counted == 0 && (double)(now - begin) > seconds * 1e9 / 4) {
            counted = now; /* first batches are in flight: start counting */
            cpu = bench_cpu_ns();
            sender = bench_thread_ns();
            n_before = atomic_load(&load.n_good);
        }
    }
    spent = (double)(now - counted) / 1e9;
    cpu = bench_cpu_ns() - cpu;
    sender = bench_thread_ns() - sender;
    n_good = atomic_load(&load.n_good) - n_before;
    while (atomic_load(&load.n_pending) > 0)
        bench_sleep_until(bench_now_ns() + 1000000);
    offline_cpu = bench_cpu_ns();
    now = bench_now_ns();
    after =
        bench_offline(bench, seconds / 2); /* the machine's speed may have changed since `before` */
    peak = (peak + after) / 2;
    offline_cpu = bench_cpu_ns() - offline_cpu;
    offline_texts = after * ((double)(bench_now_ns() - now) / 1e9);
    printf("{");
    bench_watch_print(&watch);
    printf("\"peak_before\": %.1f, \"peak_after\": %.1f, ", before, after);
    printf("\"factor\": %.0f, \"sent_per_s\": %.0f, \"goodput_texts_per_s\": %.1f, "
           "\"of_peak\": %.3f, \"refused\": %zu, \"refusal_p99_us\": %.1f, "
           "\"refusal_most_us\": %.1f, \"retry_after_ms\": %u, ",
           factor, (double)n_sent / seconds, (double)n_good / spent, (double)n_good / spent / peak,
           n_refused, bench_quantile(refused, n_refused, 0.99),
           bench_quantile(refused, n_refused, 1), retry_ms);
    printf("\"cores_busy\": %.2f, \"cores_of_the_sender\": %.3f, ", (double)cpu / 1e9 / spent,
           (double)sender / 1e9 / spent);
    /* CPU time per offline text, relative to the CPU time per completed text here: nearly
     * independent of other processes' load. */
    printf("\"of_peak_by_processor_time\": %.3f, ",
           (double)offline_cpu / offline_texts / ((double)cpu / (double)n_good));
    n_good = atomic_load(&load.n_good); /* latencies of all completed texts */
    n_good = n_good < MAX ? n_good : MAX;
    printf("\"accepted_p50_ms\": %.1f, \"accepted_p99_ms\": %.1f}",
           bench_quantile(load.accepted, n_good, 0.5) / 1e3,
           bench_quantile(load.accepted, n_good, 0.99) / 1e3);
    gpuserve_model_close(&model);
    free(load.accepted);
    free(refused);
}
