/*
 * queue.h - the inside of a batcher, for batcher.c and take.c only.
 */
#ifndef GSV_RUNTIME_QUEUE_H
#define GSV_RUNTIME_QUEUE_H

#include "lib/runtime/batcher.h"
#include "lib/runtime/metrics.h"

struct gsv_batcher {
    atomic_size_t n_owners;
    struct gsv_batcher_options options;

    pthread_mutex_t lock;   /* for what follows, and for the requests' fields of the same name */
    pthread_cond_t work;    /* there is a step for a worker */
    pthread_cond_t empty;   /* no request is left */
    gpuserve_request *ring; /* whose turn it is; NULL: nobody waits */
    gpuserve_request *to_complete;
    uint64_t charged_tokens;
    size_t n_requests; /* admitted and not completed */
    size_t ready_tokens;
    size_t n_raw_chunks;
    int32_t n_running;    /* batches */
    int32_t n_sleeping;   /* workers */
    double tokens_per_ns; /* of one worker, lately; 0: not known */
    bool is_closing;
    bool is_stopped;
};

/* Put a request in the ring, just before the one whose turn it is; take it out. */
void gsv_ring_add(struct gsv_batcher *batcher, gpuserve_request *request);
void gsv_ring_remove(struct gsv_batcher *batcher, gpuserve_request *request);

/* Fill a batch from what is ready, at least one item of it. */
void gsv_take_batch(struct gsv_batcher *batcher, struct gsv_batch *batch);

#endif
