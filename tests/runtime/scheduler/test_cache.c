/*
 * test_cache.c - equal texts computed once, by coalescing in flight and by the result cache; byte
 * limits of queue and cache.
 */
#define _GNU_SOURCE
#include "tests/runtime/fake.h"

#include "lib/runtime/scheduler/result_cache.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpuserve_model *open_with(uint32_t n_threads, uint64_t cache_bytes, uint64_t queue_bytes)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    context_options.n_threads = n_threads;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, &error), GPUSERVE_OK);
    options.device = "cpu";
    options.cache_bytes = cache_bytes;
    options.max_queue_bytes = queue_bytes;
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    gpuserve_context_unref(&context);
    return model;
}

static void expect_row(const char *text, const float *row)
{
    float want[FAKE_DIM];

    fake_vector(text, want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0, "\"%s\"", text);
}

/* ---------------------------------------------------------------------------------- in flight */

Test(cache, equal_texts_in_flight_are_computed_once)
{
    enum { N = 40 };
    static const char *const texts[] = { "the same words", "other words" };
    gpuserve_model *model = fake_open(1, 0, 0);
    float rows[N][FAKE_DIM];
    gpuserve_item items[N];
    gpuserve_request *requests[N];
    int n_computed = 0;

    fake_hold();
    for (size_t i = 0; i < N; i++) { /* the first runs; half of the others equal it */
        gpuserve_job job = fake_job(&texts[i % 2], 1, rows[i]);

        job.items = &items[i];
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
        if (i == 0)
            fake_wait_running(1);
    }
    fake_release();
    for (size_t i = 0; i < N; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
        expect_row(texts[i % 2], rows[i]);
        n_computed += !items[i].cached;
    }
    cr_expect_eq(n_computed, 2);
    cr_expect_eq(fake_batches(), 2);
    gpuserve_model_close(&model);
}

Test(cache, a_text_rides_along_with_a_batch_of_another_worker)
{
    static const char *const text[] = { "the same words" };
    gpuserve_model *model = fake_open(2, 0, 0);
    float first[FAKE_DIM], second[FAKE_DIM], third[FAKE_DIM], cut[3];
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job jobs[4] = { fake_job(text, 1, first), fake_job(text, 1, second),
                             fake_job(text, 1, third), fake_job(text, 1, cut) };
    gpuserve_request *requests[4];

    jobs[1].result = &result;
    jobs[2].cache = GPUSERVE_CACHE_OFF;
    jobs[3].dimensions = 3;
    jobs[3].output_capacity = 3;
    fake_hold();
    cr_assert_eq(gpuserve_submit(&requests[0], model, &jobs[0], NULL, NULL, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    cr_assert_eq(gpuserve_submit(&requests[1], model, &jobs[1], NULL, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(requests[1], 20000, NULL), GPUSERVE_E_TIMEOUT);
    cr_expect_eq(gpuserve_cancel(requests[0]), GPUSERVE_OK, "the leader is no longer wanted");
    for (size_t i = 2; i < 4; i++)
        cr_assert_eq(gpuserve_submit(&requests[i], model, &jobs[i], NULL, NULL, NULL), GPUSERVE_OK);
    fake_release();
    cr_expect_eq(gpuserve_wait(requests[0], -1, NULL), GPUSERVE_E_CANCELLED);
    for (size_t i = 1; i < 4; i++)
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
    expect_row(text[0], second);
    expect_row(text[0], third);
    cr_expect_eq(memcmp(cut, third, sizeof(cut)), 0);
    cr_expect_eq(result.n_cached, 1);
    cr_expect_eq(fake_batches(), 3, "one for two; one that wants its own; one of other dimensions");
    for (size_t i = 0; i < 4; i++)
        gpuserve_request_free(&requests[i]);
    gpuserve_model_close(&model);
}

Test(cache, what_rides_along_shares_nan_and_failure)
{
    static const char *const texts[] = { "it is NAN", "it is NAN", "good" };
    static const char *const broken[] = { "BREAK here", "BREAK here" };
    gpuserve_model *model = fake_open(2, 0, 0);
    float rows[3 * FAKE_DIM];
    gpuserve_item items[3];
    gpuserve_job job = fake_job(texts, 3, rows);

    job.items = items;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[0].status, GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[1].status, GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[2].status, GPUSERVE_OK);
    cr_expect_eq(items[1].cached, 1);
    expect_row("good", rows + (size_t)2 * FAKE_DIM);
    job = fake_job(broken, 2, rows);
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_DEVICE);
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------------------------- cache */

static gpuserve_stats stats_of(gpuserve_context *context)
{
    gpuserve_stats stats = { .struct_size = sizeof(stats) };

    cr_assert_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
    return stats;
}

Test(cache, a_text_that_comes_again_is_not_computed_again)
{
    static const char *const texts[] = { "one", "two words", "three words here" };
    static const char *const more[] = { "four", "two words", "one" };
    gpuserve_context *context = NULL;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    float rows[3 * FAKE_DIM], tokens[14 * FAKE_DIM], again[14 * FAKE_DIM];
    gpuserve_item items[3];
    gpuserve_job job = fake_job(texts, 3, rows);
    int batches;

    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    options.device = "cpu";
    options.cache_bytes = 1 << 20;
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, NULL), GPUSERVE_OK);
    job.items = items;
    job.result = &result;
    job.cache = GPUSERVE_CACHE_ON;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(result.n_cached, 0);
    batches = fake_batches();
    memset(rows, 0, sizeof(rows));
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(result.n_cached, 3);
    cr_expect_eq(result.n_tokens, 3 + 4 + 5, "the texts have tokens all the same");
    cr_expect_eq(fake_batches(), batches);
    for (size_t i = 0; i < 3; i++)
        expect_row(texts[i], rows + i * FAKE_DIM);

    job.texts = more;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(items[0].cached, 0);
    cr_expect_eq(items[1].cached, 1);
    cr_expect_eq(items[2].cached, 1);
    for (size_t i = 0; i < 3; i++)
        expect_row(more[i], rows + i * FAKE_DIM);
    cr_expect_eq(stats_of(context).cache_hits, 5);
    cr_expect_eq(stats_of(context).cache_misses, 4);
    cr_expect_gt(stats_of(context).cache_bytes, 0);

    job.cache = GPUSERVE_CACHE_OFF;
    batches = fake_batches();
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_gt(fake_batches(), batches);
    cr_expect_eq(stats_of(context).cache_hits, 5, "neither looked for nor counted");

    job = fake_job(texts, 3, tokens); /* other task, same texts: a different key */
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.output_capacity = sizeof(tokens) / sizeof(tokens[0]);
    job.result = &result;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(result.n_cached, 0);
    job.output = again;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(result.n_cached, 3);
    cr_expect_eq(memcmp(tokens, again, 12 * FAKE_DIM * sizeof(float)), 0);
    gpuserve_model_close(&model);
    cr_expect_eq(stats_of(context).cache_bytes, 0, "all given back");
    gpuserve_context_unref(&context);
}

Test(cache, large_jobs_with_some_rows_in_the_cache)
{
    enum { N = 6000 };
    gpuserve_model *model = open_with(3, 64 << 20, 0);
    char **texts = calloc(N, sizeof(*texts));
    float *rows = calloc((size_t)N * FAKE_DIM, sizeof(*rows));
    const char **half = calloc(N / 2, sizeof(*half));
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job job;

    for (size_t i = 0; i < N; i++)
        cr_assert_gt(asprintf(&texts[i], "text number %zu of many with some words", i), 0);
    for (size_t i = 0; i < N / 2; i++)
        half[i] = texts[2 * i];
    job = fake_job(half, N / 2, rows);
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (int round = 0; round < 2; round++) { /* first half of the rows is cached, then all */
        job = fake_job((const char *const *)texts, N, rows);
        job.result = &result;
        memset(rows, 0, (size_t)N * FAKE_DIM * sizeof(*rows));
        cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        cr_expect_geq(result.n_cached, round ? N : N / 2); /* words may have equal ids */
        for (size_t i = 0; i < N; i++)
            expect_row(texts[i], rows + i * FAKE_DIM);
    }
    gpuserve_model_close(&model);
    for (size_t i = 0; i < N; i++)
        free(texts[i]);
    free(texts);
    free(half);
    free(rows);
}

static void called(void *user, gpuserve_request *request, gpuserve_status status)
{
    (void)request;
    cr_expect_eq(status, GPUSERVE_OK);
    cr_expect_eq(pthread_equal(*(pthread_t *)user, pthread_self()), 0, "a library thread");
}

Test(cache, a_hit_completes_at_once_and_calls_back_from_a_library_thread)
{
    static const char *const text[] = { "again and again" };
    gpuserve_model *model = open_with(1, 1 << 20, 0);
    pthread_t self = pthread_self();
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(text, 1, row);
    gpuserve_request *request = NULL;

    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    fake_hold(); /* a computation would block */
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_submit(&request, model, &job, called, &self, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    gpuserve_request_free(&request);
    fake_release();
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------- the data structure itself */

static struct gsv_cache_key key_of(int32_t *ids, uint32_t n, uint64_t hash)
{
    return (struct gsv_cache_key){ .tokens = { .ids = ids, .n = n },
                                   .batch = { .dimensions = FAKE_DIM },
                                   .hash = hash };
}

Test(cache, equal_hashes_of_other_tokens_types_or_keys_give_no_wrong_row)
{
    struct gsv_metrics metrics = { 0 };
    struct gsv_cache *cache;
    int32_t ids[2][3] = { { 1, 2, 3 }, { 1, 2, 4 } };
    const uint8_t zeros[3] = { 0, 0, 0 }, types[3] = { 0, 1, 1 };
    const float row[2] = { 5, 6 };
    float got[2];
    struct gsv_cache_key key = key_of(ids[0], 3, 77), other = key_of(ids[1], 3, 77);

    cr_assert_eq(gsv_cache_create(&cache, 1 << 20, &metrics, NULL), GPUSERVE_OK);
    gsv_cache_put(cache, &key, row, 2);
    cr_expect(gsv_cache_get(cache, &key, got, 2));
    cr_expect_eq(memcmp(got, row, sizeof(row)), 0);
    cr_expect_not(gsv_cache_get(cache, &other, got, 2), "another id");
    other = key;
    other.tokens.n = 2;
    cr_expect_not(gsv_cache_get(cache, &other, got, 2), "fewer");
    other = key;
    other.tokens.type_ids = types;
    cr_expect_not(gsv_cache_get(cache, &other, got, 2), "other types");
    other.tokens.type_ids = zeros;
    cr_expect(gsv_cache_get(cache, &other, got, 2), "no types are zeros");
    other = key;
    other.batch.normalize = true;
    cr_expect_not(gsv_cache_get(cache, &other, got, 2), "another key");
    cr_expect_not(gsv_cache_get(cache, &key, got, 1), "another size");
    gsv_cache_free(&cache);
    cr_expect_null(cache);
    cr_expect_eq(atomic_load(&metrics.cache_bytes), 0);
}

Test(cache, bytes_stay_within_the_bound_and_the_min_used_go_first)
{
    enum { N = 20000, BOUND = 400000 };
    struct gsv_metrics metrics = { 0 };
    struct gsv_cache *cache;
    float row[FAKE_DIM] = { 0 };
    int32_t kept = -1;
    size_t n_left = 0;

    cr_assert_eq(gsv_cache_create(&cache, BOUND, &metrics, NULL), GPUSERVE_OK);
    for (int32_t i = 0; i < N; i++) {
        struct gsv_cache_key key = key_of(&i, 1, (uint64_t)i * 0x9E3779B97F4A7C15u);
        struct gsv_cache_key first = key_of(&kept, 1, 0);

        row[0] = (float)i;
        if (i == 0)
            gsv_cache_put(cache, &first, row, FAKE_DIM);
        gsv_cache_put(cache, &key, row, FAKE_DIM);
        cr_assert_leq(atomic_load(&metrics.cache_bytes), BOUND);
        cr_assert(gsv_cache_get(cache, &first, row, FAKE_DIM), "what is used stays: %d", i);
    }
    for (int32_t i = 0; i < N; i++) {
        struct gsv_cache_key key = key_of(&i, 1, (uint64_t)i * 0x9E3779B97F4A7C15u);

        if (!gsv_cache_get(cache, &key, row, FAKE_DIM))
            continue;
        cr_expect_eq(row[0], (float)i);
        cr_expect_gt(i, N / 2, "an old one stayed");
        n_left++;
    }
    cr_expect(n_left > 500 && n_left < N / 4, "%zu", n_left);
    gsv_cache_free(&cache);
}

Test(cache, a_bound_of_few_bytes_keeps_nothing_and_works)
{
    static const char *const text[] = { "a few words" };
    gpuserve_model *model = open_with(1, 1, 0);
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(text, 1, row);

    for (int i = 0; i < 2; i++)
        cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    expect_row(text[0], row);
    cr_expect_eq(fake_batches(), 2);
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------------------------- bytes */

Test(cache, the_queue_is_bounded_in_bytes_as_well)
{
    enum { LONG = 30000 };
    gpuserve_model *model = open_with(1, 0, 100000);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char *text = malloc(LONG + 1);
    const char *const texts[] = { text };
    float rows[8][FAKE_DIM];
    gpuserve_request *requests[8];
    size_t n = 0;

    memset(text, 'a', LONG); /* one word: few tokens, many bytes */
    text[LONG] = '\0';
    fake_hold();
    for (; n < 8; n++) {
        const gpuserve_job job = fake_job(texts, 1, rows[n]);
        const gpuserve_status st = gpuserve_submit(&requests[n], model, &job, NULL, NULL, &error);

        if (st == GPUSERVE_OK)
            continue;
        cr_assert_eq(st, GPUSERVE_E_BUSY);
        cr_expect_neq(strstr(error.message, "bytes of 100000"), NULL, "%s", error.message);
        cr_expect_neq(strstr(error.hint, "max_queue_bytes"), NULL, "%s", error.hint);
        cr_expect_gt(error.retry_after_ms, 0);
        break;
    }
    cr_expect_eq(n, 3);
    fake_release();
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    gpuserve_model_close(&model);
    free(text);
}
