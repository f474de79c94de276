/*
 * batcher.h - one queue for each model, from which its workers take batches.
 *
 *   submit --> ring of requests --> a batch for a worker --> results counted back --> completion
 *
 * Batches are packed without padding up to a budget of tokens, from as many requests as it takes.
 * Which ones stands at the head of batch_formation.c: classes by weight, and within a class turns,
 * so that a request of one text passes between the pieces of a request of a million. A device that
 * has nothing to do is given what is there at once. While it is busy with another batch, a batch
 * that is not full may wait for more, until the device is free or max_wait_ns are over.
 *
 * A free worker's next step, in this order:
 *   1. complete a request that ended in the queue (cancelled, expired, empty, failed);
 *   2. tokenize a chunk of a large request, when less is ready than the workers will take next;
 *   3. run a batch, in one of the free ones (struct gsv_batch), of the device that has least to do;
 *   4. sleep.
 *
 * A blocking caller that finds the CPU idle leads: it takes the batch itself and runs it on its own
 * thread, and no other thread is woken (gsv_batcher_begin_inline). It never calls others'
 * callbacks. One that submitted and then waits without a limit does the same when no worker was
 * faster.
 *
 * The budget is max_batch_tokens, less when the queue runs low: then it is what is ready divided by
 * the workers, so that all finish together. When nothing else is running in the context and what is
 * ready is too little to feed every worker, one worker runs it on the wide stream, where all
 * threads share each operation: one text alone uses all cores. Steps 2 and 3 need a core
 * (concurrency.h).
 *
 * A deadline is looked at when a request's turn comes, and by whoever waits for it when it passes.
 *
 * Always true, under the lock:
 *   - an item is in one place: untaken, in one batch, or computed;
 *   - a request is in its lane's list `ready` exactly while it has ready_tokens, in `raw` exactly
 *     while it has chunks that nobody has begun to tokenize;
 *   - a request is handed to completion once, when n_in_flight is 0 and nothing of it is left to
 *     take;
 *   - ready_tokens and n_raw_chunks are the sums over the requests, in all and by lane.
 *
 * A replica whose device is lost is taken out (gsv_batcher_retire): nothing begins there any more,
 * and a batch that failed with it is run once more by another where `reruns` says so.
 *
 * On a machine of several core groups (topology.h) each worker stays in one and prefers the
 * batches, that is streams and buffers, of its group.
 *
 * Equal texts are computed once: an item whose tokens are those of one in a batch that is being
 * run, or filled, does not take part but rides along, and gets a copy of that row.
 *
 * Results do not depend on any of this: the kernels give each row the same bits in any batch.
 *
 * Not here: room in the queue (admission.c), the steps (scheduler.c), which items
 * (batch_formation.c), checking jobs (job.c), tokenizing (tokenize_chunk.c), running
 * (execution_slot.c), completing (request.c).
 */
#ifndef GSV_RUNTIME_BATCHER_H
#define GSV_RUNTIME_BATCHER_H

#include "lib/runtime/scheduler/completions.h"
#include "lib/runtime/scheduler/concurrency.h"
#include "lib/runtime/scheduler/request.h"

#include <stdatomic.h>

struct gsv_batcher_options {
    struct gsv_cores
        *cores; /* of the context; NULL: the workers wait for a device, not for cores */
    struct gsv_metrics *metrics;         /* of the context, which the batcher's owners keep alive */
    struct gsv_completions *completions; /* shared */
    uint64_t max_queue_tokens;
    uint64_t max_queue_bytes;
    uint64_t max_queue_ns; /* of what waits, at the speed of late; 0: any */
    int32_t max_batch_tokens;
    int32_t max_sequences;
    int32_t n_workers;
    int32_t n_replicas;
    uint64_t max_wait_ns; /* of a batch that is not full, while the device is busy */
    bool has_wide;
    bool retries; /* a batch of a lost replica is run again on another */
};

/* An item in a batch. */
struct gsv_part {
    gpuserve_request *request;
    struct gsv_chunk *chunk;
    size_t item;
    struct gsv_batch *batch;
    struct gsv_part *next_in_flight; /* in its bucket of the batcher's flights */
    int32_t number;                  /* of a rider: the part whose row is its own too */
};

/* Items taken together. There is one for each worker, with a stream and buffers around it
 * (execution_slot.h); who is to run a batch takes a free one, so that a caller may take a sleeping
 * worker's place. */
struct gsv_batch {
    struct gsv_batch *next_free;
    int32_t replica;        /* that its stream belongs to */
    int32_t group;          /* of cores: whose workers run it before others do */
    struct gsv_part *parts; /* [max_sequences] */
    struct gsv_part
        *coalesced; /* [max_sequences] items equal to one of some batch in flight: they get
                    its row. Other threads add to them until gsv_batcher_end_coalescing() */
    int32_t n_parts;
    int32_t n_coalesced;
    int32_t n_tokens;
    int32_t longest;
    bool is_wide;
    bool is_inline; /* by a caller */
    bool is_retry;
    uint64_t taken_ns;
    struct gsv_batch_key key;
};

enum gsv_step_kind { GSV_STEP_STOP, GSV_STEP_COMPLETE, GSV_STEP_ENCODE, GSV_STEP_RUN };

struct gsv_step {
    enum gsv_step_kind kind;
    gpuserve_request *request; /* COMPLETE, ENCODE */
    struct gsv_chunk *chunk;   /* ENCODE */
    struct gsv_batch *batch;   /* RUN */
    uint64_t begun_ns;
};

gpuserve_status gsv_batcher_create(struct gsv_batcher **batcher,
                                   const struct gsv_batcher_options *options,
                                   gpuserve_error *error);
struct gsv_batcher *gsv_batcher_ref(struct gsv_batcher *batcher);
void gsv_batcher_unref(struct gsv_batcher **batcher);

/* Room for a request that wants *charge: counts the request and sets *charge to what it got, or
 * GPUSERVE_E_BUSY. One request is charged half the queue at most, so that a huge one can be
 * admitted at all and does not lock small ones out; of what may wait by time an eighth, since
 * requests take turns: what a small one waits for is a part of each other one, not all of it.
 * Small requests and clients with nothing in the queue have reserves: see admission.c. */
gpuserve_status gsv_batcher_admit(struct gsv_batcher *batcher,
                                  struct gsv_queue_reservation *reservation, gpuserve_error *error);
/* The opposite, in two steps: its room is free once its result is known, or when it was never
 * enqueued; it has left when nobody will touch it again. */
void gsv_batcher_release(struct gsv_batcher *batcher, struct gsv_queue_reservation *reservation);
void gsv_batcher_leave(struct gsv_batcher *batcher);

/* A batch to be used from now on, unless its replica was taken out; lent until the workers have
 * stopped. */
void gsv_batcher_add_batch(struct gsv_batcher *batcher, struct gsv_batch *batch);

/* Put an admitted request in its lane, or among those to complete when it has no items. */
void gsv_batcher_enqueue(struct gsv_batcher *batcher, gpuserve_request *request);
/* The same. Not NULL: the device was idle, and the caller is to run this batch, which has items of
 * the request, as a worker would. */
struct gsv_batch *gsv_batcher_begin_inline(struct gsv_batcher *batcher, gpuserve_request *request);
/* The same for a request that is in its lane, when its owner begins to wait for it. */
struct gsv_batch *gsv_batcher_begin_queued_inline(struct gsv_batcher *batcher,
                                                  gpuserve_request *request);
/* Leave a request that is over to a worker to complete. */
void gsv_batcher_defer(struct gsv_batcher *batcher, gpuserve_request *request);

void gsv_batcher_cancel(struct gsv_batcher *batcher, gpuserve_request *request);

/* Its deadline has passed: give it up unless its last item is being computed. */
void gsv_batcher_expire(struct gsv_batcher *batcher, gpuserve_request *request);

/* No request is admitted now. */
bool gsv_batcher_is_idle(struct gsv_batcher *batcher);

/* Refuse what comes, wait until all has completed, then let the workers stop. */
void gsv_batcher_close(struct gsv_batcher *batcher);

/* Nothing will be computed any more: what waits and what still comes fails with `error`. */
void gsv_batcher_break(struct gsv_batcher *batcher, const gpuserve_error *error);

/* A replica is lost: nothing begins there from now on. False when it was out already, or is the
 * last one, which goes on and fails. */
bool gsv_batcher_retire(struct gsv_batcher *batcher, int32_t replica);

/* The next step of a worker of a core group; sleeps until there is one. */
struct gsv_step gsv_batcher_next(struct gsv_batcher *batcher, int32_t group);

/* The batch's rows are there: from now on nobody rides along. */
void gsv_batcher_end_coalescing(struct gsv_batcher *batcher, struct gsv_batch *batch);

/* Count a step back. Requests that are over now are returned as a list by next_to_complete, for
 * the caller to complete. A batch that failed because its replica was lost may wait for another
 * one instead. */
gpuserve_request *gsv_batcher_encoded(struct gsv_batcher *batcher, const struct gsv_step *step,
                                      gpuserve_status status, const gpuserve_error *error);
gpuserve_request *gsv_batcher_ran(struct gsv_batcher *batcher, struct gsv_batch *batch,
                                  uint64_t nanoseconds, gpuserve_status status,
                                  const gpuserve_error *error);

/* A request completed: tells the completions of its model. */
void gsv_batcher_notify(struct gsv_batcher *batcher);

#endif
