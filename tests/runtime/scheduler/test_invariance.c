/*
 * test_invariance.c - batch invariance: other texts in a batch never change a result.
 *
 * 200 texts alone, then in 500 random batches from eight threads, with one thread and with several,
 * together with cancelled, overflowing and other requests. The bits are equal in float32 and int8.
 * Coalescing and caching are off, so every row is computed.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Fewer batches, see tests/base/sanitized.h. */
enum { N_TEXTS = 16, N_BATCHES = 16, MAX_COMPANY = 6, N_CALLERS = 4 };
#else
enum { N_TEXTS = 200, N_BATCHES = 500, MAX_COMPANY = 8, N_CALLERS = 8 };
#endif

enum { MAX_TOKENS = 40, OVERFLOWING = 50 };

struct crowd {
    gpuserve_model *model;
    const char *texts[N_TEXTS];
    float *alone; /* [N_TEXTS, dim] */
    size_t dim;
    const char *poison; /* its row is NaN or infinite; NULL: none */
    atomic_int n_left;  /* batches */
    atomic_int n_differing, n_failed;
    atomic_bool stop;
};

struct caller {
    struct crowd *crowd;
    uint32_t seed;
};

static gpuserve_job job_of(const struct crowd *crowd, const char *const *texts, size_t n,
                           float *rows)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.n_items = n;
    job.texts = texts;
    job.output = rows;
    job.output_capacity = n * crowd->dim;
    job.cache = GPUSERVE_CACHE_OFF;
    return job;
}

/* A random selection of texts, sometimes with the overflowing one. */
static void run_batch(struct crowd *crowd, uint32_t *seed, float *rows)
{
    const char *chosen[MAX_COMPANY + 1];
    size_t which[MAX_COMPANY + 1], n = 1 + next_random(seed) % MAX_COMPANY;
    const bool poisoned = crowd->poison && next_random(seed) % 2;
    const size_t poison_at = next_random(seed) % (n + 1);
    gpuserve_item items[MAX_COMPANY + 1];
    gpuserve_job job;
    gpuserve_status st;

    n += poisoned;
    for (size_t i = 0; i < n; i++) {
        which[i] = next_random(seed) % N_TEXTS;
        chosen[i] = poisoned && i == poison_at ? crowd->poison : crowd->texts[which[i]];
    }
    job = job_of(crowd, chosen, n, rows);
    job.items = items;
    job.priority = next_random(seed) % 3;
    st = gpuserve_run(crowd->model, &job, NULL);
    if (st != (poisoned ? GPUSERVE_E_NUMERIC : GPUSERVE_OK))
        atomic_fetch_add(&crowd->n_failed, 1);
    for (size_t i = 0; i < n; i++) {
        const bool is_poison = poisoned && i == poison_at;

        if ((items[i].status == GPUSERVE_E_NUMERIC) != is_poison)
            atomic_fetch_add(&crowd->n_failed, 1);
        if (!is_poison && memcmp(rows + i * crowd->dim, crowd->alone + which[i] * crowd->dim,
                                 crowd->dim * sizeof(*rows)) != 0)
            atomic_fetch_add(&crowd->n_differing, 1);
    }
}

static void *call(void *argument)
{
    struct caller *caller = argument;
    struct crowd *crowd = caller->crowd;
    float *rows = calloc((MAX_COMPANY + 1) * crowd->dim, sizeof(*rows));

    while (atomic_fetch_sub(&crowd->n_left, 1) > 0)
        run_batch(crowd, &caller->seed, rows);
    free(rows);
    return NULL;
}

/* Background load: cancelled requests, texts of all lengths, other tasks. */
static void *disturb(void *argument)
{
    struct caller *caller = argument;
    struct crowd *crowd = caller->crowd;
    static const char *const odd[] = { "", "\xF0\x9F\x98\x80\xF0\x9F\x98\x80",
                                       "a a a a a a a a a a a a a a a a a a a a a a a a a a",
                                       "[CLS] [SEP] [PAD] [MASK]",
                                       "\xEF\xBF\xBD \xE2\x80\x8B \xCC\x81" };
    float *rows = calloc((size_t)5 * MAX_TOKENS * 1024, sizeof(*rows));

    while (!atomic_load(&crowd->stop)) {
        gpuserve_job job = job_of(crowd, odd, 5, rows);
        gpuserve_request *request = NULL;

        if (next_random(&caller->seed) % 2) {
            job.task = GPUSERVE_TASK_TOKEN_VECTORS;
            job.output_capacity = (size_t)5 * MAX_TOKENS * 1024;
        } else {
            job.dimensions = 1 + next_random(&caller->seed) % (uint32_t)crowd->dim;
        }
        if (gpuserve_submit(&request, crowd->model, &job, NULL, NULL, NULL) != GPUSERVE_OK)
            break;
        if (next_random(&caller->seed) % 2)
            gpuserve_cancel(request);
        gpuserve_request_free(&request);
        usleep(5000); /* limits the background load */
    }
    free(rows);
    return NULL;
}

static void open_crowd(struct crowd *crowd, const char *path, uint32_t dtype, uint32_t n_threads)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    context_options.n_threads = n_threads;
    options.device = "cpu";
    options.dtype = dtype;
    options.max_tokens = MAX_TOKENS;
    options.max_batch_tokens = n_threads > 1 ? 300 : 0;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&crowd->model, context, path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    gpuserve_context_unref(&context);
    crowd->dim = gpuserve_model_dim(crowd->model);
}

/* With one thread and with three, each row equals that of the text alone. */
static void check(struct crowd *crowd, const char *path, uint32_t dtype, uint32_t n_threads,
                  int n_batches)
{
    struct caller callers[N_CALLERS + 1];
    pthread_t threads[N_CALLERS + 1];
    float *rows;

    open_crowd(crowd, path, dtype, n_threads);
    rows = calloc(N_TEXTS * crowd->dim, sizeof(*rows));
    for (size_t i = 0; i < N_TEXTS; i++) {
        const gpuserve_job job = job_of(crowd, &crowd->texts[i], 1, rows + i * crowd->dim);

        cr_assert_eq(gpuserve_run(crowd->model, &job, NULL), GPUSERVE_OK);
    }
    if (crowd->alone)
        cr_expect_eq(memcmp(crowd->alone, rows, N_TEXTS * crowd->dim * sizeof(*rows)), 0,
                     "%s, dtype %u: %u threads give other bits than one", path, dtype, n_threads);
    free(crowd->alone);
    crowd->alone = rows;
    atomic_store(&crowd->n_left, n_batches);
    atomic_store(&crowd->stop, false);
    for (uint32_t i = 0; i <= N_CALLERS; i++) {
        callers[i] = (struct caller){ crowd, i * 7919 + n_threads };
        cr_assert_eq(pthread_create(&threads[i], NULL, i < N_CALLERS ? call : disturb, &callers[i]),
                     0);
    }
    for (size_t i = 0; i < N_CALLERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&crowd->stop, true);
    pthread_join(threads[N_CALLERS], NULL);
    cr_expect_eq(atomic_load(&crowd->n_failed), 0, "%s, dtype %u, %u threads", path, dtype,
                 n_threads);
    cr_expect_eq(atomic_load(&crowd->n_differing), 0, "%s, dtype %u, %u threads: %d rows differ",
                 path, dtype, n_threads, atomic_load(&crowd->n_differing));
    gpuserve_model_close(&crowd->model);
}

static void check_real(const char *name, uint32_t dtype)
{
    struct crowd crowd = { 0 };
    size_t n;
    const char *const *all = oracle_texts(&n);

    cr_assert_geq(n, N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++) /* from all groups */
        crowd.texts[i] = all[i * n / N_TEXTS];
    check(&crowd, real_model(name), dtype, 1, N_BATCHES / 10);
    check(&crowd, real_model(name), dtype, 3, N_BATCHES);
    free(crowd.alone);
}

Test(invariance, minilm_in_float32)
{
    check_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_FLOAT32);
}

/* Most of a sanitizer's time would go into measuring the products; the small model has int8 too. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
Test(invariance, minilm_in_int8)
{
    check_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_INT8);
}
#endif

Test(invariance, a_small_model_in_both)
{
    check_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32);
    check_real("splade-tiny", GPUSERVE_DTYPE_INT8);
}

/* One word's embedding overflows; half of the batches have a text with this word. */
Test(invariance, rows_that_overflow_keep_to_themselves)
{
    struct crowd crowd = { .poison = "w12 w50 w13" };
    struct folder folder;
    static char texts[N_TEXTS][200];
    uint32_t seed = 5;

    for (size_t i = 0; i < N_TEXTS; i++) {
        const size_t n_words = 1 + next_random(&seed) % 30;
        size_t length = 0;

        for (size_t j = 0; j < n_words; j++) {
            const uint32_t word = 5 + next_random(&seed) % 91;

            length += (size_t)snprintf(texts[i] + length, sizeof(texts[i]) - length, "w%u ",
                                       word == OVERFLOWING ? word + 1 : word);
        }
        crowd.texts[i] = texts[i];
    }
    folder_make(&folder, "bert");
    folder_set_word(&folder, OVERFLOWING, 3e38f);
    check(&crowd, folder.path, GPUSERVE_DTYPE_FLOAT32, 1, N_BATCHES);
    check(&crowd, folder.path, GPUSERVE_DTYPE_FLOAT32, 3, N_BATCHES);
    free(crowd.alone);
    crowd.alone = NULL;
    check(&crowd, folder.path, GPUSERVE_DTYPE_INT8, 1, N_BATCHES);
    check(&crowd, folder.path, GPUSERVE_DTYPE_INT8, 3, N_BATCHES);
    free(crowd.alone);
    /* Infinite in float16, which tables have in these two. */
    folder_set_word(&folder, OVERFLOWING, 7e4f);
    crowd.alone = NULL;
    check(&crowd, folder.path, GPUSERVE_DTYPE_FLOAT16, 1, N_BATCHES);
    free(crowd.alone);
    crowd.alone = NULL;
    check(&crowd, folder.path, GPUSERVE_DTYPE_INT8, 1, N_BATCHES);
    free(crowd.alone);
    folder_remove(&folder);
}
