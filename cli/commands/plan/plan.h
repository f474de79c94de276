/*
 * plan.h - `gpuserve plan`: measurement, search for the number of cores, answer.
 *
 *   plan_measure.c (this machine) or plan_json.c (a file) -> struct plan_measured
 *   plan_search.c: simulations (queue_model.c) -> struct plan_answer for each dtype
 *   plan.c: table or JSON
 */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli/options/options.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLAN_MAX_DTYPES = 4,
    PLAN_MAX_ROUNDS = 200,
    PLAN_MAX_FACTORS = 2000,
    PLAN_MAX_LENGTHS = 2000,
    PLAN_REPLICATES = 20
};

/*
 * Simulates a queue of texts in front of equal threads that run batches.
 *
 * Poisson arrivals; one queue in order of arrival. A thread that is free takes all waiting texts up
 * to max_batch_tokens, or waits for the next one (M/G/c with batch service). A batch takes
 *
 *   (batch_s + token_s * tokens) * factor * slowdown
 *
 * where `factor` is drawn from measured deviations. Not modelled: threads that share one batch
 * while others are idle, which shortens latency at low load; the time to wake a thread; bursts
 * beyond those of Poisson arrivals.
 */

#define CLI_QUEUE_TEXTS 20000 /* of a simulation; the first twentieth is not counted */
#define CLI_QUEUE_MAX_THREADS 256

struct cli_service {
    double batch_s, token_s;
};

struct cli_queue {
    double rate;           /* texts a second */
    const double *lengths; /* [n_lengths] tokens of texts, drawn uniformly */
    size_t n_lengths;
    struct cli_service service;
    const double *factors; /* [n_factors], drawn uniformly */
    size_t n_factors;
    double slowdown; /* of a batch, by the other threads */
    int threads;     /* 1 to CLI_QUEUE_MAX_THREADS */
    double max_batch_tokens;
    uint64_t seed; /* not 0 */
};

struct cli_queue_result {
    double mean_s, p50_s, p99_s; /* time from arrival to completion */
    double busy;                 /* share of the threads' time */
    double batch_texts;          /* mean texts of a batch */
};

void cli_queue_simulate(const struct cli_queue *queue, struct cli_queue_result *result);

/* Fits batch_s + token_s * tokens to n measured times with the least squared relative error. Both
 * are at least 0. */
struct cli_service cli_service_fit(const double *tokens, const double *seconds, size_t n);

/* Memory of a model: base + per_thread * threads. */
struct plan_memory {
    double base_bytes, per_thread_bytes;
};

struct plan_dtype {
    char name[16];
    struct cli_service rounds[PLAN_MAX_ROUNDS]; /* one fit for each round of the measurement */
    size_t n_rounds;
    double factors[PLAN_MAX_FACTORS]; /* measured time / fitted time */
    size_t n_factors;
    double one_thread, all_threads; /* texts a second of a full queue */
    struct plan_memory memory;
};

struct plan_measured {
    char processor[128];
    int threads; /* of all_threads */
    double max_batch_tokens;
    double lengths[PLAN_MAX_LENGTHS];
    size_t n_lengths;
    struct plan_dtype dtypes[PLAN_MAX_DTYPES];
    size_t n_dtypes;
};

struct plan_target {
    double rate, p99_s, core_price; /* texts a second; price of a core and hour */
};

/* The replicates of a plan differ in the round of the measurement and in the random numbers. */
struct plan_answer {
    bool is_possible;          /* with CLI_QUEUE_MAX_THREADS cores at most */
    int cores;                 /* meet the target in 19 of 20 replicates */
    int cores_low, cores_high; /* the least that some replicate needs, and the most */
    double busy, p50_s, p99_s; /* medians of the replicates with `cores` */
    double p99_low_s, p99_high_s;
    double memory_bytes, cost; /* of a million texts */
    double capacity;           /* texts a second of full batches on `cores` */
    double speedup;            /* of the measured threads over one */
    bool is_extrapolated;      /* more cores than were measured */
};

/* Measures dtypes on this machine for `args->seconds` in all. */
int plan_measure(struct plan_measured *measured, const struct cli_args *args);

/* The same as JSON, and from a file with it; CLI_FAILED with a message. */
json_t *plan_to_json(const struct plan_measured *measured);
int plan_from_file(struct plan_measured *measured, const char *path);

void plan_search(const struct plan_measured *measured, const struct plan_dtype *dtype,
                 const struct plan_target *target, struct plan_answer *answer);

#endif
