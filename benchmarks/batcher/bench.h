/*
 * bench.h - shared by the parts of bench_batcher: texts, clocks, quantiles.
 */
#ifndef BENCH_BATCHER_H
#define BENCH_BATCHER_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>
#include <stdint.h>

#define N_TEXTS 4096

struct bench {
    gpuserve_context *context;
    gpuserve_model *model;
    const char *path;
    uint32_t dtype;
    uint32_t n_threads;
    size_t dim;
    char *texts[N_TEXTS]; /* distinct, n_tokens each */
    size_t n_tokens;
};

uint64_t bench_now_ns(void);
void bench_sleep_until(uint64_t ns);
/* CPU time of all threads of the process. */
uint64_t bench_cpu_ns(void);
uint64_t bench_thread_ns(void); /* CPU time of the calling thread */
/* Measures the CPU time that other processes use from begin on; prints it as JSON fields with a
 * trailing comma. */
struct bench_watch {
    uint64_t begin, machine, own;
};

struct bench_watch bench_watch_begin(void);
void bench_watch_print(const struct bench_watch *watch);
/* Sorts `values`. */
double bench_quantile(double *values, size_t n, double q);
void bench_die(const char *what, const gpuserve_error *error);

/* A job of one text, without the result cache. */
gpuserve_job bench_job(const struct bench *bench, size_t text, float *row);

/* Texts per second in large jobs: the peak throughput. */
double bench_offline(const struct bench *bench, double seconds);

/* latency.c: latency of one client against tokenizer and forward pass; prints a JSON object of
 * blocks. */
void bench_latency(const struct bench *bench);
/* overload.c: sends `factor` times the peak throughput. Prints a JSON object. */
void bench_overload(const struct bench *bench, double factor, double seconds);

#endif
