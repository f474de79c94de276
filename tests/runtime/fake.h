/*
 * fake.h - a tokenizer and a model that tests can hold, break and count.
 *
 * They stand in for lib/text and lib/model behind the same headers, so that lib/runtime runs as it
 * is. A token is a word; its id comes from its letters. The vector of a text depends on its ids
 * alone: see fake_vector(). Words with a meaning: "NAN" makes the text's row NaN, "BREAK" makes its
 * batch fail with GPUSERVE_E_DEVICE, "UNKNOWABLE" cannot be tokenized.
 */
#ifndef TEST_RUNTIME_FAKE_H
#define TEST_RUNTIME_FAKE_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

#define FAKE_DIM 8
#define FAKE_LABELS 2
#define FAKE_MAX_TOKENS 64
#define FAKE_VOCAB 1000

/* Let batches wait before they run, or let them go on. */
void fake_hold(void);
void fake_release(void);
/* From now on a batch takes time: so long, and so long for its tokens on one thread; is_shared: the
 * streams of a model compute in turn, as on a GPU. While no batch is computed. */
void fake_set_speed(double tokens_per_s, double batch_us, bool is_shared);
/* Wait until so many batches are being run (held ones count). */
void fake_wait_running(int n);
/* Batches run since the start, and how many of them on the wide stream. */
int fake_batches(void);
int fake_wide_batches(void);
int fake_largest_batch_tokens(void);
/* Of the batches those that ran on this thread. */
int fake_batches_here(void);

/* Weights of models opened from now on, as their headers would tell; nothing is allocated. */
void fake_set_weights(uint64_t bytes);
/* Models opened from now on give sparse vectors too, and leave prompts out of their pooling. */
void fake_set_sparse_and_skipping(void);

/* What the model must answer for a text (after its prompt). */
void fake_vector(const char *text, float vector[FAKE_DIM]);

/* A context and a model of the fake; asserts. n_threads 0: two. */
gpuserve_model *fake_open(uint32_t n_threads, uint32_t max_batch_tokens, uint32_t max_queue_tokens);

/* A job that embeds `n` texts to `output`. */
gpuserve_job fake_job(const char *const *texts, size_t n, float *output);

#endif
