/*
 * batcher.h - one request queue for each model, from which its worker threads dequeue batches.
 *
 *   submit --> priority class --> batch (execution slot) --> results counted back --> completion
 *
 * Dynamic batching: a batch packs items of several requests without padding, up to a token budget.
 * An idle device gets the ready items at once. While every device is busy, a partial batch waits at
 * most `max_wait_ns`. Results do not depend on batching: the kernels give each row the same bits in
 * any batch.
 *
 * Files: admission control and backpressure (admission.c), items of a batch and request coalescing
 * (batch_formation.c), next step of a worker and inline execution (scheduler.c), removal of a lost
 * replica (scheduler.c), job validation (job.c), tokenization (tokenize_chunk.c), execution
 * (execution_slot.c), completion (request.c), CPU cores (concurrency.h).
 *
 * Invariants, under the batcher's lock:
 *
 *   - An item has one state: untaken, in one batch, or computed.
 *   - A request is in its class's list `small` or `ready` exactly while it has ready_tokens, and in
 *     `raw` exactly while a chunk's tokenization has not started.
 *   - A request is completed once, when n_in_flight is 0 and none of its items is left to take.
 *   - ready_tokens and n_raw_chunks are sums over the requests, in total and for each class.
 */
#ifndef GSV_RUNTIME_BATCHER_H
#define GSV_RUNTIME_BATCHER_H

#include "lib/runtime/scheduler/concurrency.h"
#include "lib/runtime/scheduler/request.h"

#include <gpuserve/types.h>

#include <stdatomic.h>

struct gsv_batcher_options {
    struct gsv_cores *cores; /* of the context; NULL: workers wait for a device, not for cores */
    struct gsv_metrics *metrics;         /* of the context, which the batcher's owners keep alive */
    struct gsv_completions *completions; /* shared */
    uint64_t max_queue_tokens;
    uint64_t max_queue_bytes;
    uint64_t max_queue_ns;          /* maximum queueing time at recent throughput; 0: no limit */
    uint64_t max_tokens_per_second; /* 0: no limit */
    int32_t max_batch_tokens;
    int32_t cached_tokens; /* of a batch, unless one text has more; 0: max_batch_tokens */
    int32_t max_sequences;
    int32_t n_workers; /* batches at a time */
    int32_t n_threads; /* worker threads, at least n_workers */
    int32_t n_replicas;
    uint64_t max_wait_ns;     /* of a partial batch, while the device is busy */
    uint64_t (*now_ns)(void); /* clock of admission; NULL: gsv_now_ns() */
    bool has_wide;
    bool prefers_wide; /* for short batches: see batch_formation.c */
    bool retries;      /* another replica retries a batch of a lost replica */
};

/* An item in a batch. */
struct gsv_part {
    gpuserve_request *request;
    struct gsv_chunk *chunk;
    size_t item;
    struct gsv_batch *batch;
    struct gsv_part *next_in_flight; /* in its bucket of the batcher's in-flight table */
    int32_t number;    /* index in `parts`; of a coalesced item: the part whose row it copies */
    int32_t query_row; /* of its request's query_vectors among those of the batch */
};

/* One batch of items. A model has n_workers, each embedded in an execution slot
 * (worker.h). A thread pops any free one, so an inline caller can replace a sleeping
 * worker. */
struct gsv_batch {
    struct gsv_batch *next_free;
    int32_t replica;        /* that its stream belongs to */
    int32_t group;          /* core group whose workers prefer this batch */
    struct gsv_part *parts; /* [max_sequences] */
    /* [max_sequences] items equal to a part of this batch: they get a copy of its row. Other
     * threads append until gsv_batcher_end_coalescing(). */
    struct gsv_part *coalesced;
    int32_t n_parts;
    int32_t n_coalesced;
    int32_t n_tokens;
    int32_t longest;
    int32_t n_query_rows; /* query_vectors of its requests, at most GPUSERVE_MAX_QUERY_VECTORS */
    bool is_wide;
    bool is_inline; /* run by a calling thread */
    bool is_retry;
    uint64_t formed_ns;
    uint64_t id; /* number of the batch in its batcher, from 1 */
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

/* Admit a request, or fail with GPUSERVE_E_BUSY. Counts the request and sets *reservation to the
 * amounts granted. A request reserves at most half of the queue's tokens and bytes, so a huge one
 * can be admitted and does not lock out small ones. It reserves at most an eighth of the tokens
 * limited by time: requests take turns, so a small request waits for a part of each other one.
 * Small requests and clients with an empty queue have extra capacity (admission.c). */
gpuserve_status gsv_batcher_admit(struct gsv_batcher *batcher,
                                  struct gsv_queue_reservation *reservation, gpuserve_error *error);
/* Undo an admission in two steps. release: the result is known, or the request was never enqueued.
 * leave: no thread accesses the request again. */
void gsv_batcher_release(struct gsv_batcher *batcher, struct gsv_queue_reservation *reservation);
void gsv_batcher_leave(struct gsv_batcher *batcher);

/* Add a batch to the free ones, unless its replica was removed. Borrowed until the workers stop. */
void gsv_batcher_add_batch(struct gsv_batcher *batcher, struct gsv_batch *batch);

/* Append an admitted request to its priority class, or to the completion list if it has no
 * items. */
void gsv_batcher_enqueue(struct gsv_batcher *batcher, gpuserve_request *request);
/* The same. Not NULL: the device was idle, and the caller must run this batch, which contains items
 * of the request, as a worker would. */
struct gsv_batch *gsv_batcher_begin_inline(struct gsv_batcher *batcher, gpuserve_request *request);
/* The same for a request that is already queued, when its owner starts to wait for it. */
struct gsv_batch *gsv_batcher_begin_queued_inline(struct gsv_batcher *batcher,
                                                  gpuserve_request *request);
/* Hand an ended request to a worker for completion. */
void gsv_batcher_defer(struct gsv_batcher *batcher, gpuserve_request *request);

void gsv_batcher_cancel(struct gsv_batcher *batcher, gpuserve_request *request);

/* Fail a request whose deadline has passed, unless all its items are taken. */
void gsv_batcher_expire(struct gsv_batcher *batcher, gpuserve_request *request);

/* No request is admitted at present. */
bool gsv_batcher_is_idle(struct gsv_batcher *batcher);

/* Reject new requests, wait until all have completed, then let the workers stop. */
void gsv_batcher_close(struct gsv_batcher *batcher);

/* Stop computing: queued and later requests fail with `error`. */
void gsv_batcher_break(struct gsv_batcher *batcher, const gpuserve_error *error);

/* Remove a lost replica: no batch starts there any more. False if it was removed before, or is the
 * last one, which stays and fails its batches. */
bool gsv_batcher_retire(struct gsv_batcher *batcher, int32_t replica);

/* The next step of a worker in core group `group`; blocks until one exists. */
struct gsv_step gsv_batcher_next(struct gsv_batcher *batcher, int32_t group);

/* The batch's rows are computed: remove its parts from the in-flight table. */
void gsv_batcher_end_coalescing(struct gsv_batcher *batcher, struct gsv_batch *batch);

/* Count a finished step back. Returns the requests that ended as a list by next_to_complete, which
 * the caller completes. A batch that failed because its replica is lost may wait for a retry
 * instead. */
gpuserve_request *gsv_batcher_encoded(struct gsv_batcher *batcher, const struct gsv_step *step,
                                      gpuserve_status status, const gpuserve_error *error);
gpuserve_request *gsv_batcher_ran(struct gsv_batcher *batcher, struct gsv_batch *batch,
                                  uint64_t nanoseconds, gpuserve_status status,
                                  const gpuserve_error *error);

/* A request completed: notify the completions of its model. */
void gsv_batcher_notify(struct gsv_batcher *batcher);

/*
 * An eventfd that counts the completed requests of a model.
 *
 * The handle owns it, and the caller borrows it for the handle's lifetime. Every queue that the
 * handle has had shares it, so a request that completes during a model swap is counted too.
 */

struct gsv_completions {
    atomic_size_t n_owners;
    atomic_int fd; /* -1 until the first gsv_completions_fd() */
};

/* NULL when out of memory. */
struct gsv_completions *gsv_completions_create(void);
struct gsv_completions *gsv_completions_ref(struct gsv_completions *completions);
void gsv_completions_unref(struct gsv_completions **completions);

/* The eventfd, created at the first call; -1 on failure. */
int gsv_completions_fd(struct gsv_completions *completions);

/* Add one completion, if the eventfd exists. */
void gsv_completions_notify(struct gsv_completions *completions);

#endif
