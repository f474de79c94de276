/*
 * common.c - clocks, quantiles and the offline rate of bench_batcher.
 */
#define _GNU_SOURCE
#include "benchmarks/batcher/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t bench_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t bench_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* User, nice, system and steal time of all processors, from /proc/stat, without interrupt time. */
static uint64_t machine_ns(void)
{
    unsigned long long fields[8] = { 0 };
    FILE *file = fopen("/proc/stat", "r");

    if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &fields[0], &fields[1],
                        &fields[2], &fields[3], &fields[4], &fields[5], &fields[6], &fields[7]) < 4)
        bench_die("/proc/stat cannot be read", NULL);
    fclose(file);
    return (fields[0] + fields[1] + fields[2] + fields[7]) * 1000000000u /
           (uint64_t)sysconf(_SC_CLK_TCK);
}

struct bench_watch bench_watch_begin(void)
{
    const struct bench_watch watch = { .begin = bench_now_ns(),
                                       .machine = machine_ns(),
                                       .own = bench_cpu_ns() };

    return watch;
}

void bench_watch_print(const struct bench_watch *watch)
{
    const double machine = (double)(machine_ns() - watch->machine) / 1e9;
    const double own = (double)(bench_cpu_ns() - watch->own) / 1e9;

    printf("\"seconds\": %.3f, \"others_s\": %.3f, ", (double)(bench_now_ns() - watch->begin) / 1e9,
           machine > own ? machine - own : 0.0);
}

void bench_sleep_until(uint64_t ns)
{
    const struct timespec until = { .tv_sec = (time_t)(ns / 1000000000u),
                                    .tv_nsec = (long)(ns % 1000000000u) };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        continue;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t n, double q)
{
    if (n == 0)
        return 0;
    qsort(values, n, sizeof(*values), by_value);
    return values[(size_t)(q * (double)(n - 1))];
}

void bench_die(const char *what, const gpuserve_error *error)
{
    fprintf(stderr, "bench_batcher: %s: %s\n", what, error ? error->message : "");
    exit(1);
}

gpuserve_job bench_job(const struct bench *bench, size_t text, float *row)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.n_items = 1;
    job.texts = (const char *const *)&bench->texts[text % N_TEXTS];
    job.output = row;
    job.output_capacity = bench->dim;
    job.cache = GPUSERVE_CACHE_OFF;
    return job;
}

double bench_offline(const struct bench *bench, double seconds)
{
    const size_t most = N_TEXTS / 8; /* short jobs, so that the loop stops close to `seconds` */
    float *rows = malloc(most * bench->dim * sizeof(*rows));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const uint64_t begin = bench_now_ns();
    uint64_t now = begin;
    size_t n = 0;

    while ((double)(now - begin) < seconds * 1e9) {
        gpuserve_job job = bench_job(bench, n, rows);

        job.n_items = most;
        job.output_capacity = most * bench->dim;
        if (gpuserve_run(bench->model, &job, &error) != GPUSERVE_OK)
            bench_die("the offline job", &error);
        n += most;
        now = bench_now_ns();
    }
    free(rows);
    return (double)n / ((double)(now - begin) / 1e9);
}
