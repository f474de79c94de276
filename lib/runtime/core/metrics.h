/*
 * metrics.h - what a context counts: requests, items, tokens, times, memory. Any thread adds to it
 * without a lock; only the list of open models has one.
 *
 *   request.c, worker.c, batcher.c --counts--> gsv_metrics --read--> gpuserve_context_stats
 *                                                            `-----> gpuserve_context_metrics
 *
 * A histogram's bounds belong to its kind (gsv_bounds_*), so that counting is one search in a
 * short table and two additions.
 */
#ifndef GSV_RUNTIME_METRICS_H
#define GSV_RUNTIME_METRICS_H

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define GSV_STATUS_COUNT (GPUSERVE_E_MISMATCH + 1)
#define GSV_HISTOGRAM_BUCKETS 20

/* Upper bounds, rising; `n` of them count. */
struct gsv_bounds {
    uint32_t n;
    uint64_t upper[GSV_HISTOGRAM_BUCKETS];
};

extern const struct gsv_bounds gsv_bounds_time;   /* microseconds; what is counted is nanoseconds */
extern const struct gsv_bounds gsv_bounds_tokens; /* of a text or a batch */
extern const struct gsv_bounds gsv_bounds_texts;  /* of a batch */

struct gsv_histogram {
    atomic_uint_fast64_t counts[GSV_HISTOGRAM_BUCKETS + 1]; /* [bounds->n] is the rest */
    atomic_uint_fast64_t sum;
};

/* Which part of a request's time. */
enum gsv_time { GSV_TIME_TOTAL, GSV_TIME_TOKENIZE, GSV_TIME_QUEUE, GSV_TIME_COMPUTE, GSV_TIMES };

/* What kind of request, as the series are told apart. */
enum gsv_family { GSV_FAMILY_EMBED, GSV_FAMILY_CLASSIFY, GSV_FAMILIES };

/* Whose bytes: one entry for each field of gpuserve_footprint. */
struct gsv_memory {
    uint64_t weights, workspace, stream, host;
};

/* What a batch's time goes to. */
enum gsv_batch_time { GSV_BATCH_INPUT, GSV_BATCH_INFER, GSV_BATCH_OUTPUT, GSV_BATCH_TIMES };

/* Those of one number of texts that did not fail. */
struct gsv_batch_row {
    atomic_uint_fast64_t batches, ns[GSV_BATCH_TIMES];
};

#define GSV_MODEL_NAME_BYTES 192
#define GSV_DEVICES_BYTES 512

/* An open model: what its series are labelled with. Embedded in the model; in the list while open.
 * Constant but for the counters, and for device and memory when a device is lost. */
struct gsv_model_metrics {
    struct gsv_model_metrics *next;
    char name[GSV_MODEL_NAME_BYTES]; /* UTF-8 */
    char device[GSV_DEVICES_BYTES];  /* its selector: "cuda:0,cuda:1" for replicas */
    const char *dtype;
    struct gsv_memory memory; /* on these devices */
    struct gsv_computed {
        atomic_uint_fast64_t items, tokens, batches, compute_ns;
    } computed[2];              /* [1] in batches that did not fail */
    struct gsv_batch_row *rows; /* [n_rows] by the number of texts, from 1 on */
    uint32_t n_rows;            /* the most texts of a batch */
};

struct gsv_metrics {
    atomic_uint_fast64_t requests[GSV_FAMILIES][GSV_STATUS_COUNT]; /* completed or refused */
    struct gsv_histogram times[GSV_FAMILIES][2][GSV_TIMES];        /* [1] of those that succeeded */
    /* What a second text of a successful request and those behind it add to its time, so that the
     * times of texts can be told too. */
    struct gsv_histogram more_texts[GSV_FAMILIES][GSV_TIMES];
    atomic_uint_fast64_t texts[GSV_FAMILIES][2]; /* asked for, [1] successfully */
    struct gsv_histogram text_tokens, batch_tokens, batch_texts;
    atomic_uint_fast64_t items, truncated_items, tokens, batches; /* computed */
    atomic_uint_fast64_t padding_saved; /* tokens a rectangle around each batch would have added */
    atomic_uint_fast64_t compute_ns, tokenize_ns;                      /* summed over threads */
    atomic_uint_fast64_t queued_requests, queued_tokens, queued_bytes; /* now */
    atomic_uint_fast64_t shared_items; /* that got the row of an equal text in flight */
    atomic_uint_fast64_t cache_hits, cache_misses;
    atomic_uint_fast64_t cache_bytes;                /* now */
    atomic_uint_fast64_t devices_lost, models_moved; /* counted once for each model */
    atomic_uint_fast64_t models_lost;                /* open now and of no use */
    atomic_uint_fast64_t replicas_lost;              /* of open models that serve without them */
    atomic_uint_fast64_t batches_retried; /* on another replica than the one lost with them */

    pthread_mutex_t lock;             /* of the list */
    struct gsv_model_metrics *models; /* open ones, the newest first */
};

void gsv_metrics_init(struct gsv_metrics *metrics);
void gsv_metrics_reset(struct gsv_metrics *metrics);

void gsv_histogram_add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds,
                       uint64_t value);

/* A request that completed or was refused. */
struct gsv_request_facts {
    uint32_t task;  /* gpuserve_task; anything else counts as EMBED */
    size_t n_items; /* a request of none counts as one text */
    gpuserve_status status;
    bool was_queued;        /* false: refused, so there was neither queue nor compute */
    uint64_t ns[GSV_TIMES]; /* by gsv_time */
};
void gsv_metrics_request(struct gsv_metrics *metrics, const struct gsv_request_facts *facts);

/* A batch that ran, well or not. */
struct gsv_batch_facts {
    bool is_ok;
    uint64_t sequences, tokens, longest;
    uint64_t all_ns, ns[GSV_BATCH_TIMES];
};
void gsv_metrics_batch(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                       const struct gsv_batch_facts *facts);
/* One text of it. */
void gsv_metrics_item(struct gsv_metrics *metrics, uint64_t tokens, bool truncated);

/* Room for the rows of a model with batches of so many texts at most. False: out of memory. */
bool gsv_metrics_model_init(struct gsv_model_metrics *model, uint32_t sequences_limit);
void gsv_metrics_model_reset(struct gsv_model_metrics *model);

/* Name and count an open model until it is removed. What is not UTF-8 of `name` is cut off. */
void gsv_metrics_model_add(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                           const char *name);
void gsv_metrics_model_remove(struct gsv_metrics *metrics, struct gsv_model_metrics *model);

/* Where an open model is, and what it takes there. */
void gsv_metrics_model_place(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                             const char *device, const struct gsv_memory *memory);

/* Bytes of all open models that are not suspended. */
void gsv_metrics_memory(struct gsv_metrics *metrics, struct gsv_memory *memory);

/* How many devices a model's `device` lists, when this one is among them; else 0. */
uint32_t gsv_metrics_sharers(const char *list, const char *device);

/* Bytes on one device, by its selector, of the open models; "cpu" has the host memory of all. */
uint64_t gsv_metrics_held(struct gsv_metrics *metrics, const char *device);

#endif
