/*
 * batcher.c - one queue for each model; batcher.h says how it works, take.c picks the items.
 */
#include "lib/runtime/batcher.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_LEAST_MS 10
#define RETRY_MOST_MS 60000
#define RETRY_UNKNOWN_MS 100

gpuserve_status gsv_batcher_create(struct gsv_batcher **out,
                                   const struct gsv_batcher_options *options, gpuserve_error *error)
{
    struct gsv_batcher *batcher = gsv_alloc_array(1, sizeof(*batcher));

    *out = batcher;
    if (!batcher)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a queue");
    atomic_init(&batcher->n_owners, 1);
    batcher->options = *options;
    gsv_completions_ref(options->completions);
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_cond_init(&batcher->work, NULL);
    pthread_cond_init(&batcher->empty, NULL);
    return GPUSERVE_OK;
}

struct gsv_batcher *gsv_batcher_ref(struct gsv_batcher *batcher)
{
    atomic_fetch_add(&batcher->n_owners, 1);
    return batcher;
}

void gsv_batcher_unref(struct gsv_batcher **batcher)
{
    struct gsv_batcher *ended = *batcher;

    *batcher = NULL;
    if (!ended || atomic_fetch_sub(&ended->n_owners, 1) != 1)
        return;
    gsv_completions_unref(&ended->options.completions);
    pthread_cond_destroy(&ended->work);
    pthread_cond_destroy(&ended->empty);
    pthread_mutex_destroy(&ended->lock);
    free(ended);
}

/* --------------------------------------------------------------------------------- admission */

/* How long the queue takes to become half empty, by the speed of late. */
static uint32_t retry_after_ms(const struct gsv_batcher *batcher)
{
    const double speed = batcher->tokens_per_ns * batcher->options.n_workers;
    double ms;

    if (!(speed > 0))
        return RETRY_UNKNOWN_MS;
    ms = (double)batcher->charged_tokens / 2 / speed / 1e6;
    return ms < RETRY_LEAST_MS ? RETRY_LEAST_MS : ms > RETRY_MOST_MS ? RETRY_MOST_MS : (uint32_t)ms;
}

static gpuserve_status fail_busy(const struct gsv_batcher *batcher, uint64_t charge,
                                 gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_BUSY,
             "the queue holds %" PRIu64 " tokens of %" PRIu64 ", this request needs %" PRIu64,
             batcher->charged_tokens, batcher->options.max_queue_tokens, charge);
    gsv_hint(error, GPUSERVE_E_BUSY, "try again later, or raise max_queue_tokens");
    if (error && error->struct_size >= sizeof(*error))
        error->retry_after_ms = retry_after_ms(batcher);
    return GPUSERVE_E_BUSY;
}

gpuserve_status gsv_batcher_admit(struct gsv_batcher *batcher, uint64_t tokens, uint64_t *charge,
                                  gpuserve_error *error)
{
    const uint64_t room = batcher->options.max_queue_tokens;
    struct gsv_metrics *metrics = batcher->options.metrics;
    gpuserve_status st = GPUSERVE_OK;

    *charge = tokens < room / 2 ? tokens : room / 2;
    pthread_mutex_lock(&batcher->lock);
    if (batcher->is_closing) {
        st = gsv_fail(error, GPUSERVE_E_INVALID, "the model is being closed");
    } else if (*charge > room - batcher->charged_tokens) {
        st = fail_busy(batcher, *charge, error);
    } else {
        batcher->charged_tokens += *charge;
        batcher->n_requests++;
        atomic_fetch_add(&metrics->queued_tokens, *charge);
        atomic_fetch_add(&metrics->queued_requests, 1);
    }
    pthread_mutex_unlock(&batcher->lock);
    return st;
}

void gsv_batcher_uncharge(struct gsv_batcher *batcher, uint64_t charge)
{
    struct gsv_metrics *metrics = batcher->options.metrics;

    atomic_fetch_sub(&metrics->queued_tokens, charge);
    atomic_fetch_sub(&metrics->queued_requests, 1);
    pthread_mutex_lock(&batcher->lock);
    batcher->charged_tokens -= charge;
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_leave(struct gsv_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    if (--batcher->n_requests == 0)
        pthread_cond_broadcast(&batcher->empty);
    pthread_mutex_unlock(&batcher->lock);
}

/* --------------------------------------------------------------------------- ends of requests */

/* Hand a request to completion when nothing of it is left to do. */
static void end_if_over(gpuserve_request *request, gpuserve_request **list)
{
    if (request->is_ending || request->n_in_flight > 0 || request->ring_after)
        return;
    request->is_ending = true;
    request->next_to_complete = *list;
    *list = request;
}

/* Take out of the ring what will not be computed. */
static void drop_untaken(struct gsv_batcher *batcher, gpuserve_request *request)
{
    if (!request->ring_after)
        return;
    gsv_ring_remove(batcher, request);
    batcher->ready_tokens -= request->ready_tokens;
    batcher->n_raw_chunks -= request->n_chunks - request->next_raw;
    request->ready_tokens = 0;
    request->next_raw = request->n_chunks;
}

static void fail_request(struct gsv_batcher *batcher, gpuserve_request *request,
                         gpuserve_status status, const gpuserve_error *error)
{
    if (request->is_ending || request->failure != GPUSERVE_OK)
        return;
    request->failure = status;
    if (error)
        gsv_error_copy(&request->error, error);
    drop_untaken(batcher, request);
}

/* Wake as many workers as there are steps for, at most all. */
static void wake(struct gsv_batcher *batcher)
{
    const size_t least = 128; /* tokens that are worth a worker */
    size_t steps = batcher->n_raw_chunks + batcher->ready_tokens / least +
                   (batcher->ready_tokens % least != 0) + (batcher->to_complete != NULL);

    if (batcher->n_sleeping == 0)
        return;
    if (steps >= (size_t)batcher->n_sleeping) {
        pthread_cond_broadcast(&batcher->work);
        return;
    }
    while (steps-- > 0)
        pthread_cond_signal(&batcher->work);
}

void gsv_batcher_enqueue(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    request->n_untaken = request->job.n_items;
    for (size_t i = 0; i < request->n_chunks; i++) {
        if (request->chunks[i].state == GSV_CHUNK_READY)
            request->ready_tokens += request->chunks[i].n_tokens;
    }
    request->next_raw = request->ready_tokens > 0 ? request->n_chunks : 0;
    batcher->ready_tokens += request->ready_tokens;
    batcher->n_raw_chunks += request->n_chunks - request->next_raw;
    if (request->n_untaken > 0)
        gsv_ring_add(batcher, request);
    else
        end_if_over(request, &batcher->to_complete);
    wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_cancel(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    if (!request->is_ending) {
        request->failure = GPUSERVE_OK; /* cancelling wins over a failure nobody has seen */
        gsv_fail(&request->error, GPUSERVE_E_CANCELLED, "the request was cancelled");
        fail_request(batcher, request, GPUSERVE_E_CANCELLED, NULL);
        end_if_over(request, &batcher->to_complete);
        wake(batcher);
    }
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_close(struct gsv_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->is_closing = true;
    while (batcher->n_requests > 0)
        pthread_cond_wait(&batcher->empty, &batcher->lock);
    batcher->is_stopped = true;
    pthread_cond_broadcast(&batcher->work);
    pthread_mutex_unlock(&batcher->lock);
}

/* ------------------------------------------------------------------------------------- steps */

/* The next chunk to tokenize, from the request whose turn it is on. */
static void begin_encoding(struct gsv_batcher *batcher, struct gsv_step *step)
{
    gpuserve_request *request = batcher->ring;

    while (request->next_raw == request->n_chunks)
        request = request->ring_after;
    step->kind = GSV_STEP_ENCODE;
    step->request = request;
    step->chunk = &request->chunks[request->next_raw++];
    step->chunk->state = GSV_CHUNK_ENCODING;
    request->n_in_flight++;
    batcher->n_raw_chunks--;
}

/* Whether there is a step; the lock is held. */
static bool find_step(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_step *step)
{
    const size_t enough =
        (size_t)batcher->options.n_workers * (size_t)batcher->options.max_batch_tokens;

    if (batcher->to_complete) {
        step->kind = GSV_STEP_COMPLETE;
        step->request = batcher->to_complete;
        batcher->to_complete = step->request->next_to_complete;
        return true;
    }
    if (batcher->n_raw_chunks > 0 && batcher->ready_tokens < enough) {
        begin_encoding(batcher, step);
        return true;
    }
    if (batcher->ready_tokens > 0) {
        step->kind = GSV_STEP_RUN;
        gsv_take_batch(batcher, batch);
        batcher->n_running++;
        return true;
    }
    step->kind = GSV_STEP_STOP;
    return batcher->is_stopped;
}

struct gsv_step gsv_batcher_next(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    struct gsv_step step = { 0 };

    pthread_mutex_lock(&batcher->lock);
    while (!find_step(batcher, batch, &step)) {
        batcher->n_sleeping++;
        pthread_cond_wait(&batcher->work, &batcher->lock);
        batcher->n_sleeping--;
    }
    pthread_mutex_unlock(&batcher->lock);
    return step;
}

gpuserve_request *gsv_batcher_encoded(struct gsv_batcher *batcher, gpuserve_request *request,
                                      struct gsv_chunk *chunk, gpuserve_status status,
                                      const gpuserve_error *error)
{
    gpuserve_request *over = NULL;

    pthread_mutex_lock(&batcher->lock);
    request->n_in_flight--;
    if (status != GPUSERVE_OK) {
        fail_request(batcher, request, status, error);
    } else if (request->failure == GPUSERVE_OK) {
        chunk->state = GSV_CHUNK_READY;
        request->ready_tokens += chunk->n_tokens;
        batcher->ready_tokens += chunk->n_tokens;
        wake(batcher);
    }
    end_if_over(request, &over);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

static void learn_speed(struct gsv_batcher *batcher, int32_t n_tokens, uint64_t nanoseconds)
{
    const double now = (double)n_tokens / (double)(nanoseconds + 1);
    double *speed = &batcher->tokens_per_ns;

    *speed = *speed > 0 ? *speed + (now - *speed) / 8 : now;
}

gpuserve_request *gsv_batcher_ran(struct gsv_batcher *batcher, const struct gsv_batch *batch,
                                  uint64_t nanoseconds, gpuserve_status status,
                                  const gpuserve_error *error)
{
    gpuserve_request *over = NULL;

    pthread_mutex_lock(&batcher->lock);
    batcher->n_running--;
    learn_speed(batcher, batch->n_tokens, nanoseconds);
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];

        part->request->n_in_flight--;
        if (--part->chunk->n_left == 0)
            gsv_chunk_reset(part->chunk);
        if (status != GPUSERVE_OK)
            fail_request(batcher, part->request, status, error);
    }
    for (int32_t i = 0; i < batch->n_parts; i++)
        end_if_over(batch->parts[i].request, &over);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

void gsv_batcher_notify(struct gsv_batcher *batcher)
{
    gsv_completions_notify(batcher->options.completions);
}
