/*
 * batcher_internal.h - state and helpers of a batcher. Private to admission.c, batcher.c,
 * batch_formation.c and scheduler.c. All functions need the batcher's lock.
 */
#ifndef GSV_RUNTIME_BATCHER_INTERNAL_H
#define GSV_RUNTIME_BATCHER_INTERNAL_H

#include "lib/runtime/scheduler/batcher.h"
#include "lib/runtime/core/metrics.h"

#define GSV_PRIORITY_CLASSES 3

/* Batches under GSV_FEW_TOKENS use a core poorly: while all workers are busy, a batch has at least
 * that many tokens if they are ready. While workers sleep, latency counts more: GSV_MIN_TOKENS
 * justify waking one. */
#define GSV_FEW_TOKENS 128
#define GSV_MIN_TOKENS 32

/* The requests of one priority class. */
struct gsv_priority_class {
    struct gsv_link small; /* FIFO of small requests with tokenized, untaken items */
    struct gsv_link ready; /* other requests with such items, served round robin */
    struct gsv_link raw;   /* requests with chunks to tokenize, served round robin */
    size_t ready_tokens;
    size_t n_raw_chunks;
    uint64_t served; /* virtual time: tokens taken so far, divided by the class's weight */
};

/* Replica state: the scheduler's view of one replica. */
struct gsv_replica_state {
    int32_t n_slots; /* batches that run there */
    int32_t n_running;
    bool is_out;
};

/* Clients share these counters by hash (stochastic fairness queueing). Memory is bounded for any
 * number of clients. */
#define GSV_CLIENT_BUCKETS 2048

struct gsv_client_usage {
    uint64_t timed; /* sum over the admitted requests of the bucket's clients */
    size_t n_requests;
    struct gsv_link waiting;   /* in the waiting line, after a refused large request */
    uint64_t waiting_timed;    /* capacity it waits for */
    uint64_t waiting_until_ns; /* time at which it loses its place */
};

/* Recent progress of large requests while at least one was admitted. Its unit is `work` of a
 * reservation, an estimate of tokens, so that it predicts the end of queued requests. */
struct gsv_drain {
    double work, ns;
    uint64_t since_ns; /* time of the last update; 0: no large request was admitted then */
};

struct gsv_batcher {
    atomic_size_t n_owners;
    struct gsv_batcher_options options;

    pthread_mutex_t lock; /* for the fields below, and the part of each request under this lock */
    pthread_cond_t work;  /* a worker has a step to do */
    pthread_cond_t empty; /* no request is left */
    struct gsv_priority_class classes[GSV_PRIORITY_CLASSES]; /* by gpuserve_priority */
    uint64_t served; /* virtual time of the class served last */
    gpuserve_request *to_complete;
    uint32_t n_since_small; /* batches since the last small request, up to a limit */
    int32_t small_lead; /* tokens of small requests in batches without large ones, less the tokens
                           of large ones since; at least 0 */
    struct gsv_queue_reservation reserved; /* sum of all reservations not yet released */
    size_t n_reserved;
    uint64_t small_timed;  /* share of reserved.timed held by small requests */
    struct gsv_link large; /* admitted requests that are not small, until release */
    struct gsv_client_usage usage[GSV_CLIENT_BUCKETS];
    struct gsv_link waiting; /* FIFO of refused clients: see admission.c */
    double quota;            /* tokens in the token bucket, at most those of a second */
    uint64_t quota_ns;       /* time of the last addition to it */
    size_t n_large;          /* admitted requests that are not small, not yet released */
    struct gsv_drain drain;
    struct gsv_part **in_flight; /* [n_in_flight_buckets] in-flight table: items being computed, by
                                    hash (batch_formation.c) */
    size_t n_in_flight_buckets;  /* a power of two */
    size_t n_requests;           /* admitted and not completed */
    size_t ready_tokens;
    size_t n_raw_chunks;
    struct gsv_core_share share; /* under the lock of the cores */
    struct gsv_batch *free_batches;
    struct gsv_batch *retries; /* failed, wait for another replica; not counted back */
    struct gsv_replica_state *replica_states; /* [n_replicas] */
    int32_t n_live;                           /* replicas that are not removed */
    int32_t n_slots;                          /* batches of these */
    int32_t n_running;                        /* batches */
    int32_t n_sleeping;                       /* workers */
    int32_t n_holding;                        /* sleeping workers that wake up at due_ns */
    uint64_t due_ns;      /* latest start of a batch of the ready items, full or not; valid while
                             ready_tokens > 0 */
    double tokens_per_ns; /* recent throughput of all workers together; 0: unknown */
    uint32_t n_batches;   /* that have run, up to a maximum */
    uint64_t n_formed;    /* batches */
    bool is_closing;
    bool is_stopped;
    gpuserve_error broken; /* status 0: not broken */
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

/* Does nothing if the link is in no list. */
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

static inline struct gsv_client_usage *gsv_of_waiting(struct gsv_link *link)
{
    return (struct gsv_client_usage *)(void *)((char *)link -
                                               offsetof(struct gsv_client_usage, waiting));
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

/* The class with the least virtual time among those with chunks to tokenize; NULL if none has. */
struct gsv_priority_class *gsv_next_raw_class(struct gsv_batcher *batcher);

/* Count the progress of large requests in a finished batch. */
void gsv_learn_drain(struct gsv_batcher *batcher, const struct gsv_batch *batch);

/* Count `tokens` of the request as ready; appends it to its class if it had none. */
void gsv_add_ready(struct gsv_batcher *batcher, gpuserve_request *request, size_t tokens);

/* gsv_batcher_enqueue() without locking and without waking workers. */
void gsv_enqueue(struct gsv_batcher *batcher, gpuserve_request *request);

/* Wake one worker for each available step, at most all. */
void gsv_wake(struct gsv_batcher *batcher);

/* As many tokens are ready as all batches can take: tokenization pauses. */
static inline bool gsv_has_enough(const struct gsv_batcher *batcher)
{
    return batcher->ready_tokens >=
           (size_t)batcher->n_slots * (size_t)batcher->options.max_batch_tokens;
}

/* Number of free batches. */
static inline int32_t gsv_n_free(const struct gsv_batcher *batcher)
{
    int32_t n = 0;

    for (int32_t i = 0; i < batcher->options.n_replicas; i++) {
        const struct gsv_replica_state *state = &batcher->replica_states[i];

        n += state->is_out ? 0 : state->n_slots - state->n_running;
    }
    return n;
}

/* Count the items of a finished batch back. Requests that ended are prepended to *list. */
void gsv_count_back(struct gsv_batcher *batcher, struct gsv_batch *batch, gpuserve_status status,
                    const gpuserve_error *error, gpuserve_request **list);

/* Pop a free batch of the replica with the fewest running batches; one must be free. Among equals,
 * a batch of the core group and the one used last come first: its memory is in the caches. */
struct gsv_batch *gsv_pop_free_batch(struct gsv_batcher *batcher, int32_t group);

/* True if a failed batch now waits for a retry on another replica, because its own is lost. */
bool gsv_leave_for_retry(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_status status);

/* Move the items of a failed batch to a free one, which counts as running; both must exist. */
struct gsv_batch *gsv_begin_retry(struct gsv_batcher *batcher, int32_t group);

/* The ready items wait: every replica is busy, and a batch of them would be partial. */
bool gsv_holds_back(const struct gsv_batcher *batcher);
/* Ready items wait until the batch that runs ends: the next one is to be wide (batch_formation.c).
 */
bool gsv_waits_for_batch(const struct gsv_batcher *batcher);

/* Set the first failure of a request and drop its untaken items. */
void gsv_fail_request(struct gsv_batcher *batcher, gpuserve_request *request,
                      gpuserve_status status, const gpuserve_error *error);

/* Prepend a request to *list for completion if it has nothing left to do. */
void gsv_end_if_over(gpuserve_request *request, gpuserve_request **list);

/* Fail a request whose deadline has passed, unless all its items are taken. */
void gsv_expire(struct gsv_batcher *batcher, gpuserve_request *request);

/* Remove a part from the in-flight table; does nothing if it is not there. */
void gsv_in_flight_remove(struct gsv_batcher *batcher, const struct gsv_part *part);

/* Coalesce those items of a tokenized chunk that equal an item in flight. Returns the tokens left
 * to take, which the caller adds to the class. */
size_t gsv_coalesce_chunk(struct gsv_batcher *batcher, gpuserve_request *request,
                          struct gsv_chunk *chunk);

/* Fill a batch from the ready items. Empty if all of them have expired or were coalesced. */
void gsv_form_batch(struct gsv_batcher *batcher, struct gsv_batch *batch);

#endif
