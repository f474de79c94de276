/*
 * test_trace.c - gpuserve_job.trace: the order of a job's phases, and which jobs shared which
 * batch.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { CAPACITY = 4 };

struct traced {
    const char *text;
    gpuserve_job job;
    gpuserve_request *request;
    gpuserve_trace trace;
    gpuserve_trace_batch batches[CAPACITY];
    gpuserve_item item;
    float row[FAKE_DIM];
};

static void submit(struct traced *one, gpuserve_model *model, const char *text)
{
    const gpuserve_trace none = GPUSERVE_TRACE_INIT;

    one->text = text;
    one->job = fake_job(&one->text, 1, one->row);
    one->job.items = &one->item;
    one->trace = none;
    one->trace.batches = one->batches;
    one->trace.capacity = CAPACITY;
    one->job.trace = &one->trace;
    cr_assert_eq(gpuserve_submit(&one->request, model, &one->job, NULL, NULL, NULL), GPUSERVE_OK);
}

static gpuserve_status end(struct traced *one)
{
    const gpuserve_status st = gpuserve_wait(one->request, -1, NULL);

    gpuserve_request_free(&one->request);
    return st;
}

static void expect_order(const gpuserve_trace *trace)
{
    cr_expect_gt(trace->submitted_ns, 0);
    cr_expect_geq(trace->tokenized_ns, trace->submitted_ns + trace->tokenize_ns);
    cr_expect_geq(trace->queued_ns, trace->tokenized_ns);
    cr_expect_geq(trace->started_ns, trace->submitted_ns);
    cr_expect_geq(trace->ended_ns, trace->started_ns);
    cr_expect_geq(trace->completed_ns, trace->ended_ns);
}

Test(trace, jobs_that_shared_a_batch_have_its_number)
{
    gpuserve_model *model = fake_open_one_worker(0);
    struct traced first, second, third, equal;

    fake_hold();
    submit(&first, model, "one two");
    fake_wait_running(1);
    submit(&equal, model, "one two"); /* coalesced with the text in the running batch */
    submit(&second, model, "three");
    submit(&third, model, "four five six");
    fake_release();
    cr_assert_eq(end(&first), GPUSERVE_OK);
    cr_assert_eq(end(&equal), GPUSERVE_OK);
    cr_assert_eq(end(&second), GPUSERVE_OK);
    cr_assert_eq(end(&third), GPUSERVE_OK);

    for (size_t i = 0; i < 4; i++) {
        const struct traced *one = (const struct traced *[]){ &first, &equal, &second, &third }[i];

        expect_order(&one->trace);
        cr_assert_eq(one->trace.n_batches, 1, "job %zu: %zu", i, one->trace.n_batches);
        cr_expect_eq(one->batches[0].end_ns, one->trace.ended_ns);
        cr_expect_gt(one->batches[0].id, 0);
        cr_expect_str_eq(one->batches[0].device, "cpu");
    }
    cr_expect_eq(equal.batches[0].id, first.batches[0].id);
    cr_expect_neq(second.batches[0].id, first.batches[0].id);
    cr_expect_eq(second.batches[0].id, third.batches[0].id);
    cr_expect_eq(memcmp(&second.batches[0], &third.batches[0], sizeof(third.batches[0])), 0);
    cr_expect_eq(first.batches[0].n_items, 1);
    cr_expect_eq(first.batches[0].n_tokens, first.item.n_tokens);
    cr_expect_eq(second.batches[0].n_items, 2);
    cr_expect_eq(second.batches[0].n_tokens, second.item.n_tokens + third.item.n_tokens);
    cr_expect_eq(second.trace.started_ns, second.batches[0].begin_ns);
    gpuserve_model_close(&model);
}

Test(trace, all_batches_are_counted_and_the_first_ones_recorded)
{
    enum { TEXTS = 360 };
    gpuserve_model *model = fake_open(1, 4, 0);
    const char *texts[TEXTS];
    char words[TEXTS][32];
    float rows[TEXTS * FAKE_DIM];
    gpuserve_trace_batch batches[CAPACITY + 1];
    gpuserve_trace trace = GPUSERVE_TRACE_INIT;
    gpuserve_job job = fake_job(texts, TEXTS, rows);

    for (size_t i = 0; i < TEXTS; i++) {
        snprintf(words[i], sizeof(words[i]), "a b %c%c", (int)('a' + i / 20), (int)('a' + i % 20));
        texts[i] = words[i];
    }
    memset(batches, 0, sizeof(batches));
    trace.batches = batches;
    trace.capacity = CAPACITY;
    job.cache = GPUSERVE_CACHE_OFF;
    job.trace = &trace;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(trace.n_batches, (size_t)fake_batches(), "%zu", trace.n_batches);
    cr_expect_gt(trace.n_batches, CAPACITY);
    cr_expect_eq(batches[CAPACITY].id, 0, "written behind its capacity");
    for (size_t i = 1; i < CAPACITY; i++)
        cr_expect_neq(batches[i].id, batches[i - 1].id);
    trace.batches = NULL;
    trace.capacity = 0;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_gt(trace.n_batches, CAPACITY); /* of this run alone */
    cr_expect_lt(trace.n_batches, (size_t)fake_batches());
    expect_order(&trace);
    gpuserve_model_close(&model);
}

Test(trace, a_job_that_was_not_computed_has_the_phases_it_reached)
{
    gpuserve_model *model = fake_open_one_worker(0);
    struct traced first, cancelled, broken;
    const gpuserve_trace none = GPUSERVE_TRACE_INIT;

    fake_hold();
    submit(&first, model, "one");
    fake_wait_running(1);
    submit(&cancelled, model, "two");
    gpuserve_cancel(cancelled.request);
    fake_release();
    cr_expect_eq(end(&cancelled), GPUSERVE_E_CANCELLED);
    cr_expect_gt(cancelled.trace.queued_ns, 0);
    cr_expect_gt(cancelled.trace.completed_ns, 0);
    cr_expect_eq(cancelled.trace.started_ns, 0);
    cr_expect_eq(cancelled.trace.n_batches, 0);
    cr_assert_eq(end(&first), GPUSERVE_OK);
    submit(&broken, model, "BREAK");
    cr_expect_eq(end(&broken), GPUSERVE_E_DEVICE);
    cr_expect_eq(broken.trace.n_batches, 1);
    expect_order(&broken.trace);

    first.trace = none;
    first.job.n_items = 1;
    first.text = "UNKNOWABLE";
    cr_expect_neq(gpuserve_run(model, &first.job, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(&first.trace, &none, sizeof(none)), 0, "the submission failed");
    gpuserve_model_close(&model);
}

Test(trace, wrong_structs_are_refused)
{
    gpuserve_model *model = fake_open_one_worker(0);
    const char *text = "one";
    float row[FAKE_DIM];
    gpuserve_trace trace = GPUSERVE_TRACE_INIT;
    gpuserve_job job = fake_job(&text, 1, row);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.trace = &trace;
    trace.capacity = 1;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "`trace`: batches is NULL"), "%s", error.message);
    trace.capacity = 0;
    trace.struct_size = 8;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "gpuserve_trace"), "%s", error.message);
    gpuserve_model_close(&model);
}
