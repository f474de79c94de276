/*
 * request.h - one submission: its job, its tokens, its results, and how it ends.
 *
 *   gsv_request_create   checks the job, admits it whole, tokenizes it when it is small
 *   batcher.c            hands its items out to batches, in any order, and counts them back
 *   gsv_request_complete copies the results to the caller, once, and tells everyone who waits
 *
 * Results are gathered in memory of the request and reach the caller's only when all of it has
 * succeeded: that is how outputs stay untouched on failure and on cancellation.
 */
#ifndef GSV_RUNTIME_REQUEST_H
#define GSV_RUNTIME_REQUEST_H

#include "lib/model/model.h"
#include "lib/runtime/scheduler/tokens.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gsv_batcher;
struct gsv_model;

/* A place in one of the queue's lists; both NULL: in none. */
struct gsv_link {
    struct gsv_link *before, *after;
};

/* Requests whose items may share a batch have equal keys. */
struct gsv_batch_key {
    uint32_t task;
    int32_t dimensions;
    bool normalize;
    uint32_t score;
    int32_t skip; /* tokens of the prompt that pooling leaves out */
};

static inline bool gsv_same_batch_key(const struct gsv_batch_key *a, const struct gsv_batch_key *b)
{
    return a->task == b->task && a->dimensions == b->dimensions && a->normalize == b->normalize &&
           a->score == b->score && a->skip == b->skip;
}

/* Room that a request takes in the queue. */
struct gsv_queue_reservation {
    uint64_t tokens; /* an estimate from the bytes; exact for ids */
    uint64_t bytes;  /* texts and results */
    uint64_t timed;  /* tokens, as they count against the time of what waits */
    uint64_t work;   /* tokens as estimated, whatever the others are limited to */
    uint64_t client; /* gpuserve_job.client */
    size_t n_items;
    bool is_small;        /* set by admission: see admission.c */
    struct gsv_link link; /* in the batcher's list of large requests, from enqueue to uncharge */
};

/* One text: where its tokens are and what became of it. */
struct gsv_item {
    size_t offset; /* of its first token in its chunk */
    size_t row;    /* of its first row in the output */
    uint64_t hash; /* of its tokens; unless job.cache is OFF */
    uint32_t n_tokens;
    bool truncated;
    bool is_cached; /* the row was computed for an equal text */
    int32_t status;
};

enum gsv_chunk_state {
    GSV_CHUNK_RAW,      /* not tokenized yet */
    GSV_CHUNK_ENCODING, /* a thread is at it */
    GSV_CHUNK_READY,    /* its items can be taken */
};

/* Neighbouring items that are tokenized together, by one thread. */
struct gsv_chunk {
    enum gsv_chunk_state state;
    size_t first, end; /* items */
    size_t next;       /* the first that no batch has taken */
    size_t n_left;     /* not computed yet; at 0 the tokens are dropped */
    int32_t *ids;
    uint8_t *type_ids; /* NULL: all zero */
    size_t n_tokens;
    size_t n_cached;      /* items whose rows are there already: no batch takes them */
    size_t cached_tokens; /* theirs */
    bool is_owned;        /* false: `ids` are the caller's */
};

struct gpuserve_request {
    gpuserve_context *context;   /* shared */
    struct gsv_batcher *batcher; /* shared: outlives the model */
    gpuserve_job job;            /* a copy; what it points to is borrowed, except: */
    char *prompt;                /* owned, or NULL; takes the place of prompt_name too */
    gpuserve_completion_fn callback;
    void *user;
    struct gsv_batch_key key;
    int32_t columns;          /* of a row as computed */
    int32_t kept;             /* the first of them, which are written to the job's output */
    struct gsv_item *items;   /* [job.n_items] */
    struct gsv_chunk *chunks; /* [n_chunks] */
    size_t n_chunks;
    float *staging; /* [n_rows, columns] */
    size_t n_rows;
    struct gsv_queue_reservation reservation; /* what it was admitted for */
    uint64_t submitted_ns;                    /* times of gsv_now_ns() */
    uint64_t enqueued_ns;
    uint64_t deadline_ns; /* 0: none */
    atomic_uint_fast64_t tokenize_ns;
    gpuserve_result result;      /* what is known of it beforehand; for job.result */
    const struct gsv_plan *plan; /* of its model, which waits for it */

    /* Under the batcher's lock. */
    struct gsv_link ready; /* in its lane, exactly while ready_tokens > 0 */
    struct gsv_link raw;   /* in its lane, exactly while next_raw < n_chunks */
    struct gpuserve_request *next_to_complete;
    uint64_t first_run_ns;   /* when its first batch was taken; 0: not yet */
    uint64_t last_run_ns;    /* when its last batch was over */
    size_t first_chunk;      /* all before it are taken entirely */
    size_t next_raw;         /* first chunk that no thread has begun to tokenize */
    size_t ready_tokens;     /* tokenized and not taken */
    size_t n_untaken;        /* items */
    size_t n_in_flight;      /* items in batches and chunks in tokenization */
    uint64_t replicas;       /* bit i: replica i computed some of its items */
    bool is_ending;          /* to be completed, or completed: nothing changes any more */
    gpuserve_status failure; /* the first one; CANCELLED when it was cancelled */
    gpuserve_error error;    /* of it */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;     /* the result is there */
    bool is_released; /* the library will not touch it again */
    bool in_callback;
    bool free_after_callback;
    pthread_t callback_thread;
    gpuserve_status status;
};

static inline struct gsv_tokens gsv_tokens_of(const struct gsv_chunk *chunk,
                                              const struct gsv_item *item)
{
    return (struct gsv_tokens){ .ids = chunk->ids + item->offset,
                                .type_ids = chunk->type_ids ? chunk->type_ids + item->offset : NULL,
                                .n = item->n_tokens };
}

/* When the deadline of a job passes that was submitted then; 0: it has none. */
uint64_t gsv_deadline_ns(int64_t deadline_us, uint64_t submitted_ns);

/* Check, admit, tokenize what is small, and enqueue. `leads`: the caller is going to wait for it,
 * and may run it in its own thread first; it keeps the model from being unloaded. */
gpuserve_status gsv_request_create(gpuserve_request **request, struct gsv_model *model,
                                   const gpuserve_job *job, gpuserve_completion_fn callback,
                                   void *user, bool may_run_inline, uint64_t submitted_ns,
                                   gpuserve_error *error);

/* Once, when nothing of it is in flight or left to take; a worker calls it if there is a callback;
 * it may be gone afterwards. */
void gsv_request_complete(gpuserve_request *request);

/* The calling thread is in a completion callback, of any request: then it must not wait for what
 * may wait for its end. */
bool gsv_in_callback(void);

/* Free it without completing it: what was never enqueued, or was released. */
void gsv_request_destroy(gpuserve_request *request);

/* Drop a chunk's tokens. */
void gsv_chunk_reset(struct gsv_chunk *chunk);

#endif
