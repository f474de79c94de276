/*
 * test_deadline.c - deadlines in all request states, priority classes, the expected fingerprint,
 * and the fields of job.result.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const text[] = { "a few words" };

/* No result cache: equal texts would be computed once. */
static gpuserve_job job_of(const char *const *texts, size_t n, float *rows)
{
    gpuserve_job job = fake_job(texts, n, rows);

    job.cache = GPUSERVE_CACHE_OFF;
    return job;
}

static gpuserve_request *submit(gpuserve_model *model, const gpuserve_job *job)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *request = NULL;

    cr_assert_eq(gpuserve_submit(&request, model, job, NULL, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    return request;
}

static void finish(gpuserve_request *request, gpuserve_status want)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gpuserve_wait(request, -1, &error), want, "%s", error.message);
    gpuserve_request_free(&request);
}

Test(deadline, past_before_submission_is_refused_at_once)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *request = (gpuserve_request *)1;
    float row[FAKE_DIM] = { -7 };
    gpuserve_job job = job_of(text, 1, row);

    job.deadline_us = -3;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_EXPIRED);
    cr_expect_str_eq(error.message, "the deadline passed 3 us before submission");
    cr_expect_eq(gpuserve_submit(&request, model, &job, NULL, NULL, NULL), GPUSERVE_E_EXPIRED);
    cr_expect_null(request);
    job.deadline_us = INT64_MIN;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_EXPIRED);
    cr_expect_eq(row[0], -7);
    cr_expect_eq(fake_batches(), 0);
    gpuserve_model_close(&model);
}

Test(deadline, a_far_one_changes_nothing)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    float row[FAKE_DIM], want[FAKE_DIM];
    gpuserve_job job = job_of(text, 1, row);

    fake_vector(text[0], want);
    job.deadline_us = INT64_MAX;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
}

/* The only worker is held by the first text, so the second's deadline expires in the queue. */
Test(deadline, passing_in_the_queue_completes_before_compute)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[2][FAKE_DIM], want[FAKE_DIM];
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job first = job_of(text, 1, rows[0]), second = job_of(text, 1, rows[1]);
    gpuserve_request *running, *waiting;

    rows[1][0] = -7;
    second.deadline_us = 2000;
    second.result = &result;
    fake_hold();
    running = submit(model, &first);
    fake_wait_running(1);
    waiting = submit(model, &second);
    cr_expect_eq(gpuserve_wait(waiting, 20000, NULL), GPUSERVE_E_TIMEOUT, "no worker is free");
    fake_release();
    cr_expect_eq(gpuserve_wait(waiting, -1, &error), GPUSERVE_E_EXPIRED);
    cr_expect_str_eq(error.message, "the deadline, 2000 us after submission, passed before 1 of 1 "
                                    "items started");
    cr_expect_eq(rows[1][0], -7, "untouched");
    cr_expect_eq(result.n_tokens, 0, "untouched");
    gpuserve_request_free(&waiting);
    finish(running, GPUSERVE_OK);
    fake_vector(text[0], want);
    cr_expect_eq(memcmp(rows[0], want, sizeof(want)), 0);
    cr_expect_eq(fake_batches(), 1);
    gpuserve_model_close(&model);
}

Test(deadline, passing_unwatched_is_found_by_the_worker)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    float rows[2][FAKE_DIM];
    gpuserve_job first = job_of(text, 1, rows[0]), second = job_of(text, 1, rows[1]);
    gpuserve_request *running, *waiting;

    second.deadline_us = 1000;
    fake_hold();
    running = submit(model, &first);
    fake_wait_running(1);
    waiting = submit(model, &second);
    usleep(3000);
    fake_release();
    finish(running, GPUSERVE_OK);
    finish(waiting, GPUSERVE_E_EXPIRED);
    cr_expect_eq(fake_batches(), 1);
    gpuserve_model_close(&model);
}

static void note_status(void *user, gpuserve_request *request, gpuserve_status status)
{
    (void)request;
    atomic_store((_Atomic int *)user, (int)status);
}

/* No gpuserve_wait() here, which would wake the worker at the deadline. */
Test(deadline, passed_deadline_is_reported_without_a_waiting_caller, .timeout = 60)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[2][FAKE_DIM];
    gpuserve_job first = job_of(text, 1, rows[0]), second = job_of(text, 1, rows[1]);
    gpuserve_request *running, *left = NULL;
    _Atomic int told = -1;

    second.deadline_us = 1000;
    fake_hold();
    running = submit(model, &first);
    fake_wait_running(1);
    cr_assert_eq(gpuserve_submit(&left, model, &second, note_status, &told, &error), GPUSERVE_OK,
                 "%s", error.message);
    usleep(3000);
    fake_release();
    while (atomic_load(&told) < 0)
        usleep(1000);
    cr_expect_eq(atomic_load(&told), GPUSERVE_E_EXPIRED);
    gpuserve_request_free(&left);
    finish(running, GPUSERVE_OK);
    gpuserve_model_close(&model);
}

Test(deadline, what_has_begun_whole_is_finished)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    float row[FAKE_DIM], want[FAKE_DIM];
    gpuserve_job job = job_of(text, 1, row);
    gpuserve_request *request;

    job.deadline_us = 2000000; /* enough to start on a busy machine */
    fake_hold();
    request = submit(model, &job);
    fake_wait_running(1);
    cr_expect_eq(gpuserve_wait(request, 2100000, NULL), GPUSERVE_E_TIMEOUT);
    fake_release();
    finish(request, GPUSERVE_OK);
    fake_vector(text[0], want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
}

/* A large job in several batches: some items are computed, then the deadline expires, and no output
 * is written. */
Test(deadline, passing_amid_a_large_job_writes_nothing)
{
    enum { MANY = 20000 };
    gpuserve_model *model = fake_open(2, 64, 0);
    const char **texts = calloc(MANY, sizeof(*texts));
    float *rows = calloc((size_t)MANY * FAKE_DIM, sizeof(*rows));
    gpuserve_job job;
    gpuserve_request *request;
    gpuserve_status st;

    for (size_t i = 0; i < MANY; i++)
        texts[i] = text[0];
    job = job_of(texts, MANY, rows);
    job.deadline_us = 100000;
    fake_hold();
    request = submit(model, &job);
    st = gpuserve_wait(request, 150000,
                       NULL); /* some items are held in a batch, unless the test was late */
    cr_expect(st == GPUSERVE_E_TIMEOUT || st == GPUSERVE_E_EXPIRED, "%s", gpuserve_status_name(st));
    fake_release();
    finish(request, GPUSERVE_E_EXPIRED);
    for (size_t i = 0; i < (size_t)MANY * FAKE_DIM; i++)
        cr_assert_eq(rows[i], 0, "untouched");
    gpuserve_model_close(&model);
    free(texts);
    free(rows);
}

Test(deadline, closing_a_model_with_expired_and_waiting_requests)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    float rows[4][FAKE_DIM];
    gpuserve_request *requests[4];

    fake_hold();
    for (size_t i = 0; i < 4; i++) {
        gpuserve_job job = job_of(text, 1, rows[i]);

        job.deadline_us = i % 2 ? 1 : 0;
        requests[i] = submit(model, &job);
        if (i == 0)
            fake_wait_running(1);
    }
    fake_release();
    gpuserve_model_close(&model);
    for (size_t i = 0; i < 4; i++)
        finish(requests[i], i % 2 ? GPUSERVE_E_EXPIRED : GPUSERVE_OK);
}

/* ----------------------------------------------------------------------------------- classes */

static int order[400], n_order;

static void note(void *user, gpuserve_request *request, gpuserve_status status)
{
    (void)request;
    cr_expect_eq(status, GPUSERVE_OK);
    order[n_order++] = (int)(size_t)user; /* one worker completes in order */
}

/* 100 full-batch requests of each class wait for one worker. Of the first 105, 80 are HIGH, 20
 * NORMAL and 5 LOW, and all complete. */
Test(deadline, classes_share_sixteen_to_four_to_one_and_none_starves)
{
    enum { EACH = 100, ALL = 3 * EACH };
    static const char *const full[] = { "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 "
                                        "23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 "
                                        "42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 "
                                        "61 62" };
    gpuserve_model *model = fake_open(1, 64, 0);
    static float rows[ALL + 1][FAKE_DIM];
    gpuserve_job job = job_of(text, 1, rows[ALL]);
    gpuserve_request *first, *requests[ALL];
    int counts[3] = { 0 };

    fake_hold();
    first = submit(model, &job);
    fake_wait_running(1);
    for (size_t i = 0; i < ALL; i++) {
        job = job_of(full, 1, rows[i]);
        job.priority = (uint32_t)(i / EACH);
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, note, (void *)(i / EACH), NULL),
                     GPUSERVE_OK);
    }
    fake_release();
    for (size_t i = 0; i < ALL; i++)
        finish(requests[i], GPUSERVE_OK);
    finish(first, GPUSERVE_OK);
    cr_assert_eq(n_order, ALL);
    for (int i = 0; i < 105; i++)
        counts[order[i]]++;
    cr_expect(counts[GPUSERVE_PRIORITY_HIGH] >= 78 && counts[GPUSERVE_PRIORITY_HIGH] <= 82, "%d",
              counts[GPUSERVE_PRIORITY_HIGH]);
    cr_expect(counts[GPUSERVE_PRIORITY_NORMAL] >= 18 && counts[GPUSERVE_PRIORITY_NORMAL] <= 22,
              "%d", counts[GPUSERVE_PRIORITY_NORMAL]);
    cr_expect(counts[GPUSERVE_PRIORITY_LOW] >= 4 && counts[GPUSERVE_PRIORITY_LOW] <= 7, "%d",
              counts[GPUSERVE_PRIORITY_LOW]);
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------- expectation and result */

Test(deadline, another_fingerprint_is_refused)
{
    gpuserve_model *model = fake_open(1, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float row[FAKE_DIM] = { -7 };
    gpuserve_job job = job_of(text, 1, row);

    job.expected_fingerprint = "00000000000000000000000000000000";
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_MISMATCH);
    cr_expect_neq(strstr(error.message, gpuserve_model_fingerprint(model)), NULL, "%s",
                  error.message);
    cr_expect_neq(strstr(error.message, job.expected_fingerprint), NULL, "%s", error.message);
    cr_expect_eq(row[0], -7);
    job.expected_fingerprint = gpuserve_model_fingerprint(model);
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK);
    gpuserve_model_close(&model);
}

Test(deadline, a_result_tells_tokens_device_and_times)
{
    static const char *const texts[] = {
        "short", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 "
                 "31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 "
                 "58 59 60 61 62 63 64 65 66"
    };
    gpuserve_model *model = fake_open(1, 0, 0);
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    float rows[2 * FAKE_DIM];
    gpuserve_job job = job_of(texts, 2, rows);
    gpuserve_request *request;

    job.result = &result;
    fake_hold();
    request = submit(model, &job);
    fake_wait_running(1);
    usleep(20000);
    fake_release();
    finish(request, GPUSERVE_OK);
    cr_expect_eq(result.n_tokens, 3 + FAKE_MAX_TOKENS);
    cr_expect_eq(result.n_truncated, 1);
    cr_expect_eq(result.n_cached, 0);
    cr_expect_eq(result.dtype, GPUSERVE_DTYPE_FLOAT32);
    cr_expect_str_eq(result.device, "cpu");
    cr_expect_str_eq(result.fingerprint, gpuserve_model_fingerprint(model));
    cr_expect_geq(result.compute_us, 20000, "it was held so long");
    cr_expect_geq(result.total_us, result.queue_us + result.compute_us);
    result.struct_size = 8;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_INVALID, "a struct too small");
    gpuserve_model_close(&model);
}
