/*
 * batcher.c - one queue for each model; batcher.h says how it works, take.c picks the items.
 */
#include "lib/runtime/batcher.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/clock.h"
#include "lib/runtime/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Twice as many buckets as there can be items in flight. */
static bool make_flights(struct gsv_batcher *batcher, const struct gsv_batcher_options *options)
{
    const size_t most = (size_t)options->n_workers * (size_t)options->max_sequences;

    batcher->n_flights = 1;
    while (batcher->n_flights < 2 * most)
        batcher->n_flights *= 2;
    batcher->flights = gsv_alloc_array(batcher->n_flights, sizeof(*batcher->flights));
    return batcher->flights != NULL;
}

gpuserve_status gsv_batcher_create(struct gsv_batcher **out,
                                   const struct gsv_batcher_options *options, gpuserve_error *error)
{
    struct gsv_batcher *batcher = gsv_alloc_array(1, sizeof(*batcher));

    *out = batcher;
    if (!batcher || !make_flights(batcher, options)) {
        free(batcher);
        *out = NULL;
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a queue");
    }
    atomic_init(&batcher->n_owners, 1);
    batcher->options = *options;
    gsv_completions_ref(options->completions);
    for (size_t i = 0; i < GSV_LANES; i++) {
        gsv_list_init(&batcher->lanes[i].ready);
        gsv_list_init(&batcher->lanes[i].raw);
    }
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
    free(ended->flights);
    pthread_cond_destroy(&ended->work);
    pthread_cond_destroy(&ended->empty);
    pthread_mutex_destroy(&ended->lock);
    free(ended);
}

/* --------------------------------------------------------------------------- ends of requests */

/* Hand a request to completion when nothing of it is left to do. */
static void end_if_over(gpuserve_request *request, gpuserve_request **list)
{
    if (request->is_ending || request->n_in_flight > 0 ||
        (request->n_untaken > 0 && request->failure == GPUSERVE_OK))
        return;
    request->is_ending = true;
    request->next_to_complete = *list;
    *list = request;
}

/* Take out of its lane what will not be computed. */
static void drop_untaken(struct gsv_batcher *batcher, gpuserve_request *request)
{
    struct gsv_lane *lane = &batcher->lanes[request->job.priority];
    const size_t n_raw = request->n_chunks - request->next_raw;

    gsv_list_remove(&request->ready);
    gsv_list_remove(&request->raw);
    lane->ready_tokens -= request->ready_tokens;
    batcher->ready_tokens -= request->ready_tokens;
    lane->n_raw_chunks -= n_raw;
    batcher->n_raw_chunks -= n_raw;
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

void gsv_expire(struct gsv_batcher *batcher, gpuserve_request *request)
{
    if (request->is_ending || request->failure != GPUSERVE_OK || request->n_untaken == 0)
        return;
    gsv_fail(&request->error, GPUSERVE_E_EXPIRED,
             "the deadline, %" PRIi64
             " us after submission, passed with %zu of %zu items not begun",
             request->job.deadline_us, request->n_untaken, request->job.n_items);
    fail_request(batcher, request, GPUSERVE_E_EXPIRED, NULL);
    end_if_over(request, &batcher->to_complete);
}

/* Wake as many workers as there are steps for, at most all. */
static void wake(struct gsv_batcher *batcher)
{
    const size_t least = GSV_LEAST_TOKENS;
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
    struct gsv_lane *lane = &batcher->lanes[request->job.priority];
    size_t tokens = 0, n_ready = 0, n_raw;

    pthread_mutex_lock(&batcher->lock);
    request->n_untaken = request->job.n_items;
    for (; n_ready < request->n_chunks && request->chunks[n_ready].state == GSV_CHUNK_READY;
         n_ready++) {
        request->n_untaken -= request->chunks[n_ready].n_cached;
        tokens += gsv_board(batcher, request, &request->chunks[n_ready]);
    }
    request->next_raw = n_ready;
    n_raw = request->n_chunks - request->next_raw;
    gsv_add_ready(batcher, request, tokens);
    if (n_raw > 0)
        gsv_list_append(&lane->raw, &request->raw);
    lane->n_raw_chunks += n_raw;
    batcher->n_raw_chunks += n_raw;
    if (batcher->broken.status != GPUSERVE_OK)
        fail_request(batcher, request, (gpuserve_status)batcher->broken.status, &batcher->broken);
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

void gsv_batcher_expire(struct gsv_batcher *batcher, gpuserve_request *request)
{
    pthread_mutex_lock(&batcher->lock);
    gsv_expire(batcher, request);
    wake(batcher);
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
    while (batcher->n_requests > 0)
        pthread_cond_wait(&batcher->empty, &batcher->lock);
    batcher->is_stopped = true;
    pthread_cond_broadcast(&batcher->work);
    pthread_mutex_unlock(&batcher->lock);
}

/* All of a list of a lane; each goes from both of its lists. */
static void fail_all(struct gsv_batcher *batcher, struct gsv_link *list,
                     gpuserve_request *(*of)(struct gsv_link *), const gpuserve_error *error)
{
    while (!gsv_list_is_empty(list)) {
        gpuserve_request *request = of(list->after);

        fail_request(batcher, request, (gpuserve_status)error->status, error);
        end_if_over(request, &batcher->to_complete);
    }
}

void gsv_batcher_break(struct gsv_batcher *batcher, const gpuserve_error *error)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->broken = *error;
    for (size_t i = 0; i < GSV_LANES; i++) {
        fail_all(batcher, &batcher->lanes[i].ready, gsv_of_ready, error);
        fail_all(batcher, &batcher->lanes[i].raw, gsv_of_raw, error);
    }
    wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
}

/* ------------------------------------------------------------------------------------- steps */

/* The next chunk to tokenize, from the request whose turn it is; false when it has expired. */
static bool begin_encoding(struct gsv_batcher *batcher, struct gsv_step *step)
{
    struct gsv_lane *lane = gsv_next_raw_lane(batcher);
    gpuserve_request *request = gsv_of_raw(lane->raw.after);

    if (gsv_is_expired(request, gsv_now_ns())) {
        gsv_expire(batcher, request);
        return false;
    }
    step->kind = GSV_STEP_ENCODE;
    step->request = request;
    step->chunk = &request->chunks[request->next_raw++];
    step->chunk->state = GSV_CHUNK_ENCODING;
    request->n_in_flight++;
    lane->n_raw_chunks--;
    batcher->n_raw_chunks--;
    gsv_list_remove(&request->raw);
    if (request->next_raw < request->n_chunks)
        gsv_list_append(&lane->raw, &request->raw);
    return true;
}

/* A step that needs no core; the lock is held. */
static bool find_end(struct gsv_batcher *batcher, struct gsv_step *step)
{
    if (batcher->to_complete) {
        step->kind = GSV_STEP_COMPLETE;
        step->request = batcher->to_complete;
        batcher->to_complete = step->request->next_to_complete;
        return true;
    }
    step->kind = GSV_STEP_STOP;
    return batcher->is_stopped;
}

static bool has_work(const struct gsv_batcher *batcher)
{
    return batcher->n_raw_chunks > 0 || batcher->ready_tokens > 0;
}

/* A step that needs a core, which the worker has; the lock is held. */
static bool find_work(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_step *step)
{
    const size_t enough =
        (size_t)batcher->options.n_workers * (size_t)batcher->options.max_batch_tokens;

    while (has_work(batcher)) {
        if (batcher->n_raw_chunks > 0 && batcher->ready_tokens < enough) {
            if (begin_encoding(batcher, step))
                return true;
            continue; /* it had expired */
        }
        gsv_take_batch(batcher, batch);
        if (batch->n_parts == 0)
            continue; /* likewise, or all rode along */
        step->kind = GSV_STEP_RUN;
        batcher->n_running++;
        return true;
    }
    return false;
}

/* Give the core back after a step, or for want of one. */
static void leave_core(struct gsv_batcher *batcher, uint64_t since_ns, bool is_wide)
{
    if (batcher->options.cores)
        gsv_cores_leave(batcher->options.cores, &batcher->share,
                        is_wide ? batcher->options.n_workers : 1, gsv_now_ns() - since_ns);
}

struct gsv_step gsv_batcher_next(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    struct gsv_step step = { 0 };
    bool has_core = !batcher->options.cores, has_step = false;

    pthread_mutex_lock(&batcher->lock);
    while (!has_step) {
        if (find_end(batcher, &step) || (has_core && find_work(batcher, batch, &step))) {
            has_step = true;
        } else if (has_work(batcher)) {
            pthread_mutex_unlock(&batcher->lock);
            gsv_cores_enter(batcher->options.cores, &batcher->share);
            has_core = true;
            pthread_mutex_lock(&batcher->lock);
        } else {
            if (has_core)
                leave_core(batcher, gsv_now_ns(), false);
            has_core = !batcher->options.cores;
            batcher->n_sleeping++;
            pthread_cond_wait(&batcher->work, &batcher->lock);
            batcher->n_sleeping--;
        }
    }
    pthread_mutex_unlock(&batcher->lock);
    if (has_core && (step.kind == GSV_STEP_COMPLETE || step.kind == GSV_STEP_STOP))
        leave_core(batcher, gsv_now_ns(), false);
    step.begun_ns = gsv_now_ns();
    return step;
}

gpuserve_request *gsv_batcher_encoded(struct gsv_batcher *batcher, const struct gsv_step *step,
                                      gpuserve_status status, const gpuserve_error *error)
{
    gpuserve_request *request = step->request, *over = NULL;
    struct gsv_chunk *chunk = step->chunk;

    leave_core(batcher, step->begun_ns, false);
    pthread_mutex_lock(&batcher->lock);
    request->n_in_flight--;
    if (status != GPUSERVE_OK) {
        fail_request(batcher, request, status, error);
    } else if (request->failure == GPUSERVE_OK) {
        chunk->state = GSV_CHUNK_READY;
        request->n_untaken -= chunk->n_cached;
        gsv_add_ready(batcher, request, gsv_board(batcher, request, chunk));
        wake(batcher);
    }
    end_if_over(request, &over);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

/* A wide batch has all workers for itself, a narrow one a worker. */
static void learn_speed(struct gsv_batcher *batcher, const struct gsv_batch *batch,
                        uint64_t nanoseconds)
{
    const int32_t share = batch->is_wide ? 1 : batcher->options.n_workers;
    const double now = (double)batch->n_tokens * share / (double)(nanoseconds + 1);
    double *speed = &batcher->tokens_per_ns;

    *speed = *speed > 0 ? *speed + (now - *speed) / 8 : now;
}

void gsv_batcher_land(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    pthread_mutex_lock(&batcher->lock);
    for (int32_t i = 0; i < batch->n_parts; i++)
        gsv_flight_remove(batcher, &batch->parts[i]);
    pthread_mutex_unlock(&batcher->lock);
}

/* Of the parts, then of the riders. */
static const struct gsv_part *part_at(const struct gsv_batch *batch, int32_t i)
{
    return i < batch->n_parts ? &batch->parts[i] : &batch->riders[i - batch->n_parts];
}

gpuserve_request *gsv_batcher_ran(struct gsv_batcher *batcher, const struct gsv_batch *batch,
                                  uint64_t nanoseconds, gpuserve_status status,
                                  const gpuserve_error *error)
{
    gpuserve_request *over = NULL;

    leave_core(batcher, batch->taken_ns, batch->is_wide);
    pthread_mutex_lock(&batcher->lock);
    batcher->n_running--;
    learn_speed(batcher, batch, nanoseconds);
    for (int32_t i = 0; i < batch->n_parts + batch->n_riders; i++) {
        const struct gsv_part *part = part_at(batch, i);

        part->request->n_in_flight--;
        part->request->last_run_ns = batch->taken_ns + nanoseconds;
        if (--part->chunk->n_left == 0)
            gsv_chunk_reset(part->chunk);
        if (status != GPUSERVE_OK)
            fail_request(batcher, part->request, status, error);
    }
    for (int32_t i = 0; i < batch->n_parts + batch->n_riders; i++)
        end_if_over(part_at(batch, i)->request, &over);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

void gsv_batcher_notify(struct gsv_batcher *batcher)
{
    gsv_completions_notify(batcher->options.completions);
}
