/*
 * test_waiting.c - a batch waits for more requests while its device is busy, never for an idle
 * device, and at most max_wait.
 *
 * Where no wait may happen, max_wait is an hour, so that a fault shows as a test timeout.
 */
#include "tests/runtime/fake.h"
#include "tests/runtime/plugin_folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AN_HOUR_US UINT32_C(3600000000)
#define A_MOMENT_US 20000u

static char plugin_dir[PLUGIN_FOLDER_BYTES];

static void make_plugin(void)
{
    plugin_folder_make(plugin_dir, "plugin-small");
}

static void drop_plugin(void)
{
    plugin_folder_remove(plugin_dir);
}

/* Opens a model on a device with two streams and no CPU limit. */
static gpuserve_model *open_with(const char *device, uint32_t max_batch_tokens,
                                 uint32_t max_wait_us, uint32_t deterministic)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    make_plugin();
    context_options.n_threads = 2;
    context_options.plugin_dir = plugin_dir;
    options.device = device;
    options.max_batch_tokens = max_batch_tokens;
    options.dtype = GPUSERVE_DTYPE_FLOAT32; /* dtype of the CPU backend, which the fake GPU uses */
    options.max_wait_us = max_wait_us;
    options.deterministic = deterministic;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    drop_plugin(); /* it is loaded */
    gpuserve_context_unref(&context);
    return model;
}

static gpuserve_model *open_waiting(const char *device, uint32_t max_batch_tokens,
                                    uint32_t max_wait_us)
{
    return open_with(device, max_batch_tokens, max_wait_us, 0);
}

enum { N_WAITING = 6 };

struct waiting {
    gpuserve_request *requests[N_WAITING];
    float rows[N_WAITING][FAKE_DIM];
    size_t n;
};

static void submit_named(struct waiting *waiting, gpuserve_model *model, const char *text,
                         const char *prompt_name, int64_t deadline_us)
{
    const char *const texts[] = { text };
    gpuserve_job job = fake_job(texts, 1, waiting->rows[waiting->n]);

    job.deadline_us = deadline_us;
    job.prompt_name = prompt_name;
    cr_assert_eq(gpuserve_submit(&waiting->requests[waiting->n++], model, &job, NULL, NULL, NULL),
                 GPUSERVE_OK);
}

static void submit_one(struct waiting *waiting, gpuserve_model *model, const char *text,
                       int64_t deadline_us)
{
    submit_named(waiting, model, text, NULL, deadline_us);
}

static void finish(struct waiting *waiting)
{
    for (size_t i = 0; i < waiting->n; i++) {
        cr_expect_eq(gpuserve_wait(waiting->requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&waiting->requests[i]);
    }
}

static void expect_no_wait(const char *device)
{
    gpuserve_model *model = open_waiting(device, 0, AN_HOUR_US);
    struct waiting waiting = { .n = 0 };
    const char *const text[] = { "blocking" };
    float row[FAKE_DIM];
    const gpuserve_job job = fake_job(text, 1, row);

    submit_one(&waiting, model, "submitted", 0);
    finish(&waiting);
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
}

/* Texts that arrive while a batch runs form one batch when it ends. */
static void expect_one_batch_of_five(const char *device)
{
    gpuserve_model *model = open_waiting(device, 0, AN_HOUR_US);
    struct waiting waiting = { .n = 0 };
    static const char *const texts[] = { "one", "two", "three", "four", "five" };

    fake_hold();
    submit_one(&waiting, model, "first", 0);
    fake_wait_running(1);
    for (size_t i = 0; i < 5; i++)
        submit_one(&waiting, model, texts[i], 0);
    fake_release();
    finish(&waiting);
    cr_expect_eq(fake_batches(), 2);
    gpuserve_model_close(&model);
}

Test(waiting, an_idle_device_never_waits)
{
    expect_no_wait("cpu");
    expect_no_wait("cuda:0");
    expect_no_wait("cuda:*");
}

Test(waiting, a_batch_fills_while_the_device_is_busy)
{
    expect_one_batch_of_five("cuda:0");
}

/* One of two devices is idle: requests do not wait for the busy one. */
Test(waiting, an_idle_replica_takes_what_there_is)
{
    gpuserve_model *model = open_waiting("cuda:*", 0, AN_HOUR_US);
    struct waiting waiting = { .n = 0 };

    fake_hold();
    submit_one(&waiting, model, "first", 0);
    fake_wait_running(1);
    submit_one(&waiting, model, "second", 0);
    fake_wait_running(2);
    fake_release();
    finish(&waiting);
    gpuserve_model_close(&model);
}

/* The first batch is held until another one runs concurrently. */
static void expect_second_batch(gpuserve_model *model, const char *text, int64_t deadline_us)
{
    struct waiting waiting = { .n = 0 };

    fake_hold();
    submit_one(&waiting, model, "first", 0);
    fake_wait_running(1);
    submit_one(&waiting, model, text, deadline_us);
    fake_wait_running(2);
    fake_release();
    finish(&waiting);
    gpuserve_model_close(&model);
}

Test(waiting, a_full_batch_does_not_wait)
{
    char text[3 * FAKE_MAX_TOKENS] = "";

    for (int i = 0; i < FAKE_MAX_TOKENS - 2; i++)
        strcat(text, "w ");
    expect_second_batch(open_waiting("cuda:0", FAKE_MAX_TOKENS, AN_HOUR_US), text, 0);
}

Test(waiting, the_wait_is_bounded)
{
    expect_second_batch(open_waiting("cuda:0", 0, A_MOMENT_US), "second", 0);
    expect_second_batch(open_waiting("cuda:0", 0, GPUSERVE_WAIT_NONE), "second", 0);
    expect_second_batch(open_waiting("cuda:0", 0, 0), "second", 0); /* the default */
}

/* A deadline in half an hour is earlier than the end of the wait. */
Test(waiting, a_deadline_that_is_near_is_not_waited_past)
{
    expect_second_batch(open_waiting("cuda:0", 0, AN_HOUR_US), "second", (int64_t)AN_HOUR_US / 2);
}

/* Suspending does not wait for more requests, and completes all queued ones. */
Test(waiting, what_waits_is_computed_when_the_model_is_suspended)
{
    gpuserve_model *model = open_waiting("cuda:0", 0, AN_HOUR_US);
    struct waiting waiting = { .n = 0 };

    fake_hold();
    submit_one(&waiting, model, "first", 0);
    fake_wait_running(1);
    submit_one(&waiting, model, "second", 0);
    fake_release();
    cr_expect_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    finish(&waiting);
    gpuserve_model_close(&model);
}

/* Five texts, two of them with an adapter. */
static void expect_batches_of_adapters(uint32_t deterministic, int n_batches)
{
    static const char *const texts[] = { "one", "two", "three", "four", "five" };
    const int before = fake_batches();
    struct waiting waiting = { .n = 0 };
    gpuserve_model *model;

    fake_set_sparse_and_skipping();
    model = open_with("cuda:0", 0, AN_HOUR_US, deterministic);
    fake_hold();
    submit_one(&waiting, model, "first", 0);
    fake_wait_running(1);
    for (size_t i = 0; i < 5; i++)
        submit_named(&waiting, model, texts[i], i % 2 ? "adapted" : "default", 0);
    fake_release();
    finish(&waiting);
    cr_expect_eq(fake_batches() - before, 1 + n_batches, "%d batches", fake_batches() - before - 1);
    gpuserve_model_close(&model);
}

/* The kernels of a GPU depend on the rows of a product. */
Test(waiting, a_deterministic_gpu_has_a_batch_for_each_adapter)
{
    expect_batches_of_adapters(0, 1);
    expect_batches_of_adapters(1, 2);
}
