/*
 * test_batcher.c - batch formation: fairness, batch budgets, queue limits, shutdown.
 */
#include "lib/base/clock.h"
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MANY 3000

/* "word0 word1 ..." of 1 to 20 words, different for each number. */
static char *make_text(unsigned number)
{
    char *text = malloc(400);
    size_t at = 0;

    cr_assert_not_null(text);
    for (unsigned w = 0; w <= number % 20; w++)
        at += (size_t)snprintf(text + at, 400 - at, "%sw%u", w ? " " : "", number * 7 + w * w);
    return text;
}

static char **make_texts(size_t n)
{
    char **texts = calloc(n, sizeof(*texts));

    cr_assert_not_null(texts);
    for (size_t i = 0; i < n; i++)
        texts[i] = make_text((unsigned)i);
    return texts;
}

static void free_texts(char **texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
}

Test(batcher, a_large_request_is_cut_tokenized_by_workers_and_put_together_again)
{
    gpuserve_model *model = fake_open(0, 128, 0);
    char **texts = make_texts(MANY);
    float *rows = calloc(MANY * FAKE_DIM, sizeof(*rows));
    gpuserve_item *items = calloc(MANY, sizeof(*items));
    gpuserve_job job = fake_job((const char *const *)texts, MANY, rows);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.items = items;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    for (size_t i = 0; i < MANY; i++) {
        float want[FAKE_DIM];

        fake_vector(texts[i], want);
        cr_assert_eq(memcmp(want, rows + i * FAKE_DIM, sizeof(want)), 0, "row %zu", i);
        cr_assert_eq(items[i].n_tokens, i % 20 + 3);
    }
    cr_expect_gt(fake_batches(), MANY * 12 / 128);
    cr_expect_leq(fake_largest_batch_tokens(), 128);
    gpuserve_model_close(&model);
    free_texts(texts, MANY);
    free(rows);
    free(items);
}

struct order {
    atomic_int next;
    atomic_int place_of_large, place_of_small;
};

static void large_done(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct order *order = user;

    (void)request;
    cr_assert_eq(status, GPUSERVE_OK);
    atomic_store(&order->place_of_large, atomic_fetch_add(&order->next, 1));
}

static void small_done(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct order *order = user;

    (void)request;
    cr_assert_eq(status, GPUSERVE_OK);
    atomic_store(&order->place_of_small, atomic_fetch_add(&order->next, 1));
}

Test(batcher, a_small_request_passes_between_the_pieces_of_a_large_one)
{
    static const char *const small[] = { "only one" };
    gpuserve_model *model = fake_open(1, 64, 0);
    struct order order = { 0 };
    char **texts = make_texts(400);
    float *rows = calloc(400 * FAKE_DIM, sizeof(*rows));
    float row[FAKE_DIM], want[FAKE_DIM];
    const gpuserve_job large_job = fake_job((const char *const *)texts, 400, rows);
    const gpuserve_job small_job = fake_job(small, 1, row);
    gpuserve_request *large = NULL, *last = NULL;
    int before;

    fake_hold();
    cr_assert_eq(gpuserve_submit(&large, model, &large_job, large_done, &order, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    cr_assert_eq(gpuserve_submit(&last, model, &small_job, small_done, &order, NULL), GPUSERVE_OK);
    before = fake_batches();
    fake_release();
    cr_expect_eq(gpuserve_wait(last, -1, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(large, -1, NULL), GPUSERVE_OK);
    cr_expect_gt(fake_batches(), before + 20, "the large one took many batches");
    gpuserve_request_free(&last);
    gpuserve_request_free(&large);
    cr_expect_lt(atomic_load(&order.place_of_small), atomic_load(&order.place_of_large));
    fake_vector(small[0], want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
    free_texts(texts, 400);
    free(rows);
}

/* Tokens of the largest batch of a model with layers of so many bytes. */
static int largest_batch(uint64_t layer_bytes, uint32_t max_batch_tokens)
{
    gpuserve_model *model;
    char **texts = make_texts(MANY);
    float *rows = calloc(MANY * FAKE_DIM, sizeof(*rows));
    const gpuserve_job job = fake_job((const char *const *)texts, MANY, rows);

    fake_set_layer_bytes(layer_bytes);
    model = fake_open(1, max_batch_tokens, 0);
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
    free_texts(texts, MANY);
    free(rows);
    return fake_largest_batch_tokens();
}

Test(batcher, batches_of_a_small_model_stay_in_the_cache)
{
    const int largest = largest_batch(UINT64_C(4) << 20, 0);

    cr_expect(largest > 192 && largest <= 256, "%d", largest);
}

Test(batcher, batches_of_a_large_model_are_full)
{
    const int largest = largest_batch((UINT64_C(4) << 20) + 1, 0);

    cr_expect(largest > 384 && largest <= 512, "%d", largest);
}

Test(batcher, batches_of_a_given_size_are_full)
{
    const int largest = largest_batch(UINT64_C(4) << 20, 512);

    cr_expect(largest > 384 && largest <= 512, "%d", largest);
}

/* A small request waits for at most one batch of a large request. */
Test(batcher, batches_of_large_requests_are_short_while_small_ones_come)
{
    static const char *const small[] = { "only one" };
    gpuserve_model *model = fake_open(1, 1024, 0);
    char **texts = make_texts(400);
    float *rows = calloc(400 * FAKE_DIM, sizeof(*rows)), row[FAKE_DIM];
    const gpuserve_job large_job = fake_job((const char *const *)texts, 400, rows);
    const gpuserve_job small_job = fake_job(small, 1, row);

    cr_assert_eq(gpuserve_run(model, &small_job, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_run(model, &large_job, NULL), GPUSERVE_OK);
    cr_expect_leq(fake_largest_batch_tokens(), 64);
    for (int i = 0; i < 10; i++) /* enough batches for the small-request estimate to expire */
        cr_assert_eq(gpuserve_run(model, &large_job, NULL), GPUSERVE_OK);
    cr_expect_gt(fake_largest_batch_tokens(), 128);
    gpuserve_model_close(&model);
    free_texts(texts, 400);
    free(rows);
}

Test(batcher, requests_of_several_callers_share_one_batch)
{
    static const char *const text[] = { "one two three" };
    gpuserve_model *model = fake_open(1, 512, 0);
    float rows[20][FAKE_DIM], want[FAKE_DIM];
    gpuserve_request *requests[20];

    fake_hold();
    for (size_t i = 0; i < 20; i++) {
        gpuserve_job job = fake_job(text, 1, rows[i]);

        job.cache = GPUSERVE_CACHE_OFF; /* disables coalescing of equal texts */
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
        if (i == 0)
            fake_wait_running(1);
    }
    fake_release();
    fake_vector(text[0], want);
    for (size_t i = 0; i < 20; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        cr_expect_eq(memcmp(rows[i], want, sizeof(want)), 0);
        gpuserve_request_free(&requests[i]);
    }
    cr_expect_eq(fake_batches(), 2, "the first alone, the others together");
    gpuserve_model_close(&model);
}

Test(batcher, jobs_that_differ_do_not_mix)
{
    static const char *const text[] = { "one two three" };
    gpuserve_model *model = fake_open(1, 512, 0);
    float first[FAKE_DIM], whole[FAKE_DIM], cut[3], scores[FAKE_LABELS], want[FAKE_DIM];
    gpuserve_job jobs[4] = { fake_job(text, 1, first), fake_job(text, 1, whole),
                             fake_job(text, 1, cut), fake_job(text, 1, scores) };
    gpuserve_request *requests[4];

    jobs[2].dimensions = 3;
    jobs[2].output_capacity = 3;
    jobs[3].task = GPUSERVE_TASK_CLASSIFY;
    jobs[3].output_capacity = FAKE_LABELS;
    fake_hold();
    for (size_t i = 0; i < 4; i++) {
        jobs[i].cache = GPUSERVE_CACHE_OFF; /* two texts are equal */
        cr_assert_eq(gpuserve_submit(&requests[i], model, &jobs[i], NULL, NULL, NULL), GPUSERVE_OK);
        if (i == 0)
            fake_wait_running(1);
    }
    fake_release();
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    fake_vector(text[0], want);
    cr_expect_eq(memcmp(whole, want, sizeof(want)), 0);
    cr_expect_eq(memcmp(cut, want, sizeof(cut)), 0);
    cr_expect_eq(memcmp(scores, want, sizeof(scores)), 0);
    cr_expect_eq(fake_batches(), 4);
    gpuserve_model_close(&model);
}

/* While the last chunk is tokenized, a batch of the others may begin wide; so may the last ones. */
Test(batcher, one_text_alone_runs_on_the_wide_stream_and_many_do_not)
{
    static const char *const text[] = { "alone" };
    gpuserve_model *model = fake_open(2, 128, 0);
    char **texts = make_texts(300);
    float *rows = calloc(300 * FAKE_DIM, sizeof(*rows));
    gpuserve_job job = fake_job(text, 1, rows);
    gpuserve_request *request = NULL;

    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(fake_wide_batches(), 1);
    job = fake_job((const char *const *)texts, 300, rows);
    cr_assert_eq(gpuserve_submit(&request, model, &job, NULL, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    cr_expect_lt(4 * fake_wide_batches(), fake_batches(), "%d of %d", fake_wide_batches(),
                 fake_batches());
    gpuserve_request_free(&request);
    gpuserve_model_close(&model);
    free_texts(texts, 300);
    free(rows);
}

Test(batcher, a_full_queue_refuses_whole_requests_and_says_when_to_come_again)
{
    static const char *const text[] = { "a text of some words that counts for a few tokens" };
    gpuserve_model *model = fake_open(1, 64, 100);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[16][FAKE_DIM];
    gpuserve_request *requests[16];
    size_t n = 0;

    fake_hold();
    for (; n < 16; n++) {
        const gpuserve_job job = fake_job(text, 1, rows[n]);
        const gpuserve_status st = gpuserve_submit(&requests[n], model, &job, NULL, NULL, &error);

        if (st == GPUSERVE_OK)
            continue;
        cr_assert_eq(st, GPUSERVE_E_BUSY);
        cr_expect_null(requests[n]);
        cr_expect_gt(error.retry_after_ms, 0);
        cr_expect_neq(strstr(error.message, "100"), NULL, "%s", error.message);
        cr_expect_neq(strstr(error.hint, "max_queue_tokens"), NULL, "%s", error.hint);
        break;
    }
    cr_expect(n >= 2 && n < 16, "%zu were admitted", n);
    fake_release();
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    for (size_t i = 0; i < 200; i++) { /* capacity is released as soon as a result is known */
        cr_assert_eq(gpuserve_embed(model, text, 1, rows[0], FAKE_DIM, NULL, &error), GPUSERVE_OK,
                     "%s", error.message);
    }
    gpuserve_model_close(&model);
}

static gpuserve_model *open_with_quota(uint64_t rate, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.cache_bytes = cache_bytes;
    options.max_tokens_per_second = rate;
    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, NULL), GPUSERVE_OK);
    gpuserve_context_unref(&context);
    return model;
}

static double seconds(void)
{
    return (double)gsv_now_ns() / 1e9;
}

/* The bucket holds a second's tokens at the start, and a request may take more than it holds. */
Test(batcher, a_quota_of_tokens_per_second_holds)
{
    enum { RATE = 200 };
    static const char *const texts[] = { "some words", "of one", "request" };
    gpuserve_model *model = open_with_quota(RATE, 0);
    const double begin = seconds();
    size_t computed = 0, most = 0, refused = 0;
    float rows[3 * FAKE_DIM];

    while (refused < 3) {
        gpuserve_result result = { .struct_size = sizeof(result) };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_job job = fake_job(texts, 3, rows);
        gpuserve_status st;

        job.result = &result;
        st = gpuserve_run(model, &job, &error);
        if (st == GPUSERVE_OK) {
            computed += result.n_tokens;
            most = result.n_tokens;
            continue;
        }
        cr_assert_eq(st, GPUSERVE_E_BUSY, "%s", error.message);
        cr_expect_neq(strstr(error.message, "200 tokens per second"), NULL, "%s", error.message);
        cr_assert_gt(error.retry_after_ms, 0);
        cr_assert_lt(error.retry_after_ms, 900);
        refused++;
        nanosleep(&(struct timespec){ .tv_nsec = (error.retry_after_ms + 1) * 1000000L }, NULL);
        cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "after retry_after_ms: %s",
                     error.message);
        computed += result.n_tokens;
    }
    cr_expect_geq(computed, RATE);
    cr_expect_leq((double)computed, RATE * (1 + seconds() - begin) + (double)most + 1);
    gpuserve_model_close(&model);
}

Test(batcher, a_quota_has_a_limit)
{
    const uint64_t limit = UINT64_C(1000000000000);
    gpuserve_model *model = open_with_quota(limit, 0);
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    gpuserve_model_close(&model);
    options.device = "cpu";
    options.max_tokens_per_second = limit + 1;
    cr_expect_eq(gpuserve_model_open(&model, NULL, ".", &options, &error), GPUSERVE_E_INVALID);
    cr_expect_null(model);
    cr_expect(strstr(error.message, "max_tokens_per_second is 1000000000001, the limit is "
                                    "1000000000000"),
              "%s", error.message);
}

Test(batcher, a_quota_counts_computed_tokens_only)
{
    static const char *const text[] = { "always the same words" };
    gpuserve_model *model = open_with_quota(40, 1 << 20);
    float row[FAKE_DIM];

    for (size_t i = 0; i < 200; i++)
        cr_assert_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK,
                     "answer %zu is in the result cache", i);
    gpuserve_model_close(&model);
}

enum { SLOW_US = 20000 }; /* 100 tokens/s */

/* A fake device of two tokens per `batch_us` or more on one thread. */
static gpuserve_model *open_slow_for(uint32_t max_queue_ms, uint32_t max_queue_tokens,
                                     double batch_us)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    static const char *const text[] = { "word" };
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    float row[FAKE_DIM];

    context_options.n_threads = 1;
    options.device = "cpu";
    options.max_batch_tokens = 64;
    options.max_queue_ms = max_queue_ms;
    options.max_queue_tokens = max_queue_tokens;
    fake_set_speed(1e9, batch_us, false);
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, NULL), GPUSERVE_OK);
    gpuserve_context_unref(&context);
    for (int i = 0; i < 2; i++) /* the first batch does not count */
        cr_assert_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    return model;
}

static gpuserve_model *open_slow(uint32_t max_queue_ms)
{
    return open_slow_for(max_queue_ms, 0, SLOW_US);
}

enum { MAX_TRIED = 200 };

/* Number of texts that can be queued while the device is held, before one is rejected. */
static size_t fill(gpuserve_model *model, const char *one, gpuserve_error *error)
{
    const char *const text[] = { one };
    static float rows[MAX_TRIED][FAKE_DIM];
    gpuserve_request *requests[MAX_TRIED];
    size_t n = 0;

    fake_hold();
    for (; n < MAX_TRIED; n++) {
        const gpuserve_job job = fake_job(text, 1, rows[n]);

        if (gpuserve_submit(&requests[n], model, &job, NULL, NULL, error) != GPUSERVE_OK)
            break;
    }
    fake_release();
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    return n;
}

Test(batcher, queue_time_follows_recent_throughput)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = open_slow(0);

    cr_expect_eq(fill(model, "word", &error), MAX_TRIED, "without the bound");
    gpuserve_model_close(&model);
    /* A millisecond is less than one token's time, but two batches of 64 tokens may always wait.
     * The word counts as 4 tokens with the special ones. */
    model = open_slow(1);
    cr_expect_eq(fill(model, "word", &error), 128 / 4, "%s", error.message);
    cr_expect_eq(error.status, GPUSERVE_E_BUSY);
    cr_expect_neq(strstr(error.hint, "max_queue_ms"), NULL, "%s", error.hint);
    cr_expect_gt(error.retry_after_ms, 0);
    gpuserve_model_close(&model);
    /* An hour's capacity is more than MAX_TRIED texts, however slow the machine was. */
    model = open_slow(3600000);
    cr_expect_eq(fill(model, "word", &error), MAX_TRIED, "%s", error.message);
    gpuserve_model_close(&model);
}

/* The first batches of a GPU also load code. One of a few tokens a second and three batches that
 * are a thousand times faster give at least a third of the faster throughput, 5 ms a batch or less.
 */
Test(batcher, a_slow_first_batch_does_not_hold_the_throughput_down)
{
    static const char *const text[] = { "word" };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = open_slow_for(600, 0, 500000);
    float row[FAKE_DIM];

    fake_set_speed(1e9, 200, false);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    cr_expect_geq(fill(model, "word", &error), 64, "%s", error.message);
    gpuserve_model_close(&model);
}

/* retry_after_ms is the time to compute enough of the queue at the measured throughput: at most 4
 * tokens per 20 ms here. Large requests may use 13/16 of the queue limit. */
Test(batcher, when_to_come_again_grows_with_the_queue)
{
    enum { MAX = 180, LARGE = 100, A_TEXT = 4, ROOM = 800, LARGE_ROOM = ROOM / 16 * 13 };
    static const size_t waiting[] = { LARGE + 1,
                                      MAX }; /* with these, a large request is rejected */
    static const char *texts[LARGE];
    static float rows[MAX][FAKE_DIM], large_rows[LARGE][FAKE_DIM];
    gpuserve_model *model = open_slow_for(0, ROOM, SLOW_US);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *requests[MAX], *none;
    uint32_t ms[2];
    size_t n = 0, excess[2];

    for (size_t i = 0; i < LARGE; i++)
        texts[i] = "word";
    fake_hold();
    for (size_t i = 0; i < 2; i++) {
        const gpuserve_job large = fake_job(texts, LARGE, large_rows[0]);

        for (; n < waiting[i]; n++) {
            const gpuserve_job job = fake_job(texts, 1, rows[n]);

            cr_assert_eq(gpuserve_submit(&requests[n], model, &job, NULL, NULL, &error),
                         GPUSERVE_OK);
        }
        cr_assert_eq(gpuserve_submit(&none, model, &large, NULL, NULL, &error), GPUSERVE_E_BUSY);
        ms[i] = error.retry_after_ms;
    }
    fake_release();
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    gpuserve_model_close(&model);
    for (size_t i = 0; i < 2; i++)
        excess[i] = (waiting[i] + LARGE) * A_TEXT - LARGE_ROOM;
    cr_expect_geq(ms[0], excess[0] * 20 / 4, "%u ms", ms[0]);
    cr_expect_float_eq((double)ms[1] / (double)excess[1], (double)ms[0] / (double)excess[0], 0.02,
                       "%u ms and %u ms", ms[0], ms[1]);
}

Test(batcher, a_large_request_counts_as_an_eighth_of_what_may_wait_by_time)
{
    char text[1024] = "";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = open_slow(1);

    for (int i = 0; i < 60; i++)
        strcat(text, "words ");
    cr_expect_eq(fill(model, text, &error), 8, "%s", error.message);
    gpuserve_model_close(&model);
}

enum { N_LARGE = 8, LARGE_TEXTS = 8 };

struct large {
    char bytes[LARGE_TEXTS][512];
    const char *texts[LARGE_TEXTS];
    float rows[LARGE_TEXTS * FAKE_DIM];
    gpuserve_request *request;
};

/* Texts that no other request has, so that each needs its own batch. */
static gpuserve_job make_large(struct large *large, int number)
{
    for (int i = 0; i < LARGE_TEXTS; i++) {
        int n = sprintf(large->bytes[i], "number %d of %d", i, number);

        while (n < 360)
            n += sprintf(large->bytes[i] + n, " words");
        large->texts[i] = large->bytes[i];
    }
    return fake_job(large->texts, LARGE_TEXTS, large->rows);
}

static void end_large(struct large *large)
{
    cr_expect_eq(gpuserve_wait(large->request, -1, NULL), GPUSERVE_OK);
    gpuserve_request_free(&large->request);
}

Test(batcher, eight_large_requests_find_room_while_the_device_slows_down)
{
    static struct large large[N_LARGE];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = open_slow(40);

    fake_set_speed(1e9, 1000, false);
    for (int i = 0; i < 5 * N_LARGE; i++) {
        struct large *one = &large[i % N_LARGE];
        const gpuserve_job job = make_large(one, i);

        for (int k = 0; i == 2 * N_LARGE && k < N_LARGE; k++)
            end_large(&large[k]);
        if (i == 2 * N_LARGE) /* nothing is running at this moment */
            fake_set_speed(1e9, 4000, false);
        if (one->request)
            end_large(one);
        cr_assert_eq(gpuserve_submit(&one->request, model, &job, NULL, NULL, &error), GPUSERVE_OK,
                     "request %d: %s", i, error.message);
    }
    for (int i = 0; i < N_LARGE; i++)
        end_large(&large[i]);
    gpuserve_model_close(&model);
}

Test(batcher, a_request_larger_than_the_queue_is_admitted_when_there_is_room_for_half)
{
    gpuserve_model *model = fake_open(2, 64, 100);
    char **texts = make_texts(500);
    float *rows = calloc(500 * FAKE_DIM, sizeof(*rows));

    cr_expect_eq(
        gpuserve_embed(model, (const char *const *)texts, 500, rows, 500 * FAKE_DIM, NULL, NULL),
        GPUSERVE_OK);
    gpuserve_model_close(&model);
    free_texts(texts, 500);
    free(rows);
}

Test(batcher, a_nan_row_is_its_items_own_fault)
{
    static const char *const texts[] = { "good", "this is NAN now", "also good" };
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[3 * FAKE_DIM], want[FAKE_DIM];
    gpuserve_item items[3];
    gpuserve_job job = fake_job(texts, 3, rows);

    job.items = items;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_NUMERIC);
    cr_expect_neq(strstr(error.message, "item 1"), NULL, "%s", error.message);
    cr_expect_eq(items[0].status, GPUSERVE_OK);
    cr_expect_eq(items[1].status, GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[2].status, GPUSERVE_OK);
    fake_vector(texts[0], want);
    cr_expect_eq(memcmp(rows, want, sizeof(want)), 0);
    fake_vector(texts[2], want);
    cr_expect_eq(memcmp(rows + 2 * FAKE_DIM, want, sizeof(want)), 0);
    cr_expect(rows[FAKE_DIM] != rows[FAKE_DIM], "NaN");
    gpuserve_model_close(&model);
}

Test(batcher, a_broken_batch_fails_its_requests_and_no_other)
{
    char **texts = make_texts(600);
    static const char *const good[] = { "good" };
    gpuserve_model *model = fake_open(2, 64, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float *rows = malloc(600 * FAKE_DIM * sizeof(*rows));
    float row[FAKE_DIM], want[FAKE_DIM];
    gpuserve_job job = fake_job((const char *const *)texts, 600, rows);

    memset(rows, 0x11, 600 * FAKE_DIM * sizeof(*rows));
    free(texts[300]);
    texts[300] = strdup("here it will BREAK");
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_DEVICE);
    cr_expect_str_eq(error.message, "the fake device broke");
    for (size_t i = 0; i < 600 * FAKE_DIM * sizeof(*rows); i++)
        cr_assert_eq(((unsigned char *)rows)[i], 0x11, "outputs are untouched");
    free(texts[300]);
    texts[300] = strdup("an UNKNOWABLE word");
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect_str_eq(error.message, "item 300: a word that cannot be tokenized");
    cr_expect_eq(gpuserve_embed(model, good, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    fake_vector(good[0], want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
    free_texts(texts, 600);
    free(rows);
}

/* ------------------------------------------------------------------------------------- stress */

enum { N_ACTORS = 8, N_SUBMISSIONS = 40, MAX_TEXTS = 700 };

struct actor {
    gpuserve_model *model;
    char **texts;
    uint32_t seed;
    int n_wrong, n_ok, n_cancelled;
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Rows are right if the request succeeded, and unchanged if it failed. */
static bool rows_are_right(const struct actor *actor, const gpuserve_job *job, size_t first,
                           size_t columns, gpuserve_status st)
{
    for (size_t i = 0; i < job->n_items; i++) {
        const float *row = job->output + i * columns;
        float want[FAKE_DIM];

        fake_vector(actor->texts[first + i], want);
        for (size_t j = 0; j < columns; j++) {
            if (row[j] != (st == GPUSERVE_OK ? want[j] : -5))
                return false;
        }
    }
    return true;
}

static void submit_and_perhaps_cancel(struct actor *actor, float *rows)
{
    const size_t n = next_random(&actor->seed) % 3 ? 1 + next_random(&actor->seed) % 8
                                                   : 1 + next_random(&actor->seed) % MAX_TEXTS;
    const size_t first = next_random(&actor->seed) % (MANY - n);
    const size_t columns = 1 + next_random(&actor->seed) % 2 * (FAKE_DIM - 1);
    gpuserve_job job = fake_job((const char *const *)actor->texts + first, n, rows);
    gpuserve_request *request = NULL;
    gpuserve_status st;

    job.dimensions = (uint32_t)columns;
    for (size_t i = 0; i < n * columns; i++)
        rows[i] = -5;
    if (gpuserve_submit(&request, actor->model, &job, NULL, NULL, NULL) != GPUSERVE_OK) {
        actor->n_wrong++;
        return;
    }
    if (next_random(&actor->seed) % 3 == 0) {
        for (uint32_t spin = next_random(&actor->seed) % 20000; spin > 0; spin--)
            __asm__ volatile("");
        gpuserve_cancel(request);
    }
    st = gpuserve_wait(request, -1, NULL);
    actor->n_ok += st == GPUSERVE_OK;
    actor->n_cancelled += st == GPUSERVE_E_CANCELLED;
    actor->n_wrong += st != GPUSERVE_OK && st != GPUSERVE_E_CANCELLED;
    actor->n_wrong += !rows_are_right(actor, &job, first, columns, st);
    gpuserve_request_free(&request);
}

static void *act(void *argument)
{
    struct actor *actor = argument;
    float *rows = calloc(MAX_TEXTS * FAKE_DIM, sizeof(*rows));

    for (int i = 0; i < N_SUBMISSIONS; i++)
        submit_and_perhaps_cancel(actor, rows);
    free(rows);
    return NULL;
}

Test(batcher, many_submit_and_cancel_large_and_small_requests_of_two_kinds)
{
    gpuserve_model *model = fake_open(3, 96, 0);
    char **texts = make_texts(MANY);
    struct actor actors[N_ACTORS];
    pthread_t threads[N_ACTORS];
    int n_ok = 0, n_cancelled = 0;

    for (uint32_t i = 0; i < N_ACTORS; i++) {
        actors[i] = (struct actor){ .model = model, .texts = texts, .seed = i * 7919 + 1 };
        cr_assert_eq(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
    }
    for (size_t i = 0; i < N_ACTORS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(actors[i].n_wrong, 0, "actor %zu", i);
        n_ok += actors[i].n_ok;
        n_cancelled += actors[i].n_cancelled;
    }
    cr_expect_gt(n_ok, N_ACTORS);
    cr_expect_gt(n_cancelled, 0);
    gpuserve_model_close(&model);
    free_texts(texts, MANY);
}
