/*
 * test_suspend.c - models whose weights are offloaded from a device of 12 GB and restored; and the
 * model registry.
 */
#include "tests/runtime/memory/reservations.h"
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(suspend, suspending_gives_everything_back_and_may_be_repeated)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_stats stats = { .struct_size = sizeof(stats) };
    gpuserve_model *model = open_named(context, "m", 9 * GB);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (int i = 0; i < 3; i++) {
        cr_expect_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
        cr_expect_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
        cr_assert_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
        cr_expect_eq(stats.weights_bytes, 0u);
        cr_expect_eq(gpuserve_model_resume(model, &error), GPUSERVE_OK, "%s", error.message);
        cr_expect_eq(gpuserve_model_resume(model, NULL), GPUSERVE_OK);
        cr_assert_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
        cr_expect_eq(stats.weights_bytes, 9 * GB);
        check_answer(model);
    }
    /* Not enough memory for both, unless the old model releases its memory first. */
    cr_expect_eq(gpuserve_model_swap(model, NULL, NULL, NULL, NULL, &error), GPUSERVE_OK,
                 "nothing forbids: the device of the test gives what it is asked for");
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_swap(model, NULL, NULL, NULL, NULL, &error), GPUSERVE_E_TOO_LARGE);
    check_answer(model);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_swap(model, NULL, NULL, NULL, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_state(context, "m", "ready");
    check_answer(model);
    cr_expect_eq(gpuserve_model_suspend(NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_model_resume(NULL, NULL), GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
    end_context(&context);
}

struct suspending {
    gpuserve_model *model;
    atomic_bool is_over;
};

static void *suspend(void *argument)
{
    struct suspending *suspending = argument;

    cr_assert_eq(gpuserve_model_suspend(suspending->model, NULL), GPUSERVE_OK);
    atomic_store(&suspending->is_over, true);
    return NULL;
}

Test(suspend, work_in_flight_is_finished_before_its_model_is_suspended_or_closed)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    struct suspending suspending = { .model = open_named(context, "m", 9 * GB) };
    gpuserve_request *request = NULL;
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(reservations_text, 1, row);
    pthread_t thread;

    fake_hold();
    cr_assert_eq(gpuserve_submit(&request, suspending.model, &job, NULL, NULL, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    cr_assert_eq(pthread_create(&thread, NULL, suspend, &suspending), 0);
    usleep(20000);
    cr_expect(!atomic_load(&suspending.is_over));
    cr_expect_eq(gpuserve_wait(request, 0, NULL), GPUSERVE_E_TIMEOUT);
    fake_release();
    pthread_join(thread, NULL);
    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    gpuserve_request_free(&request);
    expect_state(context, "m", "suspended");
    check_answer(suspending.model);
    gpuserve_model_close(&suspending.model);
    end_context(&context);
}

/* Suspends the first model and opens a second in its memory; loads of the context wait
 * `wait_ms`. */
static void take_its_place(uint32_t wait_ms, gpuserve_context **context, gpuserve_model **large,
                           gpuserve_model **small)
{
    *context = make_context(GPUSERVE_MEMORY_WAIT, wait_ms);
    cr_assert_eq(gpuserve_context_set_budget(*context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    *large = open_named(*context, "large", 9 * GB);
    cr_assert_eq(gpuserve_model_suspend(*large, NULL), GPUSERVE_OK);
    *small = open_named(*context, "small", 5 * GB);
}

/* The policy would allow a wait of ten minutes. */
Test(suspend, wait_for_memory_ends_at_the_deadline, .timeout = 100)
{
    static const char *const words[] = { "large needs 9", "12000000000", "small holds 5" };
    gpuserve_context *context;
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_stats stats = { .struct_size = sizeof(stats) };
    gpuserve_model *large, *small;
    float row[FAKE_DIM] = { 7 };

    take_its_place(600000, &context, &large, &small);
    options.deadline_us = 50000;
    cr_expect_eq(gpuserve_embed(large, reservations_text, 1, row, FAKE_DIM, &options, &error),
                 GPUSERVE_E_EXPIRED);
    expect_words(error.message, words, 3);
    options.deadline_us = -1;
    cr_expect_eq(gpuserve_embed(large, reservations_text, 1, row, FAKE_DIM, &options, &error),
                 GPUSERVE_E_EXPIRED);
    cr_expect_eq(row[0], 7);
    cr_assert_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
    cr_expect_eq(stats.requests_expired, 2u);
    cr_expect_eq(stats.n_models, 2u);
    cr_expect_eq(stats.n_suspended, 1u);
    gpuserve_model_close(&small);
    options.deadline_us = 60000000;
    cr_expect_eq(gpuserve_embed(large, reservations_text, 1, row, FAKE_DIM, &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    gpuserve_model_close(&large);
    end_context(&context);
}

static void *ask(void *argument)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float row[FAKE_DIM];

    cr_expect_eq(gpuserve_embed(argument, reservations_text, 1, row, FAKE_DIM, NULL, &error),
                 GPUSERVE_E_BUSY);
    cr_expect_not_null(strstr(error.message, "small holds 5"), "%s", error.message);
    return NULL;
}

/* One after the other they would exceed the test's time limit. */
Test(suspend, requests_that_wait_for_the_same_memory_wait_together, .timeout = 240)
{
    enum { N = 100 };
    gpuserve_context *context;
    gpuserve_model *large, *small;
    pthread_t threads[N];

    take_its_place(3000, &context, &large, &small);
    for (int i = 0; i < N; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, large), 0);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    gpuserve_model_close(&small);
    check_answer(large);
    gpuserve_model_close(&large);
    end_context(&context);
}

Test(suspend, reranking_resumes_as_any_request_does)
{
    static const char *const documents[] = { "one", "two words" };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model *model = open_named(context, "model", GB);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float scores[2], before[2];
    size_t order[2];

    cr_assert_eq(
        gpuserve_rerank(model, "two words", documents, 2, before, order, 2, NULL, NULL, &error),
        GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_expect_eq(
        gpuserve_rerank(model, "two words", documents, 2, scores, order, 2, NULL, NULL, &error),
        GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(memcmp(scores, before, sizeof(scores)), 0);
    gpuserve_model_close(&model);
    end_context(&context);
}

Test(suspend, an_evicted_model_may_refuse_instead_of_coming_back)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_EVICT, 50);
    gpuserve_model_options options = named("large");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *large = NULL, *small;
    gpuserve_request *request = (gpuserve_request *)1;
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(reservations_text, 1, row);

    options.when_suspended = GPUSERVE_SUSPENDED_REFUSE;
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    cr_assert_eq(try_open(&large, context, 9 * GB, &options, NULL), GPUSERVE_OK);
    small = open_named(context, "small", 5 * GB);
    cr_expect_eq(gpuserve_embed(large, reservations_text, 1, row, FAKE_DIM, NULL, &error),
                 GPUSERVE_E_BUSY);
    cr_expect_gt(error.retry_after_ms, 0u);
    cr_expect_eq(gpuserve_submit(&request, large, &job, NULL, NULL, NULL), GPUSERVE_E_BUSY);
    cr_expect_null(request);
    expect_state(context, "small", "ready");
    cr_expect_eq(gpuserve_model_resume(large, &error), GPUSERVE_OK, "%s", error.message);
    check_answer(large);
    expect_state(context, "small", "suspended");
    gpuserve_model_close(&large);
    gpuserve_model_close(&small);
    end_context(&context);
}

Test(suspend, a_request_that_cannot_resume_its_model_is_told_to_come_again)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *large, *small;
    float row[FAKE_DIM];

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    large = open_named(context, "large", 9 * GB);
    cr_assert_eq(gpuserve_model_suspend(large, NULL), GPUSERVE_OK);
    small = open_named(context, "small", 5 * GB);
    cr_expect_eq(gpuserve_model_resume(large, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gpuserve_embed(large, reservations_text, 1, row, FAKE_DIM, NULL, &error),
                 GPUSERVE_E_BUSY);
    cr_expect_eq(error.status, GPUSERVE_E_BUSY);
    cr_expect_gt(error.retry_after_ms, 0u);
    cr_expect_not_null(strstr(error.message, "small holds 5"), "%s", error.message);
    expect_state(context, "large", "suspended");
    gpuserve_model_close(&small);
    check_answer(large);
    gpuserve_model_close(&large);
    end_context(&context);
}

Test(suspend, the_copy_of_a_suspended_model_gives_way_to_the_contexts_budget)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_EVICT, 50);
    gpuserve_model *first, *second;

    first = open_named(context, "first", GB / 2);
    cr_assert_eq(gpuserve_model_suspend(first, NULL), GPUSERVE_OK);
    cr_expect_not_null(strstr(told(context, "first"), "500000000"), "the host holds its weights");
    cr_assert_eq(gpuserve_context_set_budget(context, NULL, GB, NULL), GPUSERVE_OK);
    second = open_named(context, "second", GB * 8 / 10);
    cr_expect_not_null(strstr(told(context, "first"), "\"bytes\": 0"), "%s",
                       told(context, "first"));
    gpuserve_model_close(&second);
    check_answer(first);
    gpuserve_model_close(&first);
    end_context(&context);
}

/* ------------------------------------------------------------------------------------ registry */

Test(suspend, models_are_found_by_name_and_version)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE, 0);
    gpuserve_model_options options = named("m");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *one = NULL, *two = NULL, *other = NULL, *found = NULL;

    options.version = "1";
    cr_assert_eq(try_open(&one, context, 1000, &options, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(try_open(&two, context, 1000, &options, &error), GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "\"m\", version \"1\""), "%s", error.message);
    options.version = "2";
    cr_assert_eq(try_open(&two, context, 1000, &options, &error), GPUSERVE_OK, "%s", error.message);
    options.name = NULL; /* defaults to the path, which is not unique */
    cr_assert_eq(try_open(&other, context, 1000, &options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_find(&found, context, "m", "1", NULL), GPUSERVE_OK);
    cr_expect_eq(found, one);
    gpuserve_model_close(&one);
    check_answer(found); /* another handle refers to it */
    gpuserve_model_close(&found);
    cr_assert_eq(gpuserve_context_find(&found, context, "m", NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(found, two);
    gpuserve_model_close(&found);
    cr_assert_eq(gpuserve_context_find(&found, context, ".", NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(found, other);
    gpuserve_model_close(&found);
    cr_expect_eq(gpuserve_context_find(&found, context, "m", "1", &error), GPUSERVE_E_NOT_FOUND);
    cr_expect_null(found);
    options.version = "3";
    cr_assert_eq(gpuserve_model_swap(two, NULL, NULL, &options, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_context_find(&found, context, "m", "3", NULL), GPUSERVE_OK);
    gpuserve_model_close(&found);
    cr_expect_eq(gpuserve_context_find(NULL, context, "m", NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_context_find(&found, context, NULL, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_context_find(&found, NULL, "m", NULL, NULL), GPUSERVE_E_INVALID);
    gpuserve_model_close(&two);
    gpuserve_model_close(&other);
    end_context(&context);
}
