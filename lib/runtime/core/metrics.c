/*
 * metrics.c - counting, and the figures of gpuserve_context_stats() and gpuserve_model_stats().
 */
#include "lib/runtime/core/metrics.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/structs.h"
#include "lib/base/utf8.h"
#include "lib/runtime/context.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/models/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gsv_bounds gsv_bounds_time = {
    20, { 10,    25,    50,     100,    250,    500,     1000,    2500,    5000,     10000,
          25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 60000000 }
};
const struct gsv_bounds gsv_bounds_tokens = {
    17, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536 }
};
const struct gsv_bounds gsv_bounds_texts = {
    13, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 }
};

void gsv_metrics_init(struct gsv_metrics *metrics)
{
    pthread_mutex_init(&metrics->lock, NULL);
}

void gsv_metrics_reset(struct gsv_metrics *metrics)
{
    pthread_mutex_destroy(&metrics->lock);
}

static void add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds, uint64_t value,
                uint64_t times)
{
    const uint64_t scale = bounds == &gsv_bounds_time ? 1000 : 1;
    uint32_t bucket = 0;

    while (bucket < bounds->n && value > bounds->upper[bucket] * scale)
        bucket++;
    atomic_fetch_add(&histogram->counts[bucket], times);
    atomic_fetch_add(&histogram->sum, value * times);
}

void gsv_histogram_add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds,
                       uint64_t value)
{
    add(histogram, bounds, value, 1);
}

void gsv_metrics_request(struct gsv_metrics *metrics, const struct gsv_request_facts *facts)
{
    const enum gsv_family family =
        facts->task == GPUSERVE_TASK_CLASSIFY || facts->task == GPUSERVE_TASK_TOKEN_LABELS
            ? GSV_FAMILY_CLASSIFY
            : GSV_FAMILY_EMBED;
    const size_t status = (size_t)facts->status < GSV_STATUS_COUNT ? (size_t)facts->status
                                                                   : (size_t)GPUSERVE_E_INTERNAL;
    const bool is_ok = facts->status == GPUSERVE_OK;
    const size_t n_texts = facts->n_items > 0 ? facts->n_items : 1;

    atomic_fetch_add(&metrics->requests[family][status], 1);
    atomic_fetch_add(&metrics->texts[family][is_ok], n_texts);
    for (int time = 0; time < GSV_TIMES; time++) {
        if (time != GSV_TIME_TOTAL && !facts->was_queued)
            continue;
        add(&metrics->times[family][is_ok][time], &gsv_bounds_time, facts->ns[time], 1);
        if (is_ok && n_texts > 1)
            add(&metrics->more_texts[family][time], &gsv_bounds_time, facts->ns[time], n_texts - 1);
    }
}

static void add_to_size(struct gsv_model_metrics *model, const struct gsv_batch_facts *facts)
{
    struct gsv_batch_row *row;

    if (facts->sequences - 1 >= model->n_rows) /* 0 too */
        return;
    row = &model->rows[facts->sequences - 1];
    atomic_fetch_add(&row->batches, 1);
    for (int time = 0; time < GSV_BATCH_TIMES; time++)
        atomic_fetch_add(&row->ns[time], facts->ns[time]);
}

void gsv_metrics_batch(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                       const struct gsv_batch_facts *facts)
{
    struct gsv_computed *computed = &model->computed[facts->is_ok];

    atomic_fetch_add(&metrics->batches, 1);
    atomic_fetch_add(&metrics->items, facts->sequences);
    atomic_fetch_add(&metrics->tokens, facts->tokens);
    atomic_fetch_add(&metrics->padding_saved, facts->sequences * facts->longest - facts->tokens);
    atomic_fetch_add(&metrics->compute_ns, facts->all_ns);
    gsv_histogram_add(&metrics->batch_texts, &gsv_bounds_texts, facts->sequences);
    gsv_histogram_add(&metrics->batch_tokens, &gsv_bounds_tokens, facts->tokens);
    atomic_fetch_add(&computed->batches, 1);
    atomic_fetch_add(&computed->items, facts->sequences);
    atomic_fetch_add(&computed->tokens, facts->tokens);
    atomic_fetch_add(&computed->compute_ns, facts->all_ns);
    if (facts->is_ok)
        add_to_size(model, facts);
}

void gsv_metrics_item(struct gsv_metrics *metrics, uint64_t tokens, bool truncated)
{
    gsv_histogram_add(&metrics->text_tokens, &gsv_bounds_tokens, tokens);
    if (truncated)
        atomic_fetch_add(&metrics->truncated_items, 1);
}

bool gsv_metrics_model_init(struct gsv_model_metrics *model, uint32_t sequences_limit)
{
    model->rows = gsv_alloc_array(sequences_limit, sizeof(*model->rows));
    model->n_rows = model->rows ? sequences_limit : 0;
    return model->rows != NULL;
}

void gsv_metrics_model_reset(struct gsv_model_metrics *model)
{
    free(model->rows);
    model->rows = NULL;
    model->n_rows = 0;
}

void gsv_metrics_model_add(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                           const char *name)
{
    size_t length = strnlen(name, sizeof(model->name) - 1);

    length = gsv_utf8_valid_length(name, length);
    memcpy(model->name, name, length);
    model->name[length] = '\0';
    pthread_mutex_lock(&metrics->lock);
    model->next = metrics->models;
    metrics->models = model;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_model_remove(struct gsv_metrics *metrics, struct gsv_model_metrics *model)
{
    struct gsv_model_metrics **at = &metrics->models;

    pthread_mutex_lock(&metrics->lock);
    while (*at && *at != model)
        at = &(*at)->next;
    if (*at)
        *at = model->next;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_model_place(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                             const char *device, const struct gsv_memory *memory)
{
    pthread_mutex_lock(&metrics->lock);
    snprintf(model->device, sizeof(model->device), "%s", device);
    model->memory = *memory;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_memory(struct gsv_metrics *metrics, struct gsv_memory *memory)
{
    memset(memory, 0, sizeof(*memory));
    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next) {
        memory->weights += m->memory.weights;
        memory->workspace += m->memory.workspace;
        memory->stream += m->memory.stream;
        memory->host += m->memory.host;
    }
    pthread_mutex_unlock(&metrics->lock);
}

uint32_t gsv_metrics_sharers(const char *list, const char *device)
{
    const size_t length = strlen(device);
    uint32_t n = 0;
    bool is_there = false;

    for (const char *at = list;; at++) {
        const size_t word = strcspn(at, ",");

        n++;
        is_there = is_there || (word == length && strncmp(at, device, length) == 0);
        at += word;
        if (*at == '\0')
            return is_there ? n : 0;
    }
}

uint64_t gsv_metrics_held(struct gsv_metrics *metrics, const char *device)
{
    const bool is_cpu = strcmp(device, "cpu") == 0;
    uint64_t held = 0;

    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next) {
        const uint32_t sharers = gsv_metrics_sharers(m->device, device);

        if (sharers > 0)
            held += (m->memory.weights + m->memory.workspace + m->memory.stream) / sharers;
        if (is_cpu)
            held += m->memory.host;
    }
    pthread_mutex_unlock(&metrics->lock);
    return held;
}

/* -------------------------------------------------------------------------------------- stats */

/* The sum over all kinds of requests, at one moment as good as there is one without a lock. */
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

/* Of the bucket that holds it, as far in as its rank; in microseconds. */
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

/* The row at `i` of the caller's array, whose elements are as large as their struct_size says. */
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
