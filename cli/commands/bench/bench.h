/*
 * bench.h - the files of `gpuserve bench`: texts, runs, the limiting resource, tables, plot.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"
#include "cli/options/options.h"

#include <jansson.h>

/*
 * Generated texts of given token counts for `gpuserve bench`.
 */

struct bench_texts {
    char **texts; /* owned */
    size_t *sizes;
    size_t n, capacity;
};

void cli_bench_add(struct bench_texts *texts, const char *text, size_t size);
void cli_bench_free(struct bench_texts *texts);

/* Adds a generated text of exactly n_tokens tokens for this model, special tokens included. */
int cli_bench_add_made(struct bench_texts *texts, gpuserve_model *model, size_t n_tokens,
                       uint64_t *random);

/* Uniform in (0, 1]; advances the generator. */
double cli_bench_uniform(uint64_t *random);

/* A length of a log-normal distribution: mu 3.35, sigma 0.8, clamped to 3 ... `max_length`. */
size_t cli_bench_length(uint64_t *random, size_t max_length);

/*
 * Runs texts on a model repeatedly, and measures the times.
 */

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

/*
 * The resource that limits a workload of `gpuserve bench` on a CPU.
 */

/* Times of reading the layers' weights once from memory; zero: not a CPU. */
struct bench_limit {
    int threads;
    double max_batch_tokens;
    double all_s;   /* by every thread, all at once: batches of many texts */
    double slice_s; /* divided among the threads: one text */
};

/* Measures for the open model; takes about 0.1 s. */
int cli_bench_limit_init(struct bench_limit *limit, struct cli_bench *bench);

/*
 * Adds to the facts of a measured workload:
 *
 *   threads_busy   CPU time / (time * threads)
 *   weights_share  time of reading the weights for each batch / time
 *   limit          "memory bandwidth" if weights_share is 0.5 or more; else "threads" if they are
 *                  busy for less than 0.85: they wait for each other, for the processor that others
 *                  use, or for the next period of a CPU quota; else "compute"
 */
void cli_bench_limit_add(const struct bench_limit *limit, const struct cli_bench *bench,
                         bool is_latency, json_t *facts);

/* Which of the three, by the rule above. */
const char *cli_bench_limit_name(double threads_busy, double weights_share);

/*
 * An SVG plot of utilization and latency against the number of models.
 */

#define CLI_PLOT_POINTS 64

struct cli_plot {
    struct cli_plot_point {
        double models, percent, p50, p99;
    } points[CLI_PLOT_POINTS];
    int n;
};

void cli_plot_add(struct cli_plot *plot, double models, double percent, double p50, double p99);
/* Writes FILE, which is renamed into place when complete. */
int cli_plot_write(const struct cli_plot *plot, const char *path);

/*
 * The tables of `gpuserve bench`: compute types, batch sizes, models that share a
 * device. Each prints its table, or JSON with --json.
 */

int cli_bench_dtypes(const struct cli_args *args);
int cli_bench_batches(const struct cli_args *args);
int cli_bench_share(const struct cli_args *args);

/*
 * The experiments of docs/lessons.md, each one run of `gpuserve bench`.
 */

/* `gpuserve bench --chain`: a list of elementwise operations over a vector. */
int cli_bench_chain(const struct cli_args *args);

/* `gpuserve bench --lstm`: an LSTM by every path, and the accuracy of a model on every device. */
int cli_bench_lstm(const struct cli_args *args);

/* `gpuserve bench --transfer`: copies between host memory and a device. */
int cli_bench_transfer(const struct cli_args *args);

/* The second table of --lstm: classify labelled texts on every device. Appends rows to `table`. */
int cli_bench_devices(const struct cli_args *args, json_t *table);

/* Runs a Python script with $PYTHON or python3. The script prints one number: seconds. -1 if it
 * cannot run, as without an imported package. Messages of Python are dropped. */
double cli_python_seconds(const char *script);

/* Limits the instruction set of what is opened next to `isa`; NULL: no change. Returns the user's
 * limit, for cli_restore_isa(), which sets it again. */
char *cli_limit_isa(const char *isa);
void cli_restore_isa(const char *isa, char *kept);

/* Appends one row, {"path": name, "seconds": ...}; negative seconds: the path cannot run here, and
 * `why` says why. */
void cli_lesson_row(json_t *rows, const char *name, double seconds, const char *why);

#endif
