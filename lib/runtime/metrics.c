/*
 * metrics.c - counters of a context, and their Prometheus text (exposition format 0.0.4).
 *
 * Numbers are whole or written as seconds from whole nanoseconds: the host program's locale has no
 * say in the decimal point. The number of lines is fixed: no label comes from outside.
 */
#include "lib/runtime/metrics.h"

#include "lib/base/error.h"
#include "lib/runtime/context.h"
#include "lib/runtime/structs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define METRICS_TEXT_BYTES 16384

/* Upper bounds in microseconds. */
static const uint64_t latency_bounds_us[GSV_LATENCY_BUCKETS] = {
    500,    1000,   2500,    5000,    10000,   25000,    50000,
    100000, 250000, 1000000, 2500000, 5000000, 10000000, 60000000,
};

void gsv_metrics_request(struct gsv_metrics *metrics, gpuserve_status status, uint64_t nanoseconds)
{
    const size_t index = (size_t)status < GSV_STATUS_COUNT ? (size_t)status : GPUSERVE_E_INTERNAL;
    size_t bucket = 0;

    atomic_fetch_add(&metrics->requests[index], 1);
    atomic_fetch_add(&metrics->request_ns, nanoseconds);
    while (bucket < GSV_LATENCY_BUCKETS && nanoseconds > latency_bounds_us[bucket] * 1000)
        bucket++;
    atomic_fetch_add(&metrics->latency[bucket], 1);
}

void gsv_metrics_batch(struct gsv_metrics *metrics, uint64_t sequences, uint64_t tokens,
                       uint64_t longest, uint64_t nanoseconds)
{
    atomic_fetch_add(&metrics->batches, 1);
    atomic_fetch_add(&metrics->items, sequences);
    atomic_fetch_add(&metrics->tokens, tokens);
    atomic_fetch_add(&metrics->padding_saved, sequences * longest - tokens);
    atomic_fetch_add(&metrics->compute_ns, nanoseconds);
}

void gsv_metrics_memory(struct gsv_metrics *metrics, const struct gsv_memory *memory, bool added)
{
    const uint64_t sign = added ? 1 : UINT64_MAX; /* times -1 */

    atomic_fetch_add(&metrics->models, sign);
    atomic_fetch_add(&metrics->weights_bytes, sign * memory->weights);
    atomic_fetch_add(&metrics->workspace_bytes, sign * memory->workspace);
    atomic_fetch_add(&metrics->stream_bytes, sign * memory->stream);
    atomic_fetch_add(&metrics->host_bytes, sign * memory->host);
}

struct page {
    char text[METRICS_TEXT_BYTES];
    size_t length;
};

static void add(struct page *page, const char *format, ...) GPUSERVE_PRINTF(2, 3);

static void add(struct page *page, const char *format, ...)
{
    const size_t room = sizeof(page->text) - page->length;
    va_list args;
    int written;

    va_start(args, format);
    written = vsnprintf(page->text + page->length, room, format, args);
    va_end(args);
    if (written > 0)
        page->length += (size_t)written < room ? (size_t)written : room - 1;
}

static void add_head(struct page *page, const char *name, const char *kind, const char *help)
{
    add(page, "# HELP gpuserve_%s %s\n# TYPE gpuserve_%s %s\n", name, help, name, kind);
}

static void add_number(struct page *page, const char *name, const char *kind, const char *help,
                       const atomic_uint_fast64_t *value)
{
    add_head(page, name, kind, help);
    add(page, "gpuserve_%s %" PRIu64 "\n", name, (uint64_t)atomic_load(value));
}

static void add_seconds(struct page *page, uint64_t nanoseconds)
{
    add(page, "%" PRIu64 ".%09" PRIu64 "\n", nanoseconds / 1000000000, nanoseconds % 1000000000);
}

static void add_time(struct page *page, const char *name, const char *help,
                     const atomic_uint_fast64_t *nanoseconds)
{
    add_head(page, name, "counter", help);
    add(page, "gpuserve_%s ", name);
    add_seconds(page, atomic_load(nanoseconds));
}

/* "GPUSERVE_E_BUSY" as the label value "busy". */
static void add_requests(struct page *page, const struct gsv_metrics *metrics)
{
    add_head(page, "requests_total", "counter", "Requests that completed or were refused.");
    for (int status = 0; status < GSV_STATUS_COUNT; status++) {
        const char *name = gpuserve_status_name((gpuserve_status)status) + strlen("GPUSERVE_");
        char label[32];
        size_t n = 0;

        name += strncmp(name, "E_", 2) == 0 ? 2 : 0;
        for (; name[n] && n + 1 < sizeof(label); n++)
            label[n] = name[n] >= 'A' && name[n] <= 'Z' ? (char)(name[n] + 32) : name[n];
        label[n] = '\0';
        add(page, "gpuserve_requests_total{result=\"%s\"} %" PRIu64 "\n", label,
            (uint64_t)atomic_load(&metrics->requests[status]));
    }
}

static void add_latency(struct page *page, const struct gsv_metrics *metrics)
{
    uint64_t below = 0;

    add_head(page, "request_seconds", "histogram", "From submission to completion.");
    for (size_t i = 0; i < GSV_LATENCY_BUCKETS; i++) {
        const uint64_t us = latency_bounds_us[i];

        below += atomic_load(&metrics->latency[i]);
        add(page, "gpuserve_request_seconds_bucket{le=\"%" PRIu64 ".%04" PRIu64 "\"} %" PRIu64 "\n",
            us / 1000000, us % 1000000 / 100, below);
    }
    below += atomic_load(&metrics->latency[GSV_LATENCY_BUCKETS]);
    add(page, "gpuserve_request_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", below);
    add(page, "gpuserve_request_seconds_sum ");
    add_seconds(page, atomic_load(&metrics->request_ns));
    add(page, "gpuserve_request_seconds_count %" PRIu64 "\n", below);
}

static void add_memory(struct page *page, const struct gsv_metrics *metrics)
{
    const struct {
        const char *purpose;
        const atomic_uint_fast64_t *bytes;
    } rows[] = {
        { "weights", &metrics->weights_bytes },
        { "workspace", &metrics->workspace_bytes },
        { "stream", &metrics->stream_bytes },
        { "host", &metrics->host_bytes },
    };

    add_head(page, "memory_bytes", "gauge", "Memory of open models by purpose.");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        add(page, "gpuserve_memory_bytes{purpose=\"%s\"} %" PRIu64 "\n", rows[i].purpose,
            (uint64_t)atomic_load(rows[i].bytes));
}

GPUSERVE_API gpuserve_status gpuserve_context_metrics(gpuserve_context *context, char *text,
                                                      size_t capacity, size_t *size,
                                                      gpuserve_error *error)
{
    const struct gsv_metrics *m;
    struct page *page;
    gpuserve_status st = gsv_context_check(context, error);

    if (st != GPUSERVE_OK)
        return st;
    page = gsv_alloc_array(1, sizeof(*page));
    if (!page)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the metrics");
    m = &context->metrics;
    add_requests(page, m);
    add_number(page, "items_total", "counter", "Texts computed.", &m->items);
    add_number(page, "tokens_total", "counter", "Tokens computed.", &m->tokens);
    add_number(page, "batches_total", "counter", "Batches computed.", &m->batches);
    add_number(page, "padding_tokens_saved_total", "counter",
               "Tokens that padding each batch to its longest text would have added.",
               &m->padding_saved);
    add_time(page, "compute_seconds_total", "Time of batches, summed over threads.",
             &m->compute_ns);
    add_time(page, "tokenize_seconds_total", "Time of tokenization, summed over threads.",
             &m->tokenize_ns);
    add_number(page, "queue_requests", "gauge", "Requests not completed.", &m->queued_requests);
    add_number(page, "queue_tokens", "gauge", "Tokens they were estimated at.", &m->queued_tokens);
    add_latency(page, m);
    add_number(page, "models", "gauge", "Open models.", &m->models);
    add_memory(page, m);
    st = gsv_write_text(page->text, page->length, text, capacity, size, error);
    free(page);
    return st;
}
