/*
 * request.h - one submission: its job, tokens, results and completion.
 *
 *   gsv_request_create   validates and admits the job, tokenizes a small one
 *   batcher.c            puts its items into batches, in any order, and counts them back
 *   gsv_request_complete copies the results to the caller, once, and notifies all waiters
 *
 * Results are staged in memory of the request. They are copied to the caller's buffers only after
 * all of it was computed, so outputs stay untouched on failure and cancellation.
 */
#ifndef GSV_RUNTIME_REQUEST_H
#define GSV_RUNTIME_REQUEST_H

#include "lib/model/model.h"
#include "lib/runtime/scheduler/outputs.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct gsv_batcher;
struct gsv_model;

/* A flag of a token's type: the token attends to others, but no token attends to it. */
#define GSV_NO_KEY 0x80u

/* The tokens of one text, and the equality that the cache and coalescing use. */
struct gsv_tokens {
    const int32_t *ids;      /* [n] */
    const uint8_t *type_ids; /* [n], NULL: all zero */
    uint32_t n;
};

static inline bool gsv_types_equal(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    if (a && b)
        return memcmp(a, b, n) == 0;
    if (!a)
        a = b;
    for (uint32_t i = 0; a && i < n; i++) {
        if (a[i] != 0)
            return false;
    }
    return true;
}

static inline bool gsv_tokens_equal(const struct gsv_tokens *a, const struct gsv_tokens *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof(*a->ids)) == 0 &&
           gsv_types_equal(a->type_ids, b->type_ids, a->n);
}

/* A link in one of the queue's lists; both NULL: in no list. */
struct gsv_link {
    struct gsv_link *before, *after;
};

/* What the rows of a request depend on besides its tokens. */
struct gsv_batch_key {
    uint32_t tasks; /* GSV_TASK_BIT() of each output */
    int32_t dimensions;
    bool normalize;
    uint32_t score;
    int32_t route;                /* as in gsv_run */
    int32_t adapter;              /* as in gsv_run */
    bool mixes_adapters;          /* a batch may hold texts with different ones */
    int32_t skip;                 /* leading prompt tokens that pooling leaves out */
    struct gsv_head_choice heads; /* as in gsv_run */
    bool drops;                   /* token vectors of skipped words are left out: load_plan.h */
    uint32_t precision;           /* of embeddings; the next two are 0 for FLOAT32 */
    int32_t columns;              /* that are converted */
    uint64_t ranges[2];           /* XXH3-128 of the ranges of INT8 and UINT8; 0: none */
};

/* Requests may share a batch. */
static inline bool gsv_same_batch_key(const struct gsv_batch_key *a, const struct gsv_batch_key *b)
{
    return a->tasks == b->tasks && a->dimensions == b->dimensions && a->normalize == b->normalize &&
           a->score == b->score && a->route == b->route && a->skip == b->skip &&
           (a->adapter == b->adapter || a->mixes_adapters) && a->drops == b->drops &&
           a->precision == b->precision && a->columns == b->columns &&
           a->ranges[0] == b->ranges[0] && a->ranges[1] == b->ranges[1] &&
           memcmp(&a->heads, &b->heads, sizeof(a->heads)) == 0;
}

static inline bool gsv_has_ranges(uint32_t precision)
{
    return precision == GPUSERVE_PRECISION_INT8 || precision == GPUSERVE_PRECISION_UINT8;
}

/* The conversion of the embeddings of a batch. */
static inline struct gsv_compact_run gsv_compact_run_of(const struct gsv_batch_key *key,
                                                        const float *ranges)
{
    const size_t bytes = gpuserve_quantized_bytes(key->precision, (size_t)key->columns);

    if (key->precision == GPUSERVE_PRECISION_FLOAT32)
        return (struct gsv_compact_run){ 0 };
    return (struct gsv_compact_run){ .precision = key->precision,
                                     .columns = key->columns,
                                     .words = (int32_t)((bytes + 3) / 4 + 1),
                                     .ranges = gsv_has_ranges(key->precision) ? ranges : NULL };
}

/* The result cache may hold blocks of these tasks: they follow from the tokens and the key alone.
 */
static inline bool gsv_is_cacheable(const struct gsv_batch_key *key)
{
    return !gsv_has_task(key->tasks, GPUSERVE_TASK_MAX_SIM);
}

/* Equal tokens have equal rows. */
static inline bool gsv_same_row_key(const struct gsv_batch_key *a, const struct gsv_batch_key *b)
{
    return a->adapter == b->adapter && gsv_same_batch_key(a, b);
}

/* Queue capacity that a request reserves. */
struct gsv_queue_reservation {
    uint64_t tokens; /* an estimate from the bytes; exact for ids */
    uint64_t bytes;  /* texts and results */
    uint64_t timed;  /* tokens counted against the limit by time */
    uint64_t work;   /* estimated tokens, without the caps that apply to the others */
    uint64_t used;   /* tokens computed, known at release */
    uint64_t client; /* gpuserve_job.client */
    size_t n_items;
    bool is_small;        /* set by gsv_batcher_admit(): see is_small() in admission.c */
    struct gsv_link link; /* in the batcher's list of large requests, from enqueue to release */
};

/* One text: position of its tokens, and its result. */
struct gsv_item {
    size_t offset; /* of its first token in its chunk */
    size_t row;    /* of its first row in an output by token; else 0 */
    uint64_t hash; /* of its tokens; unset if job.cache is OFF */
    uint32_t n_tokens;
    uint32_t n_rows; /* of an output by token: n_tokens without those of skipped words */
    bool truncated;
    bool is_cached; /* the row comes from the cache or from an equal text in flight */
    int32_t status;
};

enum gsv_chunk_state {
    GSV_CHUNK_RAW,      /* not tokenized yet */
    GSV_CHUNK_ENCODING, /* a thread tokenizes it */
    GSV_CHUNK_READY,    /* its items can be taken */
};

/* Adjacent items that one thread tokenizes together. */
struct gsv_chunk {
    enum gsv_chunk_state state;
    size_t first, end; /* items */
    size_t next;       /* first item that no batch has taken */
    size_t n_left;     /* items not computed yet; at 0 the tokens are freed */
    int32_t *ids;
    uint8_t *type_ids; /* NULL: all zero; GSV_NO_KEY may be set in each */
    size_t n_tokens;
    size_t n_cached;      /* items found in the cache, which no batch takes */
    size_t cached_tokens; /* tokens of these */
    bool is_owned;        /* false: `ids` are the caller's */
};

struct gpuserve_request {
    gpuserve_context *context;   /* shared */
    struct gsv_batcher *batcher; /* shared: outlives the model */
    gpuserve_job job;            /* a copy; pointers are borrowed, except for: */
    char *prompt;                /* owned, or NULL; replaces prompt_name too */
    gpuserve_completion_fn callback;
    void *user;
    struct gsv_batch_key key;
    enum gsv_role role; /* of its texts */
    bool fills;         /* they are queries that are filled up with expansion tokens */
    struct gsv_outputs outputs;
    struct gsv_item *items;   /* [job.n_items] */
    struct gsv_chunk *chunks; /* [n_chunks] */
    size_t n_chunks;
    float *staging;                           /* the blocks of all items, see outputs.h */
    size_t n_token_rows;                      /* of an output by token */
    struct gsv_queue_reservation reservation; /* as admitted */
    uint64_t submitted_ns;                    /* times of gsv_now_ns() */
    uint64_t enqueued_ns;
    uint64_t deadline_ns; /* 0: none */
    atomic_uint_fast64_t tokenize_ns;
    atomic_uint_fast64_t tokenized_ns; /* end of the latest tokenization; 0: none */
    gpuserve_result result;            /* fields known in advance; for job.result */
    const struct gsv_plan *plan;       /* of its model, whose unload waits for this request */

    /* Under the batcher's lock. */
    struct gsv_link ready; /* in its class, exactly while ready_tokens > 0 */
    struct gsv_link raw;   /* in its class, exactly while next_raw < n_chunks */
    struct gpuserve_request *next_to_complete;
    uint64_t first_run_ns;   /* time when its first item was taken; 0: none yet */
    uint64_t last_run_ns;    /* end of its last batch */
    size_t first_chunk;      /* every chunk before it is entirely taken */
    size_t next_raw;         /* first chunk whose tokenization has not started */
    size_t ready_tokens;     /* tokenized and not taken */
    size_t n_untaken;        /* items */
    size_t n_in_flight;      /* items in batches plus chunks in tokenization */
    uint64_t traced_batch;   /* id of the last batch in job.trace; 0: none */
    uint64_t replicas;       /* bit i: replica i computed some of its items */
    uint64_t query_batch;    /* id of the last batch with query_vectors of this request; 0: none */
    int32_t query_row;       /* of these, in that batch */
    bool is_ending;          /* in completion or completed: no state changes any more */
    gpuserve_status failure; /* the first one; CANCELLED replaces an earlier one */
    gpuserve_error error;    /* of that failure */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;     /* the result is available */
    bool is_released; /* the library does not access it any more */
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

/* The block of item `i` in the staging memory. */
static inline float *gsv_block_of(const gpuserve_request *request, size_t i)
{
    return request->staging + i * request->outputs.text_floats +
           request->items[i].row * request->outputs.token_floats;
}

/* The floats of an item's block. */
static inline size_t gsv_block_floats(const struct gsv_outputs *outputs,
                                      const struct gsv_item *item)
{
    return outputs->text_floats + item->n_rows * outputs->token_floats;
}

/* Deadline of a job submitted at `submitted_ns`; 0: none. */
uint64_t gsv_deadline_ns(int64_t deadline_us, uint64_t submitted_ns);

/* Validate, admit, tokenize a small job, and enqueue. `may_run_inline`: the caller will wait for
 * the request, may run a batch inline first, and keeps the model from being unloaded. */
gpuserve_status gsv_request_create(gpuserve_request **request, struct gsv_model *model,
                                   const gpuserve_job *job, gpuserve_completion_fn callback,
                                   void *user, bool may_run_inline, uint64_t submitted_ns,
                                   gpuserve_error *error);

/* Call once, when nothing of the request is in flight or left to take. A worker must call it if the
 * request has a callback. The request may be freed on return. */
void gsv_request_complete(gpuserve_request *request);

/* The calling thread is in a completion callback of any request. It must not wait for anything that
 * may wait for the callback's end. */
bool gsv_in_callback(void);

/* Free a request that was never enqueued, or was released, without completing it. */
void gsv_request_destroy(gpuserve_request *request);

/* Free a chunk's tokens. */
void gsv_chunk_reset(struct gsv_chunk *chunk);

/* Validation of a job against its model, before admission and tokenization. */

/* Sizes and parameters derived from a job. */
struct gsv_job_size {
    struct gsv_batch_key key;
    struct gsv_outputs outputs;
    struct gsv_queue_reservation reservation;
    const char *prompt; /* borrowed from the job or the model; NULL or empty: none */
    enum gsv_role role; /* as in gpuserve_request, and the next */
    bool fills;
};

/* Check everything except the texts' bytes: fields, pointers, sizes. */
gpuserve_status gsv_job_check(const struct gsv_model *model, const gpuserve_job *job,
                              struct gsv_job_size *size, gpuserve_error *error);

/* Check that the tokens of a text have the one whose vector the classifier reads, if `tasks`
 * classify and the model has such a token (BART). */
gpuserve_status gsv_job_check_end(const struct gsv_spec_facts *facts, uint32_t tasks,
                                  const int32_t *ids, size_t n, gpuserve_error *error);

/* Check that texts are UTF-8, and ids within the vocabulary with that token. */
gpuserve_status gsv_job_check_content(const struct gsv_model *model, const gpuserve_job *job,
                                      const struct gsv_job_size *size, gpuserve_error *error);

/* Text i, or its pair (NULL if the job has no pairs). */
const char *gsv_job_text(const gpuserve_job *job, size_t i, size_t *size);
const char *gsv_job_pair(const gpuserve_job *job, size_t i, size_t *size);

#endif
