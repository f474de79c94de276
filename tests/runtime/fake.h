/*
 * fake.h - a fake tokenizer and model that tests can hold, fail and count.
 *
 * They replace lib/text and lib/model behind the same headers, so that lib/runtime runs unchanged.
 * A token is a word; its id is computed from its letters. The vector of a text depends only on its
 * ids: fake_vector(). Words with an effect: "NAN" makes the text's row NaN, "BREAK" fails its batch
 * with GPUSERVE_E_DEVICE, "UNKNOWABLE" fails tokenization.
 */
#ifndef TEST_RUNTIME_FAKE_H
#define TEST_RUNTIME_FAKE_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

#define FAKE_DIM 8
#define FAKE_LABELS 2
#define FAKE_MAX_TOKENS 64
#define FAKE_VOCAB 1000
#define FAKE_ID_NAN 3
#define FAKE_ID_BREAK 4

/* Makes batches wait before they run, or releases them. */
void fake_hold(void);
void fake_release(void);
/* Releases one held batch. */
void fake_release_one(void);
/* Sets the time of a batch: a fixed part, and a part per token on one thread. is_shared: the
 * streams of a model run one at a time, as on a GPU. Call while no batch runs. */
void fake_set_speed(double tokens_per_s, double batch_us, bool is_shared);
/* Waits until `n` batches are running (held ones count). */
void fake_wait_running(int n);
/* Batches run since the start, and those of them on the wide stream. */
int fake_batches(void);
int fake_wide_batches(void);
int fake_largest_batch_tokens(void);
/* Batches run on the calling thread. */
int fake_batches_here(void);

/* Makes threads wait before they tokenize a text, or releases them. */
void fake_hold_tokenization(void);
void fake_release_tokenization(void);
/* Waits until `n` threads tokenize a text (held ones count). */
void fake_wait_tokenizing(int n);
/* Most threads that tokenized at once, since the last call. */
int fake_most_tokenizing(void);

/* Weight bytes of models opened from now on, as headers would give them; nothing is allocated. */
void fake_set_weights(uint64_t bytes);
/* Weight bytes of the products of each of two layers, of models opened from now on. */
void fake_set_layer_bytes(uint64_t bytes);
/* Models opened from now on also give sparse vectors, exclude prompts from pooling, and have the
 * adapter and the route of the prompts "adapted" and "routed". */
void fake_set_sparse_and_skipping(void);

/* The expected vector of a text (without its prompt). */
void fake_vector(const char *text, float vector[FAKE_DIM]);

/* Opens a context and a fake model; asserts. n_threads 0: two. */
gpuserve_model *fake_open(uint32_t n_threads, uint32_t max_batch_tokens, uint32_t max_queue_tokens);

/* The same with one worker, so that waiting jobs can form one batch, after
 * fake_set_sparse_and_skipping(). */
gpuserve_model *fake_open_one_worker(uint64_t cache_bytes);

/* A job that embeds `n` texts to `output`. */
gpuserve_job fake_job(const char *const *texts, size_t n, float *output);

#endif
