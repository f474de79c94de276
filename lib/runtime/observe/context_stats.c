/*
 * context_stats.c - gpuserve_context_stats(), gpuserve_model_stats(), gpuserve_model_batches().
 *
 * The counters of core/metrics.h are read atomically, one by one, without a lock. A snapshot may
 * therefore be inconsistent by the requests in flight.
 */
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/core/metrics.h"
#include "lib/runtime/models/handle.h"

#include <string.h>

/* Histogram summed over all kinds of requests; an approximate snapshot. */
struct times {
    uint64_t counts[GSV_HISTOGRAM_BUCKETS + 1];
    uint64_t n, sum;
};

static struct times read_times(const struct gsv_metrics *metrics, enum gsv_time time)
{
    struct times times = { 0 };

    for (int i = 0; i < 2 * GSV_FAMILIES; i++) {
        const struct gsv_histogram *histogram = &metrics->times[i / 2][i % 2][time];

        for (uint32_t bucket = 0; bucket <= gsv_bounds_time.n; bucket++) {
            const uint64_t count = atomic_load(&histogram->counts[bucket]);

            times.counts[bucket] += count;
            times.n += count;
        }
        times.sum += atomic_load(&histogram->sum);
    }
    return times;
}

/* Linear interpolation of the rank within its bucket; in microseconds. */
static uint64_t quantile_us(const struct times *times, uint64_t per_thousand)
{
    const uint64_t rank = (times->n * per_thousand + 999) / 1000;
    uint64_t below = 0, lower = 0;

    if (times->n == 0)
        return 0;
    for (uint32_t i = 0; i < gsv_bounds_time.n; i++) {
        const uint64_t upper = gsv_bounds_time.upper[i], count = times->counts[i];

        if (count > 0 && below + count >= rank)
            return lower + (upper - lower) * (rank - below) / count;
        below += count;
        lower = upper;
    }
    return lower;
}

static void fill_requests(const struct gsv_metrics *metrics, gpuserve_stats *stats)
{
    for (int family = 0; family < GSV_FAMILIES; family++) {
        const atomic_uint_fast64_t *by_status = metrics->requests[family];
        uint64_t all = 0;

        for (int status = 0; status < GSV_STATUS_COUNT; status++)
            all += atomic_load(&by_status[status]);
        stats->requests += all;
        stats->requests_ok += atomic_load(&by_status[GPUSERVE_OK]);
        stats->requests_busy += atomic_load(&by_status[GPUSERVE_E_BUSY]);
        stats->requests_cancelled += atomic_load(&by_status[GPUSERVE_E_CANCELLED]);
        stats->requests_expired += atomic_load(&by_status[GPUSERVE_E_EXPIRED]);
    }
    stats->requests_failed = stats->requests - stats->requests_ok - stats->requests_busy -
                             stats->requests_cancelled - stats->requests_expired;
}

static void fill_times(const struct gsv_metrics *metrics, gpuserve_stats *stats)
{
    const struct times total = read_times(metrics, GSV_TIME_TOTAL);
    const struct times queue = read_times(metrics, GSV_TIME_QUEUE);

    stats->request_ns = total.sum;
    stats->queue_ns = queue.sum;
    stats->request_p50_us = quantile_us(&total, 500);
    stats->request_p95_us = quantile_us(&total, 950);
    stats->request_p99_us = quantile_us(&total, 990);
    stats->queue_p50_us = quantile_us(&queue, 500);
    stats->queue_p95_us = quantile_us(&queue, 950);
    stats->queue_p99_us = quantile_us(&queue, 990);
}

GPUSERVE_API gpuserve_status gpuserve_context_stats(gpuserve_context *context,
                                                    gpuserve_stats *stats, gpuserve_error *error)
{
    struct gsv_memory memory;
    struct gsv_metrics *m;
    uint32_t size;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(stats, sizeof(*stats), "gpuserve_stats", error);
    if (st != GPUSERVE_OK)
        return st;
    m = &context->metrics;
    size = stats->struct_size;
    memset(stats, 0, sizeof(*stats));
    stats->struct_size = size;
    gsv_metrics_memory(m, &memory);
    gsv_registry_count(context, &stats->n_models, &stats->n_suspended);
    stats->weights_bytes = memory.weights;
    stats->workspace_bytes = memory.workspace;
    stats->stream_bytes = memory.stream;
    stats->host_bytes = memory.host;
    fill_requests(m, stats);
    fill_times(m, stats);
    stats->items = atomic_load(&m->items);
    stats->items_truncated = atomic_load(&m->truncated_items);
    stats->tokens = atomic_load(&m->tokens);
    stats->batches = atomic_load(&m->batches);
    stats->padding_tokens_saved = atomic_load(&m->padding_saved);
    stats->queued_requests = atomic_load(&m->queued_requests);
    stats->queued_tokens = atomic_load(&m->queued_tokens);
    stats->queued_bytes = atomic_load(&m->queued_bytes);
    stats->items_shared = atomic_load(&m->shared_items);
    stats->cache_hits = atomic_load(&m->cache_hits);
    stats->cache_misses = atomic_load(&m->cache_misses);
    stats->cache_bytes = atomic_load(&m->cache_bytes);
    stats->compute_ns = atomic_load(&m->compute_ns);
    stats->tokenize_ns = atomic_load(&m->tokenize_ns);
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_model_stats(gpuserve_model *handle,
                                                  gpuserve_model_counts *counts,
                                                  gpuserve_error *error)
{
    const struct gsv_computed *computed;
    struct gsv_model *model;
    gpuserve_status st = gsv_check_struct(counts, sizeof(*counts), "gpuserve_model_counts", error);

    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    computed = &model->metrics.computed[1];
    counts->batches = atomic_load(&computed->batches);
    counts->items = atomic_load(&computed->items);
    counts->tokens = atomic_load(&computed->tokens);
    counts->compute_ns = atomic_load(&computed->compute_ns);
    gsv_handle_unpin(handle, &model);
    return GPUSERVE_OK;
}

/* Row `i` of the caller's array; struct_size of the first element is the stride. */
static void fill_row(gpuserve_batch_counts *rows, size_t i, uint32_t n_texts,
                     const struct gsv_batch_row *from)
{
    gpuserve_batch_counts *to =
        (gpuserve_batch_counts *)(void *)((char *)rows + i * rows->struct_size);

    to->struct_size = rows->struct_size;
    to->n_texts = n_texts;
    to->batches = atomic_load(&from->batches);
    to->input_ns = atomic_load(&from->ns[GSV_BATCH_INPUT]);
    to->infer_ns = atomic_load(&from->ns[GSV_BATCH_INFER]);
    to->output_ns = atomic_load(&from->ns[GSV_BATCH_OUTPUT]);
}

GPUSERVE_API gpuserve_status gpuserve_model_batches(gpuserve_model *handle,
                                                    gpuserve_batch_counts *rows, size_t capacity,
                                                    size_t *n, gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = GPUSERVE_OK;

    if (!n)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`n` is NULL");
    if (capacity > 0)
        st = gsv_check_struct(rows, sizeof(*rows), "gpuserve_batch_counts", error);
    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    *n = 0;
    for (uint32_t i = 0; i < model->metrics.n_rows; i++) {
        const struct gsv_batch_row *row = &model->metrics.rows[i];

        if (atomic_load(&row->batches) == 0)
            continue;
        if (*n < capacity)
            fill_row(rows, *n, i + 1, row);
        ++*n;
    }
    gsv_handle_unpin(handle, &model);
    return GPUSERVE_OK;
}
