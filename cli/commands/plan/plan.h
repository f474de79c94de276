/*
 * plan.h - `gpuserve plan`: measurement, search for the number of cores, answer.
 *
 *   plan_measure.c (this machine) or plan_json.c (a file) -> struct plan_measured
 *   plan_search.c: simulations (queue_model.c) -> struct plan_answer for each dtype
 *   plan.c: table or JSON
 */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli/commands/plan/queue_model.h"
#include "cli/options/options.h"

#include <jansson.h>

enum {
    PLAN_MAX_DTYPES = 4,
    PLAN_MAX_ROUNDS = 200,
    PLAN_MAX_FACTORS = 2000,
    PLAN_MAX_LENGTHS = 2000,
    PLAN_REPLICATES = 20
};

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
