/*
 * bench.h - what the parts of bench_batcher share: texts, clocks, quantiles.
 */
#ifndef BENCH_BATCHER_H
#define BENCH_BATCHER_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>
#include <stdint.h>

#define N_TEXTS 4096

struct bench {
    gpuserve_model *model;
    const char *path;
    uint32_t dtype;
    uint32_t n_threads;
    size_t dim;
    char *texts[N_TEXTS]; /* distinct, of n_tokens each */
    size_t n_tokens;
};

uint64_t bench_now_ns(void);
void bench_sleep_until(uint64_t ns);
/* Time of all threads of the process. */
uint64_t bench_cpu_ns(void);
uint64_t bench_thread_ns(void); /* of the calling one */
/* What others take of the machine's processor time from here on; prints it as members of an object,
 * with a comma behind. */
struct bench_watch {
    uint64_t begin, machine, own;
};

struct bench_watch bench_watch_begin(void);
void bench_watch_print(const struct bench_watch *watch);
/* Sorts the values. */
double bench_quantile(double *values, size_t n, double q);
void bench_die(const char *what, const gpuserve_error *error);

/* Of one text alone, which each text is not to share. */
gpuserve_job bench_job(const struct bench *bench, size_t text, float *row);

/* Texts a second in one job of all texts: what the machine can do. */
double bench_offline(const struct bench *bench, double seconds);

/* latency.c: one client against tokenizer and forward alone; prints a JSON object of blocks. */
void bench_latency(const struct bench *bench);
/* overload.c: `factor` times as much as can be served. Prints a JSON object. */
void bench_overload(const struct bench *bench, double factor, double seconds);

#endif
