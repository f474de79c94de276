/*
 * run.c - public calls that run jobs: submit, wait, cancel, run, embed, classify.
 *
 *   embed/classify/run -> create() -> batcher queue -> worker -> wait() -> free
 *   submit -> create() -> (callback, completion fd or wait)
 *
 * A blocking call is an asynchronous request that the caller waits for. While it waits, the caller
 * may run its batch inline. Both kinds therefore take the same code path. A request is freed once
 * its completion is released; gpuserve_request_free() waits for that, except in its own callback.
 */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/api/job_fields.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/scheduler/request.h"
#include "lib/runtime/scheduler/worker.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static gpuserve_status read_job(const gpuserve_model *model, const gpuserve_job *given,
                                gpuserve_job *job, gpuserve_error *error)
{
    gpuserve_status st = gsv_handle_check(model, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!given)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`job` is NULL");
    return gsv_read_struct(job, sizeof(*job), given, "gpuserve_job", error);
}

/* Counts a request that was refused before it had a model. */
static void count_refusal(gpuserve_model *handle, const gpuserve_job *job, gpuserve_status status,
                          uint64_t begin_ns)
{
    const struct gsv_request_facts facts = { .task = job->task,
                                             .n_items = job->n_items,
                                             .status = status,
                                             .ns[GSV_TIME_TOTAL] = gsv_now_ns() - begin_ns };

    gsv_metrics_request(&handle->context->metrics, &facts);
}

/* Binds the request to the handle's current model; a later swap does not change it. */
static gpuserve_status create(gpuserve_request **request, gpuserve_model *handle,
                              const gpuserve_job *job, gpuserve_completion_fn callback, void *user,
                              bool may_run_inline, gpuserve_error *error)
{
    const uint64_t now_ns = gsv_now_ns();
    struct gsv_model *model;
    gpuserve_status st =
        gsv_handle_use(handle, gsv_deadline_ns(job->deadline_us, now_ns), &model, error);

    if (st != GPUSERVE_OK) {
        count_refusal(handle, job, st, now_ns);
        return st;
    }
    st = gsv_request_create(request, model, job, callback, user, may_run_inline, now_ns, error);
    gsv_handle_unuse(handle, &model);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_submit(gpuserve_request **request, gpuserve_model *model,
                                             const gpuserve_job *given,
                                             gpuserve_completion_fn callback, void *user,
                                             gpuserve_error *error)
{
    gpuserve_job job;
    gpuserve_status st;

    if (!request)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`request` is NULL");
    *request = NULL;
    st = read_job(model, given, &job, error);
    if (st != GPUSERVE_OK)
        return st;
    return create(request, model, &job, callback, user, false, error);
}

static struct timespec when(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
                              .tv_nsec = (long)(ns % 1000000000) };
}

/* Waits until the request is done or until `until_ns` (0: forever). Caller holds the request's
 * lock. */
static void wait_until(gpuserve_request *request, uint64_t until_ns)
{
    const struct timespec until = when(until_ns);
    int over = 0;

    while (!request->is_done && over == 0) {
        if (until_ns == 0)
            pthread_cond_wait(&request->changed, &request->lock);
        else
            over = pthread_cond_timedwait(&request->changed, &request->lock, &until);
    }
}

/* End of the wait in nanoseconds; 0: forever. */
static uint64_t end_of_wait(int64_t timeout_us)
{
    const int64_t max_us = INT64_C(1000000) * 1000000000; /* 31 years */

    if (timeout_us < 0)
        return 0;
    return gsv_now_ns() + (uint64_t)(timeout_us < max_us ? timeout_us : max_us) * 1000;
}

static gpuserve_status wait(gpuserve_request *request, int64_t timeout_us, gpuserve_error *error)
{
    const uint64_t end = end_of_wait(timeout_us);
    gpuserve_status st;

    pthread_mutex_lock(&request->lock);
    if (!request->is_done && request->deadline_ns && (end == 0 || request->deadline_ns < end)) {
        wait_until(request, request->deadline_ns);
        if (!request->is_done) {
            pthread_mutex_unlock(&request->lock);
            gsv_batcher_expire(request->batcher, request);
            pthread_mutex_lock(&request->lock);
        }
    }
    wait_until(request, end);
    st = request->is_done ? request->status : GPUSERVE_E_TIMEOUT;
    if (st == GPUSERVE_E_TIMEOUT)
        gsv_fail(error, st, "the request has not completed yet");
    else if (st != GPUSERVE_OK)
        gsv_error_copy(error, &request->error);
    pthread_mutex_unlock(&request->lock);
    return st;
}

static gpuserve_status run(gpuserve_model *model, const gpuserve_job *job, gpuserve_error *error)
{
    gpuserve_request *request = NULL;
    gpuserve_status st = create(&request, model, job, NULL, NULL, true, error);

    if (st != GPUSERVE_OK)
        return st;
    st = wait(request, -1, error);
    gpuserve_request_free(&request);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_run(gpuserve_model *model, const gpuserve_job *given,
                                          gpuserve_error *error)
{
    gpuserve_job job;
    gpuserve_status st = read_job(model, given, &job, error);

    return st == GPUSERVE_OK ? run(model, &job, error) : st;
}

/* Run a job of one kind whose texts and output are the caller's arguments. */
static gpuserve_status run_texts(gpuserve_model *model, gpuserve_job *job, gpuserve_task task,
                                 const char *const *texts, size_t n_texts, float *output,
                                 size_t n_floats, gpuserve_error *error)
{
    job->task = (uint32_t)task;
    job->n_items = n_texts;
    job->texts = texts;
    job->output = output;
    job->output_capacity = n_floats;
    return run(model, job, error);
}

GPUSERVE_API gpuserve_status gpuserve_embed(gpuserve_model *model, const char *const *texts,
                                            size_t n_texts, float *vectors, size_t n_floats,
                                            const gpuserve_job *options, gpuserve_error *error)
{
    gpuserve_job job;
    gpuserve_status st = gsv_handle_check(model, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_job_options(&job, options,
                                  GSV_JOB_INPUT_OUTPUT | GSV_JOB_PAIRS | GSV_JOB_PRECISION,
                                  "gpuserve_embed", error);
    return st == GPUSERVE_OK ? run_texts(model, &job, GPUSERVE_TASK_EMBED, texts, n_texts, vectors,
                                         n_floats, error)
                             : st;
}

GPUSERVE_API gpuserve_status gpuserve_classify(gpuserve_model *model, const char *const *texts,
                                               size_t n_texts, float *scores, size_t n_floats,
                                               const gpuserve_job *options, gpuserve_error *error)
{
    gpuserve_job job;
    gpuserve_status st = gsv_handle_check(model, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_job_options(&job, options, GSV_JOB_INPUT_OUTPUT | GSV_JOB_PRECISION,
                                  "gpuserve_classify", error);
    return st == GPUSERVE_OK ? run_texts(model, &job, GPUSERVE_TASK_CLASSIFY, texts, n_texts,
                                         scores, n_floats, error)
                             : st;
}

/* --------------------------------------------------------------------------- wait and cancel */

static gpuserve_status check_request(const gpuserve_request *request, gpuserve_error *error)
{
    if (!request)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the request is NULL");
    return gsv_forked(&request->context->fork_check) ? gsv_fail_forked(error) : GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_wait(gpuserve_request *request, int64_t timeout_us,
                                           gpuserve_error *error)
{
    const gpuserve_status wrong = check_request(request, error);
    struct gsv_batch *batch = NULL;

    if (wrong != GPUSERVE_OK)
        return wrong;
    /* An idle worker wakes up slowly, so a blocking wait runs a queued batch inline. */
    if (timeout_us < 0 && !gsv_in_callback())
        batch = gsv_batcher_begin_queued_inline(request->batcher, request);
    if (batch)
        gsv_run_inline(batch);
    return wait(request, timeout_us, error);
}

GPUSERVE_API gpuserve_status gpuserve_cancel(gpuserve_request *request)
{
    const gpuserve_status st = check_request(request, NULL);

    if (st == GPUSERVE_OK)
        gsv_batcher_cancel(request->batcher, request);
    return st;
}

GPUSERVE_API void gpuserve_request_free(gpuserve_request **request)
{
    gpuserve_request *ended = request ? *request : NULL;
    bool in_own_callback;

    if (!ended)
        return;
    *request = NULL;
    /* A forked child has no worker to complete the request; the parent frees its own copy. */
    if (gsv_forked(&ended->context->fork_check))
        return;
    pthread_mutex_lock(&ended->lock);
    in_own_callback = ended->in_callback && pthread_equal(ended->callback_thread, pthread_self());
    ended->free_after_callback = in_own_callback;
    while (!in_own_callback && !ended->is_released)
        pthread_cond_wait(&ended->changed, &ended->lock);
    pthread_mutex_unlock(&ended->lock);
    if (!in_own_callback)
        gsv_request_destroy(ended);
}

GPUSERVE_API int gpuserve_completion_fd(gpuserve_model *model)
{
    if (gsv_handle_check(model, NULL) != GPUSERVE_OK)
        return -1;
    return gsv_completions_fd(model->completions);
}
