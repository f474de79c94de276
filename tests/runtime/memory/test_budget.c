/*
 * test_budget.c - models of 9 GB and 5 GB on a device of 12 GB under each memory policy; and the
 * budgets of contexts, models and devices.
 */
#include "lib/runtime/models/handle.h"
#include "tests/runtime/memory/reservations.h"
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------ policies */

Test(budget, refuse_tells_needed_free_budget_and_who_holds_what)
{
    static const char *const words[] = { "small needs 500", "of cuda:0 is 12000000000", "used 900",
                                         "free 299", "large holds 900" };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    const gpuserve_model_options options = named("small");
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *large, *small = NULL;

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, &error), GPUSERVE_OK, "%s",
                 error.message);
    large = open_named(context, "large", 9 * GB);
    fake_set_weights(5 * GB);
    cr_assert_eq(gpuserve_model_footprint(context, ".", &options, &footprint, NULL), GPUSERVE_OK);
    cr_expect_eq(footprint.fits, 0);
    cr_expect_eq(footprint.weights_bytes, 5 * GB);
    cr_expect_eq(footprint.max_batch_tokens, 0);
    cr_assert_eq(try_open(&small, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_null(small);
    expect_words(error.message, words, sizeof(words) / sizeof(words[0]));
    check_answer(large);
    gpuserve_model_close(&large);
    small = open_named(context, "small", 5 * GB);
    gpuserve_model_close(&small);
    end_context(&context);
}

Test(budget, the_device_itself_is_a_limit_without_any_budget)
{
    /* A wait would take an hour and exceed the test's time limit. */
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_WAIT, 3600000);
    const gpuserve_model_options options = named("huge");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(try_open(&model, context, 13 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "the memory of cuda:0 is 12000000000"), "%s",
                       error.message);
    end_context(&context);
}

Test(budget, more_than_can_be_counted_is_no_size)
{
    static const struct {
        const char *device;
        uint64_t weights;
    } cases[] = { { "cuda:0", UINT64_MAX },
                  { "cuda:0", UINT64_MAX - 1 },
                  { "cuda:*", UINT64_MAX / 2 + 2 } };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model *model = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_model_options options = named("absurd");
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        options.device = cases[i].device;
        cr_expect_eq(try_open(&model, context, cases[i].weights, &options, &error),
                     GPUSERVE_E_TOO_LARGE);
        cr_expect_not_null(strstr(error.message, "memory size overflows 64 bits"), "%s",
                           error.message);
        cr_expect_null(model);
    }
    end_context(&context);
}

struct load_options {
    gpuserve_context *context;
    gpuserve_model *model;
    gpuserve_status status;
    atomic_bool is_reserved; /* its memory is reserved */
};

static int32_t note_reservation(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    struct load_options *load_options = user;

    (void)done;
    (void)total;
    if (stage == GPUSERVE_STAGE_WEIGHTS)
        atomic_store(&load_options->is_reserved, true);
    return 0;
}

static void *open_small(void *argument)
{
    struct load_options *load_options = argument;
    gpuserve_model_options options = named("small");

    options.progress = note_reservation;
    options.progress_user = load_options;
    load_options->status =
        gpuserve_model_open(&load_options->model, load_options->context, ".", &options, NULL);
    return NULL;
}

/* Opens the 5 GB model in a thread, and waits until it is listed, i.e. waits for memory. */
static pthread_t begin_opening(struct load_options *load_options, gpuserve_context *context)
{
    char json[8192];
    pthread_t thread;

    fake_set_weights(5 * GB);
    *load_options = (struct load_options){ .context = context };
    cr_assert_eq(pthread_create(&thread, NULL, open_small, load_options), 0);
    do {
        usleep(1000);
        cr_assert_eq(gpuserve_context_models(context, json, sizeof(json), NULL, NULL), GPUSERVE_OK);
    } while (!strstr(json, "\"small\""));
    usleep(20000);
    return thread;
}

Test(budget, wait_gets_the_memory_when_another_gives_it_back)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_WAIT, 20000);
    struct load_options load_options;
    gpuserve_model *large;
    pthread_t thread;

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    large = open_named(context, "large", 9 * GB);
    thread = begin_opening(&load_options, context);
    cr_expect(!atomic_load(&load_options.is_reserved));
    expect_state(context, "small", "loading");
    check_answer(large);
    cr_assert_eq(gpuserve_model_suspend(large, NULL), GPUSERVE_OK);
    pthread_join(thread, NULL);
    cr_assert_eq(load_options.status, GPUSERVE_OK);
    check_answer(load_options.model);
    gpuserve_model_close(&load_options.model);
    check_answer(large); /* resumed by its use */
    /* A larger budget also admits a waiting load. */
    thread = begin_opening(&load_options, context);
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 15 * GB, NULL), GPUSERVE_OK);
    pthread_join(thread, NULL);
    cr_assert_eq(load_options.status, GPUSERVE_OK);
    gpuserve_model_close(&load_options.model);
    gpuserve_model_close(&large);
    end_context(&context);
}

Test(budget, wait_ends)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_WAIT, 50);
    const gpuserve_model_options options = named("small");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *large, *small = NULL;

    cr_assert_eq(gpuserve_context_set_budget(context, NULL, 12 * GB, NULL), GPUSERVE_OK);
    large = open_named(context, "large", 9 * GB);
    cr_assert_eq(try_open(&small, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, " ms"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "context's memory budget is 12000000000"), "%s",
                       error.message);
    gpuserve_model_close(&large);
    end_context(&context);
}

Test(budget, evict_suspends_the_idle_one_and_its_next_use_brings_it_back)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_EVICT, 100);
    gpuserve_model *large, *small, *third;
    size_t n_tokens;

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    large = open_named(context, "large", 9 * GB);
    check_answer(large);
    small = open_named(context, "small", 5 * GB);
    expect_state(context, "large", "suspended");
    expect_state(context, "small", "ready");
    check_answer(small);
    /* Calls that need no weights work while the model is offloaded. */
    cr_expect_eq(gpuserve_tokenize(large, "a b", 3, NULL, NULL, 0, &n_tokens, NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_info(large, NULL, 0, &n_tokens, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_dim(large), FAKE_DIM);
    expect_state(context, "large", "suspended");
    check_answer(large);
    expect_state(context, "large", "ready");
    expect_state(context, "small", "suspended");
    check_answer(small);
    /* Least recently used models are evicted first, and only as many as needed. */
    third = open_named(context, "third", 5 * GB);
    check_answer(third);
    check_answer(small);
    gpuserve_model_close(&large);
    large = open_named(context, "large", 4 * GB);
    expect_state(context, "third", "suspended");
    expect_state(context, "small", "ready");
    gpuserve_model_close(&third); /* closed while suspended */
    gpuserve_model_close(&small);
    gpuserve_model_close(&large);
    end_context(&context);
}

Test(budget, busy_and_kept_models_are_not_evicted)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_EVICT, 100);
    gpuserve_model_options options = named("kept");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *large, *small = NULL, *kept = NULL;
    gpuserve_request *request = NULL;
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(reservations_text, 1, row);

    large = open_named(context, "large", 9 * GB);
    fake_hold();
    cr_assert_eq(gpuserve_submit(&request, large, &job, NULL, NULL, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    options.name = "small";
    cr_expect_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    cr_expect_eq(try_open(&small, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    expect_state(context, "large", "ready");
    fake_release();
    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    gpuserve_request_free(&request);
    cr_assert_eq(try_open(&small, context, 5 * GB, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    gpuserve_model_close(&small);
    gpuserve_model_close(&large);
    options.name = "kept";
    options.keep = 1;
    cr_assert_eq(try_open(&kept, context, 9 * GB, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    options.name = "small";
    cr_expect_eq(try_open(&small, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    check_answer(kept);
    gpuserve_model_close(&kept);
    end_context(&context);
}

/* ------------------------------------------------------------------------------------- budgets */

Test(budget, each_model_has_its_own_and_batches_shrink_to_it)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("m");
    gpuserve_footprint plain = { .struct_size = sizeof(plain) }, tight = plain;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    fake_set_weights(1000);
    cr_assert_eq(gpuserve_model_footprint(context, ".", &options, &plain, NULL), GPUSERVE_OK);
    options.memory_budget_bytes = plain.total_bytes - 1;
    cr_assert_eq(gpuserve_model_footprint(context, ".", &options, &tight, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect_eq(tight.fits, 1);
    cr_expect_leq(tight.total_bytes, plain.total_bytes - 1);
    cr_expect_lt(tight.workspace_bytes, plain.workspace_bytes);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, NULL), GPUSERVE_OK);
    check_answer(model);
    gpuserve_model_close(&model);
    options.max_batch_tokens = 16384; /* an explicit value is not reduced */
    cr_expect_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "its own budget is"), "%s", error.message);
    options.max_batch_tokens = 0;
    options.memory_budget_bytes = 1; /* less than the smallest batch needs */
    cr_expect_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_null(model);
    end_context(&context);
}

Test(budget, devices_have_theirs_and_zero_lifts_them)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("b");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *a, *b = NULL;

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 6 * GB, NULL), GPUSERVE_OK);
    a = open_named(context, "a", 5 * GB);
    cr_expect_eq(try_open(&b, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    options.device = "cuda:1"; /* the other device has no limit */
    cr_expect_eq(try_open(&b, context, 5 * GB, &options, &error), GPUSERVE_OK, "%s", error.message);
    gpuserve_model_close(&b);
    cr_assert_eq(gpuserve_context_set_budget(context, NULL, 7 * GB, NULL), GPUSERVE_OK);
    cr_expect_eq(try_open(&b, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_assert_eq(gpuserve_context_set_budget(context, NULL, 0, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 0, NULL), GPUSERVE_OK);
    options.device = "cuda:0";
    cr_expect_eq(try_open(&b, context, 5 * GB, &options, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gpuserve_context_set_budget(context, "moon", 1, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_context_set_budget(context, "cuda:7", 1, &error), GPUSERVE_E_DEVICE);
    cr_expect_eq(gpuserve_context_set_budget(NULL, NULL, 1, &error), GPUSERVE_E_INVALID);
    gpuserve_model_close(&a);
    gpuserve_model_close(&b);
    end_context(&context);
}

/* Words of a text, `n` of them. */
static char *words(size_t n)
{
    char *text_of = malloc(8 * n + 1);

    text_of[0] = '\0';
    for (size_t i = 0; i < n; i++)
        sprintf(text_of + strlen(text_of), "w%zu ", i % 1000);
    return text_of;
}

Test(budget, work_over_the_plan_is_split_not_tried)
{
    enum { N = 3000 };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("m");
    gpuserve_model *model = NULL;
    const char **texts = malloc(N * sizeof(*texts));
    float *rows = malloc(N * FAKE_DIM * sizeof(*rows)), want[FAKE_DIM];
    gpuserve_job job;

    options.max_batch_tokens = 1; /* raised to the longest text; fake.c asserts the plan */
    cr_assert_eq(try_open(&model, context, 1000, &options, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < N; i++) /* empty, long, and far over the limit */
        texts[i] = words(i % 50 == 0 ? 500 : i * 7 % 70);
    job = fake_job(texts, N, rows);
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < N; i++) {
        fake_vector(texts[i], want);
        cr_assert_eq(memcmp(rows + i * FAKE_DIM, want, sizeof(want)), 0, "text %zu", i);
        free((void *)texts[i]);
    }
    cr_expect_leq(fake_largest_batch_tokens(), FAKE_MAX_TOKENS);
    cr_expect_geq(fake_batches(), N / (FAKE_MAX_TOKENS / 2));
    free(texts);
    free(rows);
    gpuserve_model_close(&model);
    end_context(&context);
}

/* ------------------------------------------------------------------------------------ replicas */

Test(budget, replicas_share_a_queue_and_are_reserved_together)
{
    enum { N = 4 };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("both");
    gpuserve_footprint one = { .struct_size = sizeof(one) }, two = one;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *both = NULL, *other;
    gpuserve_request *requests[N] = { NULL };
    gpuserve_job jobs[N];
    const char *const unlike[N] = { "one", "two", "three", "four" }; /* equal texts run once */
    float rows[N][FAKE_DIM], want[FAKE_DIM];

    fake_set_weights(5 * GB);
    cr_assert_eq(gpuserve_model_footprint(context, ".", &options, &one, NULL), GPUSERVE_OK);
    options.device = "cuda:*";
    options.max_batch_tokens = 64;
    cr_assert_eq(gpuserve_model_footprint(context, ".", &options, &two, NULL), GPUSERVE_OK);
    cr_expect_eq(two.weights_bytes, 2 * one.weights_bytes);
    cr_expect_eq(two.n_streams, 2 * one.n_streams);
    /* One of the devices has too little memory: both reservations fail. */
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:1", 12 * GB, NULL), GPUSERVE_OK);
    other = open_named(context, "other", 9 * GB);
    cr_expect_eq(try_open(&both, context, 5 * GB, &options, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "of cuda:0"), "%s", error.message);
    gpuserve_model_close(&other);
    cr_assert_eq(try_open(&both, context, 5 * GB, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_state(context, "both", "cuda:0,cuda:1");
    /* Two streams on each: four batches run at once. */
    fake_hold();
    for (int i = 0; i < N; i++) {
        jobs[i] = fake_job(&unlike[i], 1, rows[i]);
        cr_assert_eq(gpuserve_submit(&requests[i], both, &jobs[i], NULL, NULL, NULL), GPUSERVE_OK);
        fake_wait_running(i + 1);
    }
    fake_release();
    for (int i = 0; i < N; i++) {
        fake_vector(unlike[i], want);
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        cr_expect_eq(memcmp(rows[i], want, sizeof(want)), 0);
        gpuserve_request_free(&requests[i]);
    }
    cr_assert_eq(gpuserve_model_suspend(both, NULL), GPUSERVE_OK);
    check_answer(both);
    gpuserve_model_close(&both);
    end_context(&context);
}

/* Two devices are lost at once: the second one while a thread considers it the last replica. */
Test(budget, the_last_replica_is_not_left_out)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("both");
    gpuserve_model *both = NULL;

    options.device = "cuda:*";
    cr_assert_eq(try_open(&both, context, 5 * GB, &options, NULL), GPUSERVE_OK);
    cr_expect(gsv_model_remove_replica(both->current, 0));
    cr_expect_not(gsv_model_remove_replica(both->current, 0));
    cr_expect_not(gsv_model_remove_replica(both->current, 1));
    cr_expect(gsv_model_has_replica(both->current, 1));
    expect_state(context, "both", "cuda:1");
    cr_assert_eq(gpuserve_model_suspend(both, NULL), GPUSERVE_OK);
    check_answer(both);
    gpuserve_model_close(&both);
    end_context(&context);
}

/* --------------------------------------------------------------------------------- many threads */

enum { N_MODELS = 3, N_THREADS = 6, N_STEPS = 60 };

struct actor {
    gpuserve_context *context;
    gpuserve_model **models;
    uint32_t seed;
    int n_wrong;
};

static void *use_any(void *argument)
{
    struct actor *actor = argument;
    float row[FAKE_DIM], want[FAKE_DIM];
    uint32_t state = actor->seed;

    fake_vector(reservations_text[0], want);
    for (int i = 0; i < N_STEPS; i++) {
        gpuserve_model *model;
        gpuserve_status st;

        state = state * 1664525u + 1013904223u;
        model = actor->models[(state >> 16) % N_MODELS];
        if ((state >> 24) % 16 == 0) {
            actor->n_wrong += gpuserve_model_suspend(model, NULL) != GPUSERVE_OK;
            continue;
        }
        st = gpuserve_embed(model, reservations_text, 1, row, FAKE_DIM, NULL, NULL);
        actor->n_wrong += st != GPUSERVE_OK || memcmp(row, want, sizeof(row)) != 0;
    }
    return NULL;
}

Test(budget, more_models_than_fit_serve_many_threads)
{
    static const char *const names[N_MODELS] = { "one", "two", "three" };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_EVICT, 60000);
    gpuserve_model *models[N_MODELS];
    struct actor actors[N_THREADS];
    pthread_t threads[N_THREADS];

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    for (int i = 0; i < N_MODELS; i++)
        models[i] = open_named(context, names[i], 5 * GB);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        actors[i] = (struct actor){ context, models, 77 * i + 1, 0 };
        cr_assert_eq(pthread_create(&threads[i], NULL, use_any, &actors[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(actors[i].n_wrong, 0);
    }
    for (int i = 0; i < N_MODELS; i++)
        gpuserve_model_close(&models[i]);
    end_context(&context);
}
