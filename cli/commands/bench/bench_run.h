/*
 * bench_run.h - runs texts on a model repeatedly, and measures the times.
 */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H

#include "cli/commands/bench/bench_text.h"
#include "cli/options/options.h"

/* A zeroed struct with `model` and `args` is ready; cli_bench_prepare() sets row_floats. */
struct cli_bench {
    gpuserve_model *model;
    const struct cli_args *args;
    struct bench_texts texts;
    float *output; /* the last run's rows: [texts.n, row_floats] */
    gpuserve_item *items;
    size_t row_floats;
    double *seconds; /* of each run; sorted */
    size_t n_runs, capacity;
    size_t n_tokens;      /* of the last run */
    double cpu_s, wall_s; /* of all runs of cli_bench_measure(): of the process, and elapsed */
};

/* Sets the columns of an output: embeddings, or labels with --head. An error if there are none. */
int cli_bench_prepare(struct cli_bench *bench);

/* Runs one job of n texts from index `first` on, after cli_bench_begin(). */
int cli_bench_run_texts(struct cli_bench *bench, size_t first, size_t n);

/* Allocates the output and runs all texts in one job, for warm-up. */
int cli_bench_begin(struct cli_bench *bench);
/* cli_bench_begin(), then runs the same job for --seconds and at least three times. */
int cli_bench_measure(struct cli_bench *bench);
/* Runs single texts, evenly sampled, after cli_bench_measure(). */
int cli_bench_measure_single(struct cli_bench *bench);

/* Runs text `i` alone and adds the time from `begin` (cli_now()) to the times, which stay unsorted.
 */
int cli_bench_run_one(struct cli_bench *bench, size_t i, double begin);

/* Quantile of the times, by nearest rank. */
double cli_bench_quantile(const struct cli_bench *bench, double q);
/* Texts a second of the median run. */
double cli_bench_rate(const struct cli_bench *bench);

/* Adds n texts of log-normal lengths up to `max_length` tokens; the model's limit applies. */
int cli_bench_add_mixed(struct cli_bench *bench, size_t n, size_t max_length);

/* Frees texts, output and items, to run other texts; and everything but the model. */
void cli_bench_reset(struct cli_bench *bench);
void cli_bench_end(struct cli_bench *bench);

#endif
