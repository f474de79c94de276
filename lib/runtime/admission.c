/*
 * admission.c - room in a queue: a request is taken whole or refused, before any work on it.
 */
#include "lib/base/error.h"
#include "lib/runtime/queue.h"

#include <inttypes.h>

#define RETRY_LEAST_MS 10
#define RETRY_MOST_MS 60000
#define RETRY_UNKNOWN_MS 100
#define TIMED_SHARE 8     /* a request counts as one of so many parts at most */
#define BATCHES_WAITING 2 /* for each worker, however slow it is */

/* How long the queue takes to become half empty, by the speed of late. */
static uint32_t retry_after_ms(const struct gsv_batcher *batcher)
{
    const double speed = batcher->tokens_per_ns;
    double ms;

    if (!(speed > 0))
        return RETRY_UNKNOWN_MS;
    ms = (double)batcher->charged.tokens / 2 / speed / 1e6;
    return ms < RETRY_LEAST_MS ? RETRY_LEAST_MS : ms > RETRY_MOST_MS ? RETRY_MOST_MS : (uint32_t)ms;
}

static gpuserve_status fail_busy(const struct gsv_batcher *batcher, const char *what,
                                 const char *option, uint64_t holds, uint64_t room, uint64_t needs,
                                 gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_BUSY,
             "the queue holds %" PRIu64 " %s of %" PRIu64 ", this request needs %" PRIu64, holds,
             what, room, needs);
    gsv_hint(error, GPUSERVE_E_BUSY, "try again later, or raise %s", option);
    return gsv_retry_after(error, GPUSERVE_E_BUSY, retry_after_ms(batcher));
}

/* Tokens that may wait, by time: what is computed in it at the speed of late, but enough that no
 * worker stands still. Before anything has run the speed is not known. The lock is held. */
static uint64_t room_in_time(const struct gsv_batcher *batcher)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const uint64_t least =
        (uint64_t)options->max_batch_tokens * (uint64_t)options->n_workers * BATCHES_WAITING;
    const double room = batcher->tokens_per_ns * (double)options->max_queue_ns;

    if (options->max_queue_ns == 0 || !(room > 0) || room >= (double)options->max_queue_tokens)
        return options->max_queue_tokens;
    return room > (double)least ? (uint64_t)room : least;
}

/* The lock is held. */
static gpuserve_status check_room(const struct gsv_batcher *batcher,
                                  const struct gsv_charge *charge, uint64_t in_time,
                                  gpuserve_error *error)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const struct gsv_charge *charged = &batcher->charged;

    if (batcher->broken.status != GPUSERVE_OK) {
        gsv_error_copy(error, &batcher->broken);
        return (gpuserve_status)batcher->broken.status;
    }
    if (batcher->is_closing)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the model is being closed");
    if (charge->tokens > options->max_queue_tokens - charged->tokens)
        return fail_busy(batcher, "tokens", "max_queue_tokens", charged->tokens,
                         options->max_queue_tokens, charge->tokens, error);
    /* So many find room although the speed, and with it the room, has fallen since they came. */
    if (batcher->n_charged >= TIMED_SHARE && charged->timed + charge->timed > in_time)
        return fail_busy(batcher, "tokens", "max_queue_ms", charged->timed, in_time, charge->timed,
                         error);
    if (charge->bytes > options->max_queue_bytes - charged->bytes)
        return fail_busy(batcher, "bytes", "max_queue_bytes", charged->bytes,
                         options->max_queue_bytes, charge->bytes, error);
    return GPUSERVE_OK;
}

static uint64_t share_at_most(uint64_t wanted, uint64_t room, uint64_t share)
{
    return wanted < room / share ? wanted : room / share;
}

gpuserve_status gsv_batcher_admit(struct gsv_batcher *batcher, struct gsv_charge *charge,
                                  gpuserve_error *error)
{
    struct gsv_metrics *metrics = batcher->options.metrics;
    uint64_t in_time;
    gpuserve_status st;

    charge->tokens = share_at_most(charge->tokens, batcher->options.max_queue_tokens, 2);
    charge->bytes = share_at_most(charge->bytes, batcher->options.max_queue_bytes, 2);
    pthread_mutex_lock(&batcher->lock);
    in_time = room_in_time(batcher);
    charge->timed = share_at_most(charge->tokens, in_time, TIMED_SHARE);
    st = check_room(batcher, charge, in_time, error);
    if (st == GPUSERVE_OK) {
        batcher->charged.tokens += charge->tokens;
        batcher->charged.bytes += charge->bytes;
        batcher->charged.timed += charge->timed;
        batcher->n_charged++;
        batcher->n_requests++;
    }
    pthread_mutex_unlock(&batcher->lock);
    if (st == GPUSERVE_OK) {
        atomic_fetch_add(&metrics->queued_tokens, charge->tokens);
        atomic_fetch_add(&metrics->queued_bytes, charge->bytes);
        atomic_fetch_add(&metrics->queued_requests, 1);
    }
    return st;
}

void gsv_batcher_uncharge(struct gsv_batcher *batcher, const struct gsv_charge *charge)
{
    struct gsv_metrics *metrics = batcher->options.metrics;

    atomic_fetch_sub(&metrics->queued_tokens, charge->tokens);
    atomic_fetch_sub(&metrics->queued_bytes, charge->bytes);
    atomic_fetch_sub(&metrics->queued_requests, 1);
    pthread_mutex_lock(&batcher->lock);
    batcher->charged.tokens -= charge->tokens;
    batcher->charged.bytes -= charge->bytes;
    batcher->charged.timed -= charge->timed;
    batcher->n_charged--;
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_leave(struct gsv_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    if (--batcher->n_requests == 0)
        pthread_cond_broadcast(&batcher->empty);
    pthread_mutex_unlock(&batcher->lock);
}
