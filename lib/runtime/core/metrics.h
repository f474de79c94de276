/*
 * metrics.h - metrics of a context: requests, items, tokens, times, memory.
 *
 *   scheduler/, models/, api/run.c --count--> gsv_metrics --read--> gpuserve_context_stats
 *                                                             `---> gpuserve_context_metrics
 *
 * Counters are atomic: any thread updates them without a lock. Only the list of open models has a
 * lock. Each kind of histogram has fixed bounds (gsv_bounds_*), so an update is a search in a short
 * table and two additions.
 */
#ifndef GSV_RUNTIME_METRICS_H
#define GSV_RUNTIME_METRICS_H

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define GSV_STATUS_COUNT (GPUSERVE_E_MISMATCH + 1)
#define GSV_HISTOGRAM_BUCKETS 20

/* Upper bounds in ascending order; the first `n` are valid. */
struct gsv_bounds {
    uint32_t n;
    uint64_t upper[GSV_HISTOGRAM_BUCKETS];
};

extern const struct gsv_bounds gsv_bounds_time; /* microseconds; observed values are nanoseconds */
extern const struct gsv_bounds gsv_bounds_tokens; /* of a text or a batch */
extern const struct gsv_bounds gsv_bounds_texts;  /* of a batch */

struct gsv_histogram {
    atomic_uint_fast64_t counts[GSV_HISTOGRAM_BUCKETS + 1]; /* [bounds->n] is the overflow bucket */
    atomic_uint_fast64_t sum;
};

/* Phase of a request's time. */
enum gsv_time { GSV_TIME_TOTAL, GSV_TIME_TOKENIZE, GSV_TIME_QUEUE, GSV_TIME_COMPUTE, GSV_TIMES };

/* Kind of request: a label of the series. */
enum gsv_task_family { GSV_FAMILY_EMBED, GSV_FAMILY_CLASSIFY, GSV_FAMILIES };

/* Bytes by purpose: one field for each of gpuserve_footprint. */
struct gsv_memory {
    uint64_t weights, workspace, stream, host;
};

/* Phase of a batch's time. */
enum gsv_batch_time { GSV_BATCH_INPUT, GSV_BATCH_INFER, GSV_BATCH_OUTPUT, GSV_BATCH_TIMES };

/* Successful batches of one size in texts. */
struct gsv_batch_row {
    atomic_uint_fast64_t batches, ns[GSV_BATCH_TIMES];
};

#define GSV_MODEL_NAME_BYTES 192
#define GSV_DEVICES_BYTES 512

/* Metrics of one open model, and the labels of its series. Embedded in the model; in the list while
 * the model is open. Only the counters change, and device and memory after a device loss. */
struct gsv_model_metrics {
    struct gsv_model_metrics *next;
    char name[GSV_MODEL_NAME_BYTES]; /* UTF-8 */
    char device[GSV_DEVICES_BYTES];  /* device selector: "cuda:0,cuda:1" for replicas */
    const char *dtype;
    struct gsv_memory memory; /* on these devices */
    struct gsv_computed {
        atomic_uint_fast64_t items, tokens, batches, compute_ns;
    } computed[2];              /* [1]: in successful batches */
    struct gsv_batch_row *rows; /* [n_rows] by number of texts, from 1 on */
    uint32_t n_rows;            /* maximum texts of a batch */
};

struct gsv_metrics {
    atomic_uint_fast64_t requests[GSV_FAMILIES][GSV_STATUS_COUNT]; /* completed or rejected */
    struct gsv_histogram times[GSV_FAMILIES][2][GSV_TIMES];        /* [1]: of successful requests */
    /* Times added by the second and later texts of successful requests, so that times can be
     * counted for each text, too. */
    struct gsv_histogram more_texts[GSV_FAMILIES][GSV_TIMES];
    atomic_uint_fast64_t texts[GSV_FAMILIES][2]; /* requested; [1]: successfully */
    struct gsv_histogram text_tokens, batch_tokens, batch_texts;
    atomic_uint_fast64_t items, truncated_items, tokens, batches; /* computed */
    atomic_uint_fast64_t padding_saved; /* tokens that padding to the longest text would add */
    atomic_uint_fast64_t compute_ns, tokenize_ns;                      /* summed over threads */
    atomic_uint_fast64_t queued_requests, queued_tokens, queued_bytes; /* now */
    atomic_uint_fast64_t shared_items; /* coalesced: copied the row of an equal text in flight */
    atomic_uint_fast64_t cache_hits, cache_misses;
    atomic_uint_fast64_t cache_bytes;                /* now */
    atomic_uint_fast64_t devices_lost, models_moved; /* counted once for each model */
    atomic_uint_fast64_t models_lost;                /* open at present and unusable */
    atomic_uint_fast64_t replicas_lost;              /* of open models that serve without them */
    atomic_uint_fast64_t batches_retried; /* retried on another replica after the first was lost */

    pthread_mutex_t lock;             /* of the list */
    struct gsv_model_metrics *models; /* open models, newest first */
};

void gsv_metrics_init(struct gsv_metrics *metrics);
void gsv_metrics_reset(struct gsv_metrics *metrics);

void gsv_histogram_add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds,
                       uint64_t value);

/* A completed or rejected request. */
struct gsv_request_facts {
    uint32_t task;  /* gpuserve_task; any other value counts as EMBED */
    size_t n_items; /* 0 counts as one text */
    gpuserve_status status;
    bool was_queued;        /* false: rejected, with neither queue nor compute time */
    uint64_t ns[GSV_TIMES]; /* by gsv_time */
};
void gsv_metrics_request(struct gsv_metrics *metrics, const struct gsv_request_facts *facts);

/* A finished batch, successful or not. */
struct gsv_batch_facts {
    bool is_ok;
    uint64_t sequences, tokens, longest;
    uint64_t all_ns, ns[GSV_BATCH_TIMES];
};
void gsv_metrics_batch(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                       const struct gsv_batch_facts *facts);
/* One text of a batch. */
void gsv_metrics_item(struct gsv_metrics *metrics, uint64_t tokens, bool truncated);

/* Allocate the rows for batches of up to `sequences_limit` texts. False: out of memory. */
bool gsv_metrics_model_init(struct gsv_model_metrics *model, uint32_t sequences_limit);
void gsv_metrics_model_reset(struct gsv_model_metrics *model);

/* Name an open model and list it until it is removed. `name` is cut at the first byte that is not
 * UTF-8. */
void gsv_metrics_model_add(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                           const char *name);
void gsv_metrics_model_remove(struct gsv_metrics *metrics, struct gsv_model_metrics *model);

/* Set the device of an open model and the memory it takes there. */
void gsv_metrics_model_set_memory(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                                  const char *device, const struct gsv_memory *memory);

/* Bytes of all open models that are not suspended. */
void gsv_metrics_memory(struct gsv_metrics *metrics, struct gsv_memory *memory);

/* Number of devices in a model's `device` list if it contains `device`; else 0. */
uint32_t gsv_metrics_sharers(const char *list, const char *device);

/* Bytes that the open models hold on one device, by its selector; "cpu" includes the host memory of
 * all models. */
uint64_t gsv_metrics_held(struct gsv_metrics *metrics, const char *device);

#endif
