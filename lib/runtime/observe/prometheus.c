/*
 * prometheus.c - gpuserve_context_metrics(): all counters of a context in Prometheus text format.
 *
 * The number of samples is bounded. Labels are statuses, purposes, devices and names of open
 * models: MAX_MODELS of them are distinguished, the rest are summed as "other". Counters are read
 * atomically; the list of models is read under the lock of the metrics.
 */
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/observe/prometheus_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of series is bounded; this limit only guards against a bug. */
#define MAX_PAGE_BYTES (4u << 20)

#define MAX_MODELS 64

/* ----------------------------------------------------------------------------------- requests */

/* Label value: "GPUSERVE_E_BUSY" becomes "busy". */
static void add_requests(struct gsv_buffer *page, const struct gsv_metrics *metrics)
{
    const char *const metric = "gpuserve_requests_total";

    gsv_page_head(page, metric, "counter", "Requests completed or rejected.");
    for (int status = 0; status < GSV_STATUS_COUNT; status++) {
        const char *name = gpuserve_status_name((gpuserve_status)status) + strlen("GPUSERVE_");
        uint64_t n = 0;
        char label[32];
        size_t length = 0;

        name += strncmp(name, "E_", 2) == 0 ? 2 : 0;
        for (; name[length] && length + 1 < sizeof(label); length++)
            label[length] = name[length] >= 'A' && name[length] <= 'Z' ? (char)(name[length] + 32)
                                                                       : name[length];
        label[length] = '\0';
        for (int family = 0; family < GSV_FAMILIES; family++)
            n += atomic_load(&metrics->requests[family][status]);
        gsv_buffer_format(page, "%s{result=\"%s\"} %" PRIu64 "\n", metric, label, n);
    }
}

static void add_times(struct gsv_buffer *page, const struct gsv_metrics *metrics)
{
    static const struct {
        enum gsv_time time;
        const char *name, *help;
    } rows[] = {
        { GSV_TIME_TOTAL, "gpuserve_request_seconds",
          "Request time from submission to completion." },
        { GSV_TIME_TOKENIZE, "gpuserve_request_tokenize_seconds",
          "Tokenization time of a request, summed over threads." },
        { GSV_TIME_QUEUE, "gpuserve_request_queue_seconds",
          "Queue time of a request, until its first text is in a batch." },
        { GSV_TIME_COMPUTE, "gpuserve_request_compute_seconds",
          "Compute time of a request, from its first batch to its completion." },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gsv_histogram *const parts[] = {
            &metrics->times[GSV_FAMILY_EMBED][0][rows[i].time],
            &metrics->times[GSV_FAMILY_EMBED][1][rows[i].time],
            &metrics->times[GSV_FAMILY_CLASSIFY][0][rows[i].time],
            &metrics->times[GSV_FAMILY_CLASSIFY][1][rows[i].time],
        };

        gsv_page_histogram(page, rows[i].name, rows[i].help, &gsv_bounds_time, parts, 4);
    }
}

static void add_seconds(struct gsv_buffer *page, const char *name, const char *help,
                        uint64_t nanoseconds)
{
    gsv_page_head(page, name, "counter", help);
    gsv_buffer_format(page, "%s ", name);
    gsv_page_decimal(page, nanoseconds, 9);
    gsv_buffer_format(page, "\n");
}

static void add_sizes(struct gsv_buffer *page, const struct gsv_metrics *m)
{
    const struct gsv_histogram *text_tokens = &m->text_tokens, *batch_tokens = &m->batch_tokens,
                               *batch_texts = &m->batch_texts;

    gsv_page_histogram(page, "gpuserve_text_tokens", "Tokens per text, after truncation.",
                       &gsv_bounds_tokens, &text_tokens, 1);
    gsv_page_histogram(page, "gpuserve_batch_tokens", "Tokens per batch.", &gsv_bounds_tokens,
                       &batch_tokens, 1);
    gsv_page_histogram(page, "gpuserve_batch_texts", "Texts per batch.", &gsv_bounds_texts,
                       &batch_texts, 1);
}

static void add_counters(struct gsv_buffer *page, const struct gsv_metrics *m)
{
    const struct gsv_page_row rows[] = {
        { "gpuserve_queue_requests", "gauge", "Requests not yet completed.",
          atomic_load(&m->queued_requests) },
        { "gpuserve_queue_tokens", "gauge", "Estimated tokens of the requests not yet completed.",
          atomic_load(&m->queued_tokens) },
        { "gpuserve_queue_bytes", "gauge",
          "Bytes of the texts and results of the requests not yet completed.",
          atomic_load(&m->queued_bytes) },
        { "gpuserve_items_shared_total", "counter", "Texts coalesced with an equal text in flight.",
          atomic_load(&m->shared_items) },
        { "gpuserve_cache_hits_total", "counter", "Texts found in the result cache.",
          atomic_load(&m->cache_hits) },
        { "gpuserve_cache_misses_total", "counter", "Texts not found in the result cache.",
          atomic_load(&m->cache_misses) },
        { "gpuserve_devices_lost_total", "counter",
          "Lost devices, counted once per model that used the device.",
          atomic_load(&m->devices_lost) },
        { "gpuserve_models_moved_total", "counter",
          "Models moved from a lost device to another device.", atomic_load(&m->models_moved) },
        { "gpuserve_models_lost", "gauge", "Open models whose device is lost.",
          atomic_load(&m->models_lost) },
        { "gpuserve_replicas_lost", "gauge",
          "Lost replicas of open models that continue on their other devices.",
          atomic_load(&m->replicas_lost) },
        { "gpuserve_batches_rerun_total", "counter",
          "Batches computed again on another device after a device was lost.",
          atomic_load(&m->batches_retried) },
        { "gpuserve_cache_bytes", "gauge", "Bytes of the result caches of open models.",
          atomic_load(&m->cache_bytes) },
    };

    gsv_page_number(page, "gpuserve_items_total", "counter", "Texts computed.",
                    atomic_load(&m->items));
    gsv_page_number(page, "gpuserve_items_truncated_total", "counter",
                    "Texts truncated at the token limit.", atomic_load(&m->truncated_items));
    gsv_page_number(page, "gpuserve_tokens_total", "counter", "Tokens computed.",
                    atomic_load(&m->tokens));
    gsv_page_number(page, "gpuserve_batches_total", "counter", "Batches computed.",
                    atomic_load(&m->batches));
    gsv_page_number(page, "gpuserve_padding_tokens_saved_total", "counter",
                    "Padding tokens avoided, compared with padding each batch to its longest text.",
                    atomic_load(&m->padding_saved));
    add_seconds(page, "gpuserve_compute_seconds_total",
                "Compute time of batches, summed over threads.", atomic_load(&m->compute_ns));
    add_seconds(page, "gpuserve_tokenize_seconds_total", "Tokenization time, summed over threads.",
                atomic_load(&m->tokenize_ns));
    gsv_page_numbers(page, rows, sizeof(rows) / sizeof(rows[0]));
}

/* ------------------------------------------------------------------------------------- models */

/* Open models of equal name, device and dtype share a row: a series must be unique. */
struct model_row {
    char name[GSV_MODEL_NAME_BYTES];
    char device[GSV_DEVICES_BYTES];
    const char *dtype;
    uint64_t models, items, tokens, batches, compute_ns;
    struct gsv_memory memory;
};

static void add_to_row(struct model_row *row, const struct gsv_model_metrics *m)
{
    row->models++;
    for (int is_ok = 0; is_ok < 2; is_ok++) {
        row->items += atomic_load(&m->computed[is_ok].items);
        row->tokens += atomic_load(&m->computed[is_ok].tokens);
        row->batches += atomic_load(&m->computed[is_ok].batches);
        row->compute_ns += atomic_load(&m->computed[is_ok].compute_ns);
    }
    row->memory.weights += m->memory.weights;
    row->memory.workspace += m->memory.workspace;
    row->memory.stream += m->memory.stream;
    row->memory.host += m->memory.host;
}

static struct model_row *row_of(struct model_row *rows, size_t *n,
                                const struct gsv_model_metrics *m)
{
    struct model_row *row = rows;
    const bool full = *n == MAX_MODELS;

    for (; row < rows + *n; row++) {
        if (strcmp(row->name, m->name) == 0 && strcmp(row->device, m->device) == 0 &&
            strcmp(row->dtype, m->dtype) == 0)
            return row;
    }
    if (full) { /* the row after the last is "other" */
        snprintf(row->name, sizeof(row->name), "other");
        snprintf(row->device, sizeof(row->device), "other");
        row->dtype = "other";
        return row;
    }
    memcpy(row->name, m->name, sizeof(row->name));
    memcpy(row->device, m->device, sizeof(row->device));
    row->dtype = m->dtype;
    ++*n;
    return row;
}

static void add_model_labels(struct gsv_buffer *page, const char *metric,
                             const struct model_row *row)
{
    gsv_buffer_format(page, "%s{", metric);
    gsv_page_label(page, "model", row->name);
    gsv_buffer_format(page, ",");
    gsv_page_label(page, "device", row->device);
    gsv_buffer_format(page, ",");
    gsv_page_label(page, "dtype", row->dtype);
}

static void add_model_series(struct gsv_buffer *page, const struct model_row *rows, size_t n,
                             const char *metric, const char *kind, const char *help, size_t offset,
                             int digits)
{
    gsv_page_head(page, metric, kind, help);
    for (size_t i = 0; i < n; i++) {
        uint64_t value;

        memcpy(&value, (const char *)&rows[i] + offset, sizeof(value));
        add_model_labels(page, metric, &rows[i]);
        gsv_buffer_format(page, "} ");
        gsv_page_decimal(page, value, digits);
        gsv_buffer_format(page, "\n");
    }
}

static void add_model_memory(struct gsv_buffer *page, const struct model_row *rows, size_t n)
{
    static const char *const purposes[] = { "weights", "workspace", "stream", "host" };
    const char *const metric = "gpuserve_model_memory_bytes";

    gsv_page_head(page, metric, "gauge", "Memory of open models, by model and purpose.");
    for (size_t i = 0; i < n; i++) {
        const struct gsv_memory *m = &rows[i].memory;
        const uint64_t bytes[] = { m->weights, m->workspace, m->stream, m->host };

        for (size_t j = 0; j < 4; j++) {
            add_model_labels(page, metric, &rows[i]);
            gsv_buffer_format(page, ",purpose=\"%s\"} %" PRIu64 "\n", purposes[j], bytes[j]);
        }
    }
}

static void add_models(struct gsv_buffer *page, struct gsv_metrics *metrics)
{
    struct model_row *rows = gsv_alloc_array(MAX_MODELS + 1, sizeof(*rows));
    size_t n = 0;
    bool has_others;

    page->failed = page->failed || !rows;
    if (!rows)
        return;
    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next)
        add_to_row(row_of(rows, &n, m), m);
    pthread_mutex_unlock(&metrics->lock);
    has_others = rows[MAX_MODELS].models > 0;
    n += has_others;
#define SERIES(name, kind, field, digits, help) \
    add_model_series(page, rows, n, name, kind, help, offsetof(struct model_row, field), digits)
    SERIES("gpuserve_model_instances", "gauge", models, 0, "Open models, by name.");
    SERIES("gpuserve_model_items_total", "counter", items, 0, "Texts computed, by model.");
    SERIES("gpuserve_model_tokens_total", "counter", tokens, 0, "Tokens computed, by model.");
    SERIES("gpuserve_model_batches_total", "counter", batches, 0, "Batches computed, by model.");
    SERIES("gpuserve_model_compute_seconds_total", "counter", compute_ns, 9,
           "Compute time of batches, by model.");
#undef SERIES
    add_model_memory(page, rows, n);
    free(rows);
}

static void add_memory(struct gsv_buffer *page, gpuserve_context *context)
{
    const char *const metric = "gpuserve_memory_bytes";
    struct gsv_memory memory;
    uint32_t n_open;
    uint64_t n_suspended;

    gsv_metrics_memory(&context->metrics, &memory);
    gsv_registry_count(context, &n_open, &n_suspended);
    gsv_page_number(page, "gpuserve_models", "gauge", "Open models, including suspended models.",
                    n_open);
    gsv_page_number(page, "gpuserve_models_suspended", "gauge",
                    "Suspended models: open models without weights on a device.", n_suspended);
    gsv_page_head(page, metric, "gauge",
                  "Memory of open models that are not suspended, by purpose.");
    gsv_buffer_format(page, "%s{purpose=\"weights\"} %" PRIu64 "\n", metric, memory.weights);
    gsv_buffer_format(page, "%s{purpose=\"workspace\"} %" PRIu64 "\n", metric, memory.workspace);
    gsv_buffer_format(page, "%s{purpose=\"stream\"} %" PRIu64 "\n", metric, memory.stream);
    gsv_buffer_format(page, "%s{purpose=\"host\"} %" PRIu64 "\n", metric, memory.host);
}

GPUSERVE_API gpuserve_status gpuserve_context_metrics(gpuserve_context *context, char *text,
                                                      size_t capacity, size_t *size,
                                                      gpuserve_error *error)
{
    struct gsv_buffer page = { .maximum = MAX_PAGE_BYTES };
    gpuserve_status st = gsv_context_check(context, error);

    if (st != GPUSERVE_OK)
        return st;
    add_requests(&page, &context->metrics);
    add_counters(&page, &context->metrics);
    add_times(&page, &context->metrics);
    add_sizes(&page, &context->metrics);
    add_memory(&page, context);
    add_models(&page, &context->metrics);
    gsv_page_devices(&page, context);
    gsv_page_te(&page, &context->metrics);
    st = page.failed ? gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the metrics")
                     : gsv_write_text(page.bytes, page.size, text, capacity, size, error);
    gsv_buffer_reset(&page);
    return st;
}

/*
 * Writes histograms in the Prometheus text format.
 *
 * Values are formatted from integers only. Histogram buckets are summed over their parts and
 * written cumulatively; counters are read atomically, without a lock.
 */

void gsv_page_histogram(struct gsv_buffer *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n)
{
    const bool is_time = bounds == &gsv_bounds_time;
    uint64_t below = 0, sum = 0;

    gsv_page_head(page, name, "histogram", help);
    for (uint32_t i = 0; i <= bounds->n; i++) {
        for (size_t part = 0; part < n; part++)
            below += atomic_load(&parts[part]->counts[i]);
        gsv_buffer_format(page, "%s_bucket{le=\"", name);
        if (i < bounds->n)
            gsv_page_decimal(page, bounds->upper[i], is_time ? 6 : 0);
        else
            gsv_buffer_format(page, "+Inf");
        gsv_buffer_format(page, "\"} %" PRIu64 "\n", below);
    }
    for (size_t part = 0; part < n; part++)
        sum += atomic_load(&parts[part]->sum);
    gsv_buffer_format(page, "%s_sum ", name);
    gsv_page_decimal(page, sum, is_time ? 9 : 0);
    gsv_buffer_format(page, "\n%s_count %" PRIu64 "\n", name, below);
}
