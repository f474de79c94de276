/*
 * scheduler.c - chooses the next step of a worker, lets a calling thread run a batch inline, and
 * counts finished steps back.
 *
 * A worker takes the first step that applies:
 *
 *   1. complete a request that ended in the queue (cancelled, expired, empty, failed);
 *   2. retry a batch whose replica was lost;
 *   3. tokenize a chunk of a large request, while fewer tokens are ready than all batches can take;
 *   4. form and run a batch, on the replica with the fewest running batches;
 *   5. sleep.
 *
 * Steps 2 to 4 need a core on a CPU (concurrency.h). A model on a GPU has more workers than
 * batches, so that tokenization uses the CPU while the device computes.
 *
 * Inline execution: a blocking caller that finds the CPU idle runs the batch on its own thread, so
 * no other thread wakes. A caller that submitted first and then waits without a limit does the same
 * if no worker was faster. An inline caller leaves requests with a callback to a worker.
 *
 * The scheduler checks a deadline when it reaches the request. A waiting caller checks it when it
 * passes.
 */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/scheduler/batcher_internal.h"

#include <math.h>
#include <time.h>

#define MIN_WEIGHT (1.0 / 16) /* lowest weight of a batch in the average of the throughput */
#define FIRST_BATCHES 16      /* that have equal weights in it */

/* Take the next chunk to tokenize, round robin; false if its request has expired. */
static bool begin_encoding(struct gsv_batcher *batcher, struct gsv_step *step)
{
    struct gsv_priority_class *class = gsv_next_raw_class(batcher);
    gpuserve_request *request = gsv_of_raw(class->raw.after);

    if (gsv_is_expired(request, gsv_now_ns())) {
        gsv_expire(batcher, request);
        return false;
    }
    step->kind = GSV_STEP_ENCODE;
    step->request = request;
    step->chunk = &request->chunks[request->next_raw++];
    step->chunk->state = GSV_CHUNK_ENCODING;
    request->n_in_flight++;
    class->n_raw_chunks--;
    batcher->n_raw_chunks--;
    gsv_list_remove(&request->raw);
    if (request->next_raw < request->n_chunks)
        gsv_list_append(&class->raw, &request->raw);
    return true;
}

/* Find a step that needs no core; the lock is held. */
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

/* A step that needs a core is available. */
static bool has_work(const struct gsv_batcher *batcher)
{
    return batcher->n_raw_chunks > 0 || (batcher->retries && batcher->free_batches) ||
           (batcher->ready_tokens > 0 && batcher->free_batches && !gsv_holds_back(batcher) &&
            !gsv_waits_for_batch(batcher));
}

/* ----------------------------------------------------------------------------------- batches */

void gsv_batcher_add_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    struct gsv_replica_state *replica_state = &batcher->replica_states[batch->replica];

    pthread_mutex_lock(&batcher->lock);
    if (!replica_state->is_out) {
        replica_state->n_slots++;
        batcher->n_slots++;
        batch->next_free = batcher->free_batches;
        batcher->free_batches = batch;
    }
    pthread_mutex_unlock(&batcher->lock);
}

struct gsv_batch *gsv_pop_free_batch(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_batch **best = &batcher->free_batches, *batch;

    for (struct gsv_batch **link = best; *link; link = &(*link)->next_free) {
        const int32_t busy = batcher->replica_states[(*link)->replica].n_running;
        const int32_t min_busy = batcher->replica_states[(*best)->replica].n_running;

        if (busy < min_busy ||
            (busy == min_busy && (*best)->group != group && (*link)->group == group))
            best = link;
    }
    batch = *best;
    *best = batch->next_free;
    return batch;
}

/* Form a batch and count it as running; NULL if all ready items expired or were coalesced. */
static struct gsv_batch *begin_batch(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_batch *batch = gsv_pop_free_batch(batcher, group);

    gsv_form_batch(batcher, batch);
    if (batch->n_parts == 0) {
        batch->next_free = batcher->free_batches;
        batcher->free_batches = batch;
        return NULL;
    }
    batcher->replica_states[batch->replica].n_running++;
    batcher->n_running++;
    return batch;
}

static void end_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    struct gsv_replica_state *replica_state = &batcher->replica_states[batch->replica];

    replica_state->n_running--;
    batcher->n_running--;
    if (replica_state->is_out)
        return;
    batch->next_free = batcher->free_batches;
    batcher->free_batches = batch;
}

/* -------------------------------------------------------------------------------------- steps */

/* Find a step that needs a core, which the worker holds; the lock is held. */
static bool find_work(struct gsv_batcher *batcher, int32_t group, struct gsv_step *step)
{
    while (has_work(batcher)) {
        if (batcher->retries && batcher->free_batches) {
            step->batch = gsv_begin_retry(batcher, group);
            step->kind = GSV_STEP_RUN;
            return true;
        }
        if (batcher->n_raw_chunks > 0 && !gsv_has_enough(batcher)) {
            if (begin_encoding(batcher, step))
                return true;
            continue; /* the request had expired */
        }
        if (!batcher->free_batches)
            return false; /* the next worker that frees a batch takes the ready items */
        step->batch = begin_batch(batcher, group);
        if (!step->batch)
            continue;
        if (batcher->n_raw_chunks > 0)
            gsv_wake(batcher); /* workers that slept while enough tokens were ready */
        step->kind = GSV_STEP_RUN;
        return true;
    }
    return false;
}

/* Release the core after a step, or if no step needs it. */
static void leave_core(struct gsv_batcher *batcher, uint64_t since_ns, bool is_wide)
{
    if (batcher->options.cores)
        gsv_cores_leave(batcher->options.cores, &batcher->share,
                        is_wide ? batcher->options.n_workers : 1, gsv_now_ns() - since_ns);
}

/* Sleep until woken, or until the ready items are due. */
static void sleep_for_work(struct gsv_batcher *batcher)
{
    const bool holds = batcher->ready_tokens > 0 && batcher->free_batches &&
                       batcher->n_holding < gsv_n_free(batcher) && gsv_holds_back(batcher);

    batcher->n_sleeping++;
    if (holds) {
        const struct timespec due = { .tv_sec = (time_t)(batcher->due_ns / 1000000000),
                                      .tv_nsec = (long)(batcher->due_ns % 1000000000) };

        batcher->n_holding++;
        pthread_cond_timedwait(&batcher->work, &batcher->lock, &due);
        batcher->n_holding--;
    } else {
        pthread_cond_wait(&batcher->work, &batcher->lock);
    }
    batcher->n_sleeping--;
}

struct gsv_step gsv_batcher_next(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_step step = { 0 };
    bool has_core = !batcher->options.cores, has_step = false;

    pthread_mutex_lock(&batcher->lock);
    while (!has_step) {
        if (find_end(batcher, &step) || (has_core && find_work(batcher, group, &step))) {
            has_step = true;
        } else if (!has_core && has_work(batcher)) {
            pthread_mutex_unlock(&batcher->lock);
            gsv_cores_enter(batcher->options.cores, &batcher->share);
            has_core = true;
            pthread_mutex_lock(&batcher->lock);
        } else if (!batcher->to_complete) { /* a request that just expired is in it */
            if (has_core)
                leave_core(batcher, gsv_now_ns(), false);
            has_core = !batcher->options.cores;
            sleep_for_work(batcher);
        }
    }
    pthread_mutex_unlock(&batcher->lock);
    if (has_core && (step.kind == GSV_STEP_COMPLETE || step.kind == GSV_STEP_STOP))
        leave_core(batcher, gsv_now_ns(), false);
    step.begun_ns = gsv_now_ns();
    return step;
}

/* A caller may run inline: no batch runs, and only this request's items are ready, if it is queued
 * already. The lock is held. */
static bool may_lead(const struct gsv_batcher *batcher, const gpuserve_request *request)
{
    return batcher->options.cores && batcher->n_running == 0 &&
           batcher->ready_tokens == request->ready_tokens && batcher->n_raw_chunks == 0 &&
           batcher->free_batches;
}

/* Form a batch for an inline caller, which holds a core; the lock is held. */
static struct gsv_batch *begin_inline_batch(struct gsv_batcher *batcher)
{
    struct gsv_batch *batch = begin_batch(batcher, 0); /* a caller belongs to no core group */

    if (!batch)
        leave_core(batcher, gsv_now_ns(), false);
    else
        batch->is_inline = true;
    return batch;
}

struct gsv_batch *gsv_batcher_begin_inline(struct gsv_batcher *batcher, gpuserve_request *request)
{
    struct gsv_batch *batch = NULL;
    bool may_run_inline;

    pthread_mutex_lock(&batcher->lock);
    may_run_inline = may_lead(batcher, request);
    gsv_enqueue(batcher, request);
    if (may_run_inline && request->ready_tokens > 0 && batcher->n_raw_chunks == 0 &&
        gsv_cores_try_enter(batcher->options.cores, &batcher->share))
        batch = begin_inline_batch(batcher);
    if (batcher->ready_tokens > 0 || batcher->n_raw_chunks > 0 || batcher->to_complete)
        gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
    return batch;
}

/* A worker was woken for the request. If any thread holds a core, that worker is about to take the
 * request, or the batch could not have all cores. */
struct gsv_batch *gsv_batcher_begin_queued_inline(struct gsv_batcher *batcher,
                                                  gpuserve_request *request)
{
    struct gsv_batch *batch = NULL;

    pthread_mutex_lock(&batcher->lock);
    if (request->ready_tokens > 0 && may_lead(batcher, request) &&
        gsv_cores_try_enter_first(batcher->options.cores, &batcher->share))
        batch = begin_inline_batch(batcher);
    pthread_mutex_unlock(&batcher->lock);
    return batch;
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
        gsv_fail_request(batcher, request, status, error);
    } else if (request->failure == GPUSERVE_OK) {
        chunk->state = GSV_CHUNK_READY;
        request->n_untaken -= chunk->n_cached;
        gsv_add_ready(batcher, request, gsv_coalesce_chunk(batcher, request, chunk));
        gsv_wake(batcher);
    }
    gsv_end_if_over(request, &over);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

/* Exponential moving average of the throughput of all workers. A wide batch uses all workers, a
 * narrow one a single slot. A partial batch gets less weight, since it predicts full batches
 * poorly. The very first one does not count: it also loads code and data, and may be a hundred
 * times slower than the next ones. Those have equal weights, since some of them load code too. */
static void learn_speed(struct gsv_batcher *batcher, const struct gsv_batch *batch,
                        uint64_t nanoseconds)
{
    const int32_t share = batch->is_wide ? 1 : batcher->n_slots;
    const double now = (double)batch->n_tokens * share / (double)(nanoseconds + 1);
    const double full = (double)batch->n_tokens / batcher->options.max_batch_tokens;
    double weight = (full < 1 ? full > MIN_WEIGHT ? full : MIN_WEIGHT : 1) / 8;
    double *speed = &batcher->tokens_per_ns;

    if (batcher->n_batches <= FIRST_BATCHES && batcher->n_batches++ == 0)
        return;
    if (batcher->n_batches <= FIRST_BATCHES)
        weight = fmax(weight, 1.0 / (batcher->n_batches - 1));
    *speed += (now - *speed) * weight;
}

void gsv_batcher_end_coalescing(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    pthread_mutex_lock(&batcher->lock);
    for (int32_t i = 0; i < batch->n_parts; i++)
        gsv_in_flight_remove(batcher, &batch->parts[i]);
    pthread_mutex_unlock(&batcher->lock);
}

/* Parts first, then coalesced items. */
static const struct gsv_part *part_at(const struct gsv_batch *batch, int32_t i)
{
    return i < batch->n_parts ? &batch->parts[i] : &batch->coalesced[i - batch->n_parts];
}

/* Append the batch to the trace of a request, once. *id is given by the first such request. */
static void trace_batch(const struct gsv_batch *batch, gpuserve_request *request, uint64_t end_ns,
                        uint64_t *id)
{
    static _Atomic uint64_t n_traced;
    gpuserve_trace *trace = request->job.trace;
    gpuserve_trace_batch *to;

    if (*id == 0)
        *id = atomic_fetch_add(&n_traced, 1) + 1;
    if (request->traced_batch == *id)
        return;
    request->traced_batch = *id;
    if (trace->n_batches++ >= trace->capacity)
        return;
    to = &trace->batches[trace->n_batches - 1];
    *to = (gpuserve_trace_batch){ .id = *id,
                                  .begin_ns = batch->formed_ns,
                                  .end_ns = end_ns,
                                  .n_items = (uint32_t)batch->n_parts,
                                  .n_tokens = (uint32_t)batch->n_tokens };
    gsv_plan_selector(request->plan, UINT64_C(1) << batch->replica, to->device, sizeof(to->device));
}

void gsv_count_back(struct gsv_batcher *batcher, struct gsv_batch *batch, gpuserve_status status,
                    const gpuserve_error *error, gpuserve_request **list)
{
    /* Under the lock: a text that was coalesced with this batch a moment ago started before it. */
    const uint64_t end_ns = gsv_now_ns();
    uint64_t trace_id = 0;

    for (int32_t i = 0; i < batch->n_parts + batch->n_coalesced; i++) {
        const struct gsv_part *part = part_at(batch, i);

        if (part->request->job.trace)
            trace_batch(batch, part->request, end_ns, &trace_id);
        part->request->n_in_flight--;
        part->request->last_run_ns = end_ns;
        part->request->replicas |= UINT64_C(1) << batch->replica;
        if (--part->chunk->n_left == 0)
            gsv_chunk_reset(part->chunk);
        if (status != GPUSERVE_OK)
            gsv_fail_request(batcher, part->request, status, error);
    }
    for (int32_t i = 0; i < batch->n_parts + batch->n_coalesced; i++)
        gsv_end_if_over(part_at(batch, i)->request, list);
}

gpuserve_request *gsv_batcher_ran(struct gsv_batcher *batcher, struct gsv_batch *batch,
                                  uint64_t nanoseconds, gpuserve_status status,
                                  const gpuserve_error *error)
{
    gpuserve_request *over = NULL;

    leave_core(batcher, batch->formed_ns, batch->is_wide);
    pthread_mutex_lock(&batcher->lock);
    end_batch(batcher, batch);
    if (!gsv_leave_for_retry(batcher, batch, status)) {
        learn_speed(batcher, batch, nanoseconds);
        gsv_learn_drain(batcher, batch);
        gsv_count_back(batcher, batch, status, error, &over);
    }
    /* A worker continues by itself, but completes requests first: another one may be free. */
    if ((batch->is_inline || batcher->options.n_threads > batcher->options.n_workers ||
         batcher->options.prefers_wide) &&
        has_work(batcher))
        gsv_wake(batcher);
    pthread_mutex_unlock(&batcher->lock);
    return over;
}

/* ------------------------------------------------------------------------- removal of a replica
 */
/* Failover: the scheduler removes the replica of a lost device, and the model continues on its
 * other replicas. The replica's free batches leave the free list, so no batch starts there. Its
 * running batches come back with a failure. Each one either fails its requests, or waits in
 * `retries` for a free batch of another replica and runs once more. */

bool gsv_batcher_retire(struct gsv_batcher *batcher, int32_t replica)
{
    struct gsv_replica_state *replica_state = &batcher->replica_states[replica];
    struct gsv_batch **link = &batcher->free_batches;
    bool goes;

    pthread_mutex_lock(&batcher->lock);
    goes = !replica_state->is_out && batcher->n_live > 1;
    if (goes) {
        replica_state->is_out = true;
        batcher->n_live--;
        batcher->n_slots -= replica_state->n_slots;
        while (*link) {
            if ((*link)->replica == replica)
                *link = (*link)->next_free;
            else
                link = &(*link)->next_free;
        }
        gsv_wake(batcher); /* items that waited for this replica now wait for another one */
    }
    pthread_mutex_unlock(&batcher->lock);
    return goes;
}

/* Queue a failed batch for a retry. A batch is retried once: one that fails twice may be the cause
 * itself, and would take down one device after the other. */
bool gsv_leave_for_retry(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_status status)
{
    if (status != GPUSERVE_E_DEVICE || !batcher->options.retries || batch->is_retry ||
        !batcher->replica_states[batch->replica].is_out || batcher->broken.status != GPUSERVE_OK)
        return false;
    batch->next_free = batcher->retries;
    batcher->retries = batch;
    atomic_fetch_add(&batcher->options.metrics->batches_retried, 1);
    gsv_wake(batcher);
    return true;
}

struct gsv_batch *gsv_begin_retry(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_batch *left = batcher->retries, *batch = gsv_pop_free_batch(batcher, group);
    const struct gsv_batch own = *batch;

    batcher->retries = left->next_free;
    *batch = *left;
    batch->replica = own.replica;
    batch->group = own.group;
    batch->is_retry = true;
    batch->formed_ns = gsv_now_ns();
    left->parts = own.parts;
    left->coalesced = own.coalesced;
    batcher->replica_states[batch->replica].n_running++;
    batcher->n_running++;
    return batch;
}
