/*
 * bench_limit.h - the resource that limits a workload of `gpuserve bench` on a CPU.
 */
#ifndef CLI_BENCH_LIMIT_H
#define CLI_BENCH_LIMIT_H

#include "cli/commands/bench/bench_run.h"

#include <jansson.h>

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

#endif
