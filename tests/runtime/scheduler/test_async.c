/*
 * test_async.c - submit, wait, cancel, callbacks and the event descriptor, in all orders.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const two_texts[] = { "a man is eating", "food" };

static void expect_rows(const char *const *texts, size_t n, const float *rows)
{
    for (size_t i = 0; i < n; i++) {
        float want[FAKE_DIM];

        fake_vector(texts[i], want);
        cr_expect_eq(memcmp(want, rows + i * FAKE_DIM, sizeof(want)), 0, "row %zu of \"%s\"", i,
                     texts[i]);
    }
}

static bool untouched(const float *rows, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i] != value)
            return false;
    }
    return true;
}

static void fill(float *rows, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = value;
}

static gpuserve_request *submit(gpuserve_model *model, const gpuserve_job *job,
                                gpuserve_completion_fn callback, void *user)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *request = NULL;

    cr_assert_eq(gpuserve_submit(&request, model, job, callback, user, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_not_null(request);
    return request;
}

Test(async, a_request_completes_with_its_rows)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float rows[2 * FAKE_DIM];
    gpuserve_item items[2];
    gpuserve_job job = fake_job(two_texts, 2, rows);
    gpuserve_request *request;

    job.items = items;
    request = submit(model, &job, NULL, NULL);
    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(request, 0, NULL), GPUSERVE_OK, "again");
    cr_expect_eq(gpuserve_cancel(request), GPUSERVE_OK);
    cr_expect_eq(gpuserve_wait(request, 0, NULL), GPUSERVE_OK, "cancelling came too late");
    expect_rows(two_texts, 2, rows);
    cr_expect_eq(items[0].n_tokens, 6);
    cr_expect_eq(items[1].n_tokens, 3);
    gpuserve_request_free(&request);
    cr_expect_null(request);
    gpuserve_model_close(&model);
    cr_expect_null(model);
}

Test(async, wait_times_out_while_the_request_runs)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[2 * FAKE_DIM];
    const gpuserve_job job = fake_job(two_texts, 2, rows);
    gpuserve_request *request;

    fake_hold();
    request = submit(model, &job, NULL, NULL);
    fake_wait_running(1);
    cr_expect_eq(gpuserve_wait(request, 0, &error), GPUSERVE_E_TIMEOUT);
    cr_expect_eq(error.status, GPUSERVE_E_TIMEOUT);
    cr_expect_eq(gpuserve_wait(request, 1500, NULL), GPUSERVE_E_TIMEOUT);
    fake_release();
    cr_expect_eq(gpuserve_wait(request, INT64_MAX, NULL), GPUSERVE_OK);
    expect_rows(two_texts, 2, rows);
    gpuserve_request_free(&request);
    gpuserve_model_close(&model);
}

Test(async, cancelling_in_the_queue_while_running_and_half_done_leaves_outputs_alone)
{
    gpuserve_model *model = fake_open(1, 16, 0);
    const char *const many[] = { "a b c d e f g h i j", "k l m n o p q r s t", "u v w x y z" };
    float running[3 * FAKE_DIM], queued[2 * FAKE_DIM], after[2 * FAKE_DIM];
    gpuserve_item items[3];
    gpuserve_job job = fake_job(many, 3, running);
    const gpuserve_job queued_job = fake_job(two_texts, 2, queued);
    const gpuserve_job after_job = fake_job(two_texts, 2, after);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *first, *second, *third;

    fill(running, 3 * FAKE_DIM, 7);
    fill(queued, 2 * FAKE_DIM, 8);
    memset(items, 0x55, sizeof(items));
    job.items = items;
    fake_hold();
    first = submit(model, &job, NULL, NULL);
    fake_wait_running(1); /* one of its three texts is in a batch */
    second = submit(model, &queued_job, NULL, NULL);
    third = submit(model, &after_job, NULL, NULL);
    cr_expect_eq(gpuserve_cancel(second), GPUSERVE_OK);
    cr_expect_eq(gpuserve_cancel(first), GPUSERVE_OK);
    cr_expect_eq(gpuserve_cancel(first), GPUSERVE_OK, "twice");
    fake_release();
    cr_expect_eq(gpuserve_wait(first, -1, &error), GPUSERVE_E_CANCELLED);
    cr_expect_eq(error.status, GPUSERVE_E_CANCELLED);
    cr_expect_eq(gpuserve_wait(second, -1, NULL), GPUSERVE_E_CANCELLED);
    cr_expect_eq(gpuserve_wait(third, -1, NULL), GPUSERVE_OK);
    cr_expect(untouched(running, 3 * FAKE_DIM, 7));
    cr_expect(untouched(queued, 2 * FAKE_DIM, 8));
    cr_expect_eq(items[0].n_tokens, 0x55555555);
    expect_rows(two_texts, 2, after);
    cr_expect_eq(fake_batches(), 2, "what was cancelled did not run");
    gpuserve_request_free(&first);
    gpuserve_request_free(&second);
    gpuserve_request_free(&third);
    gpuserve_model_close(&model);
}

/* ---------------------------------------------------------------------------------- callbacks */

struct called {
    atomic_int n;
    atomic_int status;
    pthread_t thread;
};

static void note(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct called *called = user;

    (void)request;
    called->thread = pthread_self();
    atomic_store(&called->status, (int)status);
    atomic_fetch_add(&called->n, 1);
}

Test(async, the_callback_comes_once_from_a_library_thread_in_every_ending)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    const char *const broken[] = { "this will BREAK it" };
    float rows[2 * FAKE_DIM];
    gpuserve_job jobs[] = { fake_job(two_texts, 2, rows), fake_job(broken, 1, rows),
                            fake_job(NULL, 0, NULL), fake_job(two_texts, 2, rows) };
    const gpuserve_status want[] = { GPUSERVE_OK, GPUSERVE_E_DEVICE, GPUSERVE_OK,
                                     GPUSERVE_E_CANCELLED };

    for (size_t i = 0; i < 4; i++) {
        struct called called = { 0 };
        gpuserve_request *request;

        if (want[i] == GPUSERVE_E_CANCELLED)
            fake_hold();
        request = submit(model, &jobs[i], note, &called);
        if (want[i] == GPUSERVE_E_CANCELLED) {
            gpuserve_cancel(request);
            fake_release();
        }
        cr_expect_eq(gpuserve_wait(request, -1, NULL), want[i], "case %zu", i);
        gpuserve_request_free(&request); /* waits for the callback */
        cr_expect_eq(atomic_load(&called.n), 1, "case %zu", i);
        cr_expect_eq(atomic_load(&called.status), (int)want[i], "case %zu", i);
        cr_expect(!pthread_equal(called.thread, pthread_self()), "case %zu", i);
    }
    gpuserve_model_close(&model);
}

struct chain {
    gpuserve_model *model;
    float rows[FAKE_DIM];
    atomic_int left;
    atomic_int failed;
};

static void submit_next(void *user, gpuserve_request *request, gpuserve_status status)
{
    static const char *const text[] = { "next" };
    struct chain *chain = user;
    gpuserve_request *next = NULL;

    if (status != GPUSERVE_OK || gpuserve_wait(request, 0, NULL) != GPUSERVE_OK)
        atomic_fetch_add(&chain->failed, 1);
    if (atomic_load(&chain->left) > 1) {
        const gpuserve_job job = fake_job(text, 1, chain->rows);

        if (gpuserve_submit(&next, chain->model, &job, submit_next, chain, NULL) != GPUSERVE_OK)
            atomic_fetch_add(&chain->failed, 1);
    }
    gpuserve_request_free(&request); /* freeing its own request is allowed */
    atomic_fetch_sub(&chain->left, 1);
}

Test(async, a_callback_may_submit_another_and_free_its_own)
{
    static const char *const text[] = { "first" };
    struct chain chain = { .model = fake_open(0, 0, 0), .left = 200 };
    const gpuserve_job job = fake_job(text, 1, chain.rows);

    submit(chain.model, &job, submit_next, &chain);
    while (atomic_load(&chain.left) > 0)
        usleep(100);
    cr_expect_eq(atomic_load(&chain.failed), 0);
    gpuserve_model_close(&chain.model);
}

/* ------------------------------------------------------------------- callbacks and suspension */

struct meeting {
    gpuserve_context *context;
    gpuserve_model *model;
    float row[FAKE_DIM];
    gpuserve_status status; /* of the submission in the callback */
    uint32_t retry_after_ms;
};

static bool is_suspended(gpuserve_context *context)
{
    char text[4096];

    cr_assert_eq(gpuserve_context_models(context, text, sizeof(text), NULL, NULL), GPUSERVE_OK);
    return strstr(text, "\"suspended\"") != NULL;
}

/* The suspension waits for this callback, so the callback must not wait for the suspension. */
static void submit_once_suspended(void *user, gpuserve_request *request, gpuserve_status status)
{
    static const char *const text[] = { "next" };
    struct meeting *meeting = user;
    gpuserve_request *next = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_job job = fake_job(text, 1, meeting->row);

    (void)request;
    (void)status;
    while (!is_suspended(meeting->context))
        usleep(1000);
    meeting->status = gpuserve_submit(&next, meeting->model, &job, NULL, NULL, &error);
    meeting->retry_after_ms = error.retry_after_ms;
}

Test(async, submission_from_a_callback_is_refused_during_suspension)
{
    static const char *const text[] = { "first" };
    struct meeting meeting = { .status = GPUSERVE_OK };
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_request *request = NULL;
    const gpuserve_job job = fake_job(text, 1, meeting.row);

    options.device = "cpu";
    cr_assert_eq(gpuserve_context_create(&meeting.context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&meeting.model, meeting.context, ".", &options, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(
        gpuserve_submit(&request, meeting.model, &job, submit_once_suspended, &meeting, NULL),
        GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_suspend(meeting.model, NULL), GPUSERVE_OK);
    cr_expect_eq(meeting.status, GPUSERVE_E_BUSY);
    cr_expect_gt(meeting.retry_after_ms, 0);
    gpuserve_request_free(&request);
    cr_expect_eq(gpuserve_run(meeting.model, &job, NULL), GPUSERVE_OK); /* resumes it */
    gpuserve_model_close(&meeting.model);
    gpuserve_context_unref(&meeting.context);
}

struct changes {
    gpuserve_model *model;
    gpuserve_status suspended, resumed, swapped;
};

static void change(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct changes *changes = user;

    (void)request;
    (void)status;
    changes->suspended = gpuserve_model_suspend(changes->model, NULL);
    changes->resumed = gpuserve_model_resume(changes->model, NULL);
    changes->swapped = gpuserve_model_swap(changes->model, NULL, NULL, NULL, NULL, NULL);
}

/* Each of these calls would wait for the callback that makes it (deadlock), so they are
 * rejected. */
Test(async, a_callback_may_not_change_a_model, .timeout = 60)
{
    static const char *const text[] = { "first" };
    struct changes changes = { .model = fake_open(0, 0, 0) };
    float row[FAKE_DIM];
    const gpuserve_job job = fake_job(text, 1, row);
    gpuserve_request *request = submit(changes.model, &job, change, &changes);

    cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    gpuserve_request_free(&request); /* waits for the callback */
    cr_expect_eq(changes.suspended, GPUSERVE_E_INVALID);
    cr_expect_eq(changes.resumed, GPUSERVE_E_INVALID);
    cr_expect_eq(changes.swapped, GPUSERVE_E_INVALID);
    gpuserve_model_close(&changes.model);
}

/* -------------------------------------------------------------------- waiters and descriptor */

static void *wait_for(void *request)
{
    return (void *)(uintptr_t)gpuserve_wait(request, -1, NULL);
}

Test(async, many_threads_may_wait_for_one_request)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float rows[2 * FAKE_DIM];
    const gpuserve_job job = fake_job(two_texts, 2, rows);
    pthread_t threads[16];
    gpuserve_request *request;

    fake_hold();
    request = submit(model, &job, NULL, NULL);
    for (size_t i = 0; i < 16; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, wait_for, request), 0);
    usleep(2000);
    fake_release();
    for (size_t i = 0; i < 16; i++) {
        void *status;

        pthread_join(threads[i], &status);
        cr_expect_eq((uintptr_t)status, GPUSERVE_OK);
    }
    gpuserve_request_free(&request);
    gpuserve_model_close(&model);
}

/* A race, but a worker has to be woken first, so the waiting thread usually runs the batch
 * inline. */
Test(async, who_waits_without_a_limit_computes_on_an_idle_cpu)
{
    gpuserve_model *model = fake_open(2, 0, 0);
    float row[2 * FAKE_DIM];
    const gpuserve_job job = fake_job(two_texts, 2, row);
    int n_others = 0;

    for (int i = 0; i < 1000; i++) {
        gpuserve_request *request = submit(model, &job, NULL, NULL);
        const int before = fake_batches_here();
        gpuserve_status st = gpuserve_wait(request, 0, NULL);

        cr_assert(st == GPUSERVE_OK || st == GPUSERVE_E_TIMEOUT);
        cr_assert_eq(gpuserve_wait(request, 1000000, NULL), GPUSERVE_OK);
        cr_assert_eq(fake_batches_here(), before, "with a limit it only waits");
        gpuserve_request_free(&request);
    }
    for (int i = 0; i < 1000; i++) {
        gpuserve_request *request = submit(model, &job, NULL, NULL);
        const int before = fake_batches_here();

        cr_assert_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
        n_others += fake_batches_here() == before;
        gpuserve_request_free(&request);
    }
    cr_expect_lt(n_others, 1000);
    gpuserve_model_close(&model);
}

Test(async, the_descriptor_counts_completions)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    const int fd = gpuserve_completion_fd(model);
    float rows[3][2 * FAKE_DIM];
    gpuserve_request *requests[3];
    struct pollfd readable = { .fd = fd, .events = POLLIN };
    uint64_t total = 0;

    cr_assert_geq(fd, 0);
    cr_expect_eq(gpuserve_completion_fd(model), fd, "the same every time");
    cr_expect_eq(poll(&readable, 1, 0), 0, "nothing has completed");
    for (size_t i = 0; i < 3; i++) {
        const gpuserve_job job = fake_job(two_texts, 2, rows[i]);

        requests[i] = submit(model, &job, NULL, NULL);
    }
    while (total < 3) {
        uint64_t count = 0;

        cr_assert_eq(poll(&readable, 1, 10000), 1);
        cr_assert_eq(read(fd, &count, sizeof(count)), sizeof(count));
        total += count;
    }
    cr_expect_eq(total, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], 0, NULL), GPUSERVE_OK, "complete when told");
        gpuserve_request_free(&requests[i]);
    }
    cr_expect_eq(gpuserve_completion_fd(NULL), -1);
    gpuserve_model_close(&model);
}

Test(async, a_request_outlives_its_model)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float rows[2 * FAKE_DIM];
    const gpuserve_job job = fake_job(two_texts, 2, rows);
    gpuserve_request *request = submit(model, &job, NULL, NULL);

    gpuserve_model_close(&model); /* waits for the request */
    cr_expect_eq(gpuserve_wait(request, 0, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_cancel(request), GPUSERVE_OK);
    expect_rows(two_texts, 2, rows);
    gpuserve_request_free(&request);
}

Test(async, nothing_is_done_for_null)
{
    gpuserve_request *none = NULL;
    gpuserve_model *no_model = NULL;
    gpuserve_context *no_context = NULL;
    const gpuserve_job job = GPUSERVE_JOB_INIT;

    cr_expect_eq(gpuserve_wait(NULL, 0, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_cancel(NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_submit(&none, NULL, &job, NULL, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_submit(NULL, NULL, &job, NULL, NULL, NULL), GPUSERVE_E_INVALID);
    gpuserve_request_free(NULL);
    gpuserve_request_free(&none);
    gpuserve_model_close(NULL);
    gpuserve_model_close(&no_model);
    gpuserve_context_unref(NULL);
    gpuserve_context_unref(&no_context);
    cr_expect_null(gpuserve_context_ref(NULL));
}
