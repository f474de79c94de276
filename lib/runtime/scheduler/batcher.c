/*
 * batcher.c - the queue of one model: creation, enqueueing, cancellation, deadlines and closing.
 *
 * A request enters its priority class in gsv_enqueue() and leaves it in batch_formation.c, or here
 * when it fails. All state is under the batcher's lock. scheduler.c chooses a worker's next step;
 * admission.c limits the queue.
 */
#include "lib/runtime/scheduler/batcher.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/scheduler/batcher_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The in-flight table has twice as many buckets as items can be in flight. */
static bool make_tables(struct gsv_batcher *batcher, const struct gsv_batcher_options *options)
{
    const size_t max_items = (size_t)options->n_workers * (size_t)options->max_sequences;

    batcher->n_in_flight_buckets = 1;
    while (batcher->n_in_flight_buckets < 2 * max_items)
        batcher->n_in_flight_buckets *= 2;
    batcher->in_flight = gsv_alloc_array(batcher->n_in_flight_buckets, sizeof(*batcher->in_flight));
    batcher->replica_states =
        gsv_alloc_array((size_t)options->n_replicas, sizeof(*batcher->replica_states));
    batcher->n_live = options->n_replicas;
    return batcher->in_flight && batcher->replica_states;
}

static void batcher_free(struct gsv_batcher *batcher)
{
    if (!batcher)
        return;
    free(batcher->in_flight);
    free(batcher->replica_states);
    free(batcher);
}

gpuserve_status gsv_batcher_create(struct gsv_batcher **out,
                                   const struct gsv_batcher_options *options, gpuserve_error *error)
{
    struct gsv_batcher *batcher = gsv_alloc_array(1, sizeof(*batcher));
    pthread_condattr_t monotonic;

    *out = batcher;
    if (!batcher || !make_tables(batcher, options)) {
        batcher_free(batcher);
        *out = NULL;
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a queue");
    }
    atomic_init(&batcher->n_owners, 1);
    batcher->n_since_small = UINT32_MAX; /* none yet */
    batcher->options = *options;
    gsv_completions_ref(options->completions);
    gsv_list_init(&batcher->large);
    gsv_list_init(&batcher->waiting);
    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++) {
        gsv_list_init(&batcher->classes[i].small);
        gsv_list_init(&batcher->classes[i].ready);
        gsv_list_init(&batcher->classes[i].raw);
    }
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&batcher->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
    batcher_free(ended);
}

/* ---------------------------------------------------------------------------- end of requests */

void gsv_end_if_over(gpuserve_request *request, gpuserve_request **list)
{
    if (request->is_ending || request->n_in_flight > 0 ||
        (request->n_untaken > 0 && request->failure == GPUSERVE_OK))
        return;
    request->is_ending = true;
    request->next_to_complete = *list;
    *list = request;
}

/* Remove the request from its class; its untaken items are not computed. */
static void drop_untaken(struct gsv_batcher *batcher, gpuserve_request *request)
{
    struct gsv_priority_class *class = &batcher->classes[request->job.priority];
    const size_t n_raw = request->n_chunks - request->next_raw;

    gsv_list_remove(&request->ready);
    gsv_list_remove(&request->raw);
    class->ready_tokens -= request->ready_tokens;
    batcher->ready_tokens -= request->ready_tokens;
    class->n_raw_chunks -= n_raw;
    batcher->n_raw_chunks -= n_raw;
    request->ready_tokens = 0;
    request->next_raw = request->n_chunks;
}

void gsv_fail_request(struct gsv_batcher *batcher, gpuserve_request *request,
                      gpuserve_status status, const gpuserve_error *error)
{
    if (request->is_ending || request->failure != GPUSERVE_OK)
        return;
    request->failure = status;
    if (error)
        gsv_error_copy(&request->error, error);
    drop_untaken(batcher, request);
}

void gsv_expire(struct gsv_batcher *batcher, gpuserve_request *request)
{
    if (request->is_ending || request->failure != GPUSERVE_OK || request->n_untaken == 0)
        return;
    gsv_fail(&request->error, GPUSERVE_E_EXPIRED,
             "the deadline, %" PRIi64
             " us after submission, passed before %zu of %zu items started",
             request->job.deadline_us, request->n_untaken, request->job.n_items);
    gsv_fail_request(batcher, request, GPUSERVE_E_EXPIRED, NULL);
    gsv_end_if_over(request, &batcher->to_complete);
}

static bool is_any_idle(const struct gsv_batcher *batcher)
{
    for (int32_t i = 0; i < batcher->options.n_replicas; i++) {
        if (!batcher->replica_states[i].is_out && batcher->replica_states[i].n_running == 0)
            return true;
    }
    return false;
}

bool gsv_holds_back(const struct gsv_batcher *batcher)
{
    return batcher->options.max_wait_ns > 0 && !batcher->is_closing &&
           batcher->ready_tokens < (size_t)batcher->options.max_batch_tokens &&
           !is_any_idle(batcher) && gsv_now_ns() < batcher->due_ns;
}

void gsv_wake(struct gsv_batcher *batcher)
{
    const size_t batches = (batcher->ready_tokens + GSV_MIN_TOKENS - 1) / GSV_MIN_TOKENS;
    const size_t n_free = (size_t)gsv_n_free(batcher);
    size_t steps = (gsv_has_enough(batcher) ? 0 : batcher->n_raw_chunks) +
                   (batches < n_free ? batches : n_free) + (batcher->to_complete != NULL) +
                   (batcher->retries != NULL);

    if (batcher->n_sleeping == 0)
        return;
    /* A sleeping worker wakes up at due_ns. */
    if (batcher->n_holding > 0 && batcher->n_raw_chunks == 0 && !batcher->to_complete &&
        !batcher->retries && gsv_holds_back(batcher))
        return;
    if (steps >= (size_t)batcher->n_sleeping) {
        pthread_cond_broadcast(&batcher->work);
        return;
    }
    while (steps-- > 0)
        pthread_cond_signal(&batcher->work);
}

void gsv_enqueue(struct gsv_batcher *batcher, gpuserve_request *request)
{
    struct gsv_priority_class *class = &batcher->classes[request->job.priority];
    size_t tokens = 0, n_ready = 0, n_raw;

    request->n_untaken = request->job.n_items;
    if (!request->reservation.is_small)
        gsv_list_append(&batcher->large, &request->reservation.link);
    for (; n_ready < request->n_chunks && request->chunks[n_ready].state == GSV_CHUNK_READY;
         n_ready++) {
        request->n_untaken -= request->chunks[n_ready].n_cached;
        tokens += gsv_coalesce_chunk(batcher, request, &request->chunks[n_ready]);
    }
    request->next_raw = n_ready;
    n_raw = request->n_chunks - request->next_raw;
    gsv_add_ready(batcher, request, tokens);
    if (n_raw > 0)
        gsv_list_append(&class->raw, &request->raw);
    class->n_raw_chunks += n_raw;
    batcher->n_raw_chunks += n_raw;
    if (batcher->broken.status != GPUSERVE_OK)
        gsv_fail_request(batcher, request, (gpuserve_status)batcher->broken.status,
                         &batcher->broken);
    gsv_end_if_over(request, &batcher->to_complete);
}

void gsv_batcher_enqueue(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    gsv_enqueue(batcher, request);
    gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_defer(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    request->next_to_complete = batcher->to_complete;
    batcher->to_complete = request;
    gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_cancel(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    if (!request->is_ending) {
        request->failure = GPUSERVE_OK; /* cancellation replaces an unreported failure */
        gsv_fail(&request->error, GPUSERVE_E_CANCELLED, "the request was cancelled");
        gsv_fail_request(batcher, request, GPUSERVE_E_CANCELLED, NULL);
        gsv_end_if_over(request, &batcher->to_complete);
        gsv_wake(batcher);
    }
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_expire(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    gsv_expire(batcher, request);
    gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

bool gsv_batcher_is_idle(struct gsv_batcher *batcher)
{
    bool is_idle;

    pthread_mutex_lock(&batcher->lock);
    is_idle = batcher->n_requests == 0;
    pthread_mutex_unlock(&batcher->lock);
    return is_idle;
}

void gsv_batcher_close(struct gsv_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->is_closing = true;
    pthread_cond_broadcast(&batcher->work); /* partial batches stop waiting */
    while (batcher->n_requests > 0)
        pthread_cond_wait(&batcher->empty, &batcher->lock);
    batcher->is_stopped = true;
    pthread_cond_broadcast(&batcher->work);
    pthread_mutex_unlock(&batcher->lock);
}

/* Fail all requests in a list of a class; each leaves both of its lists. */
static void fail_all(struct gsv_batcher *batcher, struct gsv_link *list,
                     gpuserve_request *(*of)(struct gsv_link *), const gpuserve_error *error)
{
    while (!gsv_list_is_empty(list)) {
        gpuserve_request *request = of(list->after);

        gsv_fail_request(batcher, request, (gpuserve_status)error->status, error);
        gsv_end_if_over(request, &batcher->to_complete);
    }
}

void gsv_batcher_break(struct gsv_batcher *batcher, const gpuserve_error *error)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->broken = *error;
    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++) {
        fail_all(batcher, &batcher->classes[i].small, gsv_of_ready, error);
        fail_all(batcher, &batcher->classes[i].ready, gsv_of_ready, error);
        fail_all(batcher, &batcher->classes[i].raw, gsv_of_raw, error);
    }
    while (batcher->retries) {
        struct gsv_batch *batch = batcher->retries;

        batcher->retries = batch->next_free;
        gsv_count_back(batcher, batch, (gpuserve_status)error->status, error,
                       &batcher->to_complete);
    }
    gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_notify(struct gsv_batcher *batcher)
{
    gsv_completions_notify(batcher->options.completions);
}
