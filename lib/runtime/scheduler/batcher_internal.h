/*
 * batcher_internal.h - the inside of a batcher, for admission.c, batcher.c, replica_removal.c,
 * scheduler.c and batch_formation.c only.
 */
#ifndef GSV_RUNTIME_BATCHER_INTERNAL_H
#define GSV_RUNTIME_BATCHER_INTERNAL_H

#include "lib/runtime/scheduler/batcher.h"
#include "lib/runtime/core/metrics.h"

#define GSV_PRIORITY_CLASSES 3

/* A batch under GSV_FEW_TOKENS makes poor use of a core: with all workers busy a batch has so many
 * at least if they are there. While others sleep, latency counts: GSV_MIN_TOKENS are worth waking
 * one. */
#define GSV_FEW_TOKENS 128
#define GSV_MIN_TOKENS 32

/* The requests of one priority class. */
struct gsv_priority_class {
    struct gsv_link small; /* small requests with tokenized items that no batch has taken, FIFO */
    struct gsv_link ready; /* the others with such items, in turn */
    struct gsv_link raw;   /* those with chunks that nobody has begun to tokenize, in turn */
    size_t ready_tokens;
    size_t n_raw_chunks;
    uint64_t served; /* tokens taken so far, divided by the class's weight */
};

/* A replica, as the batcher sees it. */
struct gsv_replica_state {
    int32_t n_slots; /* batches that run there */
    int32_t n_running;
    bool is_out;
};

/* Clients share these counts by hash (stochastic fairness queueing): memory is bounded, whatever
 * number of clients there is. */
#define GSV_CLIENT_BUCKETS 2048

struct gsv_client_usage {
    uint64_t timed; /* sum over the admitted requests of the bucket's clients */
    size_t n_requests;
};

struct gsv_batcher {
    atomic_size_t n_owners;
    struct gsv_batcher_options options;

    pthread_mutex_t lock; /* for what follows, and for the requests' fields of the same name */
    pthread_cond_t work;  /* there is a step for a worker */
    pthread_cond_t empty; /* no request is left */
    struct gsv_priority_class classes[GSV_PRIORITY_CLASSES]; /* by gpuserve_priority */
    uint64_t served; /* where the lane stood that gave items last */
    gpuserve_request *to_complete;
    uint32_t n_since_small; /* batches taken since a small request came, up to a limit */
    struct gsv_queue_reservation reserved; /* of all that have not got theirs back */
    size_t n_reserved;
    uint64_t small_timed;  /* of charged.timed, by small requests */
    struct gsv_link large; /* admitted requests that are not small, until they are uncharged */
    struct gsv_client_usage usage[GSV_CLIENT_BUCKETS];
    struct gsv_part **in_flight; /* [n_in_flight_buckets] what is being computed, by hash: see
                                    batch_formation.c */
    size_t n_in_flight_buckets;  /* a power of two */
    size_t n_requests;           /* admitted and not completed */
    size_t ready_tokens;
    size_t n_raw_chunks;
    struct gsv_core_share share; /* under the lock of the cores */
    struct gsv_batch *free_batches;
    struct gsv_batch *retries;                /* not counted back: for other replicas to run */
    struct gsv_replica_state *replica_states; /* [n_replicas] */
    int32_t n_live;                           /* replicas that are not out */
    int32_t n_slots;                          /* batches of these */
    int32_t n_running;                        /* batches */
    int32_t n_sleeping;                       /* workers */
    int32_t n_holding;                        /* of them those that look again at due_ns */
    uint64_t
        due_ns; /* what is ready is taken by then, full batch or not; good while ready_tokens */
    double tokens_per_ns; /* of all workers together, lately; 0: not known */
    bool is_closing;
    bool is_stopped;
    gpuserve_error broken; /* status 0: it is not */
};

static inline void gsv_list_init(struct gsv_link *list)
{
    list->before = list->after = list;
}

static inline bool gsv_list_is_empty(const struct gsv_link *list)
{
    return list->after == list;
}

static inline void gsv_list_append(struct gsv_link *list, struct gsv_link *link)
{
    link->after = list;
    link->before = list->before;
    list->before->after = link;
    list->before = link;
}

/* Nothing when it is in no list. */
static inline void gsv_list_remove(struct gsv_link *link)
{
    if (!link->after)
        return;
    link->before->after = link->after;
    link->after->before = link->before;
    link->before = link->after = NULL;
}

static inline gpuserve_request *gsv_of_ready(struct gsv_link *link)
{
    return (gpuserve_request *)(void *)((char *)link - offsetof(gpuserve_request, ready));
}

static inline gpuserve_request *gsv_of_large(struct gsv_link *link)
{
    return (gpuserve_request *)(void *)((char *)link -
                                        offsetof(gpuserve_request, reservation.link));
}

static inline gpuserve_request *gsv_of_raw(struct gsv_link *link)
{
    return (gpuserve_request *)(void *)((char *)link - offsetof(gpuserve_request, raw));
}

static inline bool gsv_is_expired(const gpuserve_request *request, uint64_t now_ns)
{
    return request->deadline_ns != 0 && now_ns >= request->deadline_ns;
}

/* The lane whose turn it is among those with chunks to tokenize; NULL when there is none. */
struct gsv_priority_class *gsv_next_raw_class(struct gsv_batcher *batcher);

/* The request has `tokens` more to take. */
void gsv_add_ready(struct gsv_batcher *batcher, gpuserve_request *request, size_t tokens);

/* Put a request in its lane: gsv_batcher_enqueue() without the lock and without waking anybody. */
void gsv_enqueue(struct gsv_batcher *batcher, gpuserve_request *request);

/* Wake as many workers as there are steps for, at most all. */
void gsv_wake(struct gsv_batcher *batcher);

/* A batch is over: its items are counted back. Its requests that are over now go to the list. */
void gsv_count_back(struct gsv_batcher *batcher, struct gsv_batch *batch, uint64_t nanoseconds,
                    gpuserve_status status, const gpuserve_error *error, gpuserve_request **list);

/* A free batch of the device that has least to do; there is one. Of these one of the core group,
 * and the one used last, come first: its memory is in the caches. */
struct gsv_batch *gsv_pop_free_batch(struct gsv_batcher *batcher, int32_t group);

/* A batch failed: true when it now waits for another replica than its own, which is lost. */
bool gsv_leave_for_retry(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_status status);

/* A free batch with what one of these has, running from now on; there are both. */
struct gsv_batch *gsv_begin_retry(struct gsv_batcher *batcher, int32_t group);

/* What is ready is not taken now: every device is busy, and a batch of it would not be full. */
bool gsv_holds_back(const struct gsv_batcher *batcher);

/* The first failure of a request: what is left of it will not be computed. */
void gsv_fail_request(struct gsv_batcher *batcher, gpuserve_request *request,
                      gpuserve_status status, const gpuserve_error *error);

/* Put a request on the list to be completed when nothing of it is left to do. */
void gsv_end_if_over(gpuserve_request *request, gpuserve_request **list);

/* Give up a request whose deadline has passed, unless its last item is being computed. */
void gsv_expire(struct gsv_batcher *batcher, gpuserve_request *request);

/* The part has landed, or never flew: nobody finds it any more. */
void gsv_in_flight_remove(struct gsv_batcher *batcher, const struct gsv_part *part);

/* Let those of a tokenized chunk's items ride along that equal one in flight; the tokens that are
 * left to take. Its request is not in a lane on their behalf yet. */
size_t gsv_coalesce_chunk(struct gsv_batcher *batcher, gpuserve_request *request,
                          struct gsv_chunk *chunk);

/* Fill a batch from what is ready. Empty when all of that has expired. */
void gsv_form_batch(struct gsv_batcher *batcher, struct gsv_batch *batch);

#endif
