/*
 * metrics.h - counters of a context, updated by any thread without a lock.
 */
#ifndef GSV_RUNTIME_METRICS_H
#define GSV_RUNTIME_METRICS_H

#include <gpuserve/gpuserve.h>

#include <stdatomic.h>
#include <stdbool.h>

#define GSV_STATUS_COUNT (GPUSERVE_E_INTERNAL + 1)
#define GSV_LATENCY_BUCKETS 14

/* Whose bytes: one entry for each field of gpuserve_footprint. */
struct gsv_memory {
    uint64_t weights, workspace, stream, host;
};

struct gsv_metrics {
    atomic_uint_fast64_t requests[GSV_STATUS_COUNT]; /* completed or refused, by status */
    atomic_uint_fast64_t items, tokens;              /* computed */
    atomic_uint_fast64_t batches;
    atomic_uint_fast64_t padding_saved; /* tokens a rectangle around each batch would have added */
    atomic_uint_fast64_t compute_ns, tokenize_ns, request_ns; /* summed over threads */
    atomic_uint_fast64_t latency[GSV_LATENCY_BUCKETS + 1];    /* the last one is the rest */
    atomic_uint_fast64_t queued_requests, queued_tokens;      /* now */
    atomic_uint_fast64_t models;                              /* open now */
    atomic_uint_fast64_t weights_bytes, workspace_bytes, stream_bytes, host_bytes;
};

void gsv_metrics_request(struct gsv_metrics *metrics, gpuserve_status status, uint64_t nanoseconds);
void gsv_metrics_batch(struct gsv_metrics *metrics, uint64_t sequences, uint64_t tokens,
                       uint64_t longest, uint64_t nanoseconds);
void gsv_metrics_memory(struct gsv_metrics *metrics, const struct gsv_memory *memory, bool added);

#endif
