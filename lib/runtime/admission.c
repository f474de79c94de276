/*
 * admission.c - room in a queue: a request is taken whole or refused, before any work on it.
 */
#include "lib/base/error.h"
#include "lib/runtime/queue.h"

#include <inttypes.h>

#define RETRY_LEAST_MS 10
#define RETRY_MOST_MS 60000
#define RETRY_UNKNOWN_MS 100

/* How long the queue takes to become half empty, by the speed of late. */
static uint32_t retry_after_ms(const struct gsv_batcher *batcher)
{
    const double speed = batcher->tokens_per_ns;
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
