/*
 * bench_text.h - generated texts of given token counts for `gpuserve bench`.
 */
#ifndef CLI_BENCH_TEXT_H
#define CLI_BENCH_TEXT_H

#include "cli/cli.h"

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

#endif
