/*
 * queue_model.h - simulates a queue of texts in front of equal threads that run batches.
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
#ifndef CLI_QUEUE_MODEL_H
#define CLI_QUEUE_MODEL_H

#include <stddef.h>
#include <stdint.h>

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

#endif
