/*
 * prometheus_tei.c - the same figures under the metric names of text-embeddings-inference, so that
 * existing dashboards keep working.
 *
 * Durations are histograms in seconds, of successful requests only: a fast refusal must not make
 * the server look fast. `te_request_*` counts requests. `te_embed_*` and `te_predict_*` are their
 * two kinds and count texts, each with the times of its request. Requests refused before the queue
 * count as failures.
 */
#include "lib/runtime/observe/prometheus_writer.h"

#include <inttypes.h>
#include <stdio.h>

/* text-embeddings-inference's kinds of failure. */
enum failure { OVERLOADED, VALIDATION, CANCELLED, INFERENCE, N_FAILURES };

static enum failure failure_of(gpuserve_status status)
{
    switch (status) {
    case GPUSERVE_E_BUSY:
        return OVERLOADED;
    case GPUSERVE_E_INVALID:
    case GPUSERVE_E_TOO_LARGE:
    case GPUSERVE_E_UNSUPPORTED:
        return VALIDATION;
    case GPUSERVE_E_CANCELLED:
    case GPUSERVE_E_EXPIRED:
        return CANCELLED;
    default:
        return INFERENCE;
    }
}

static uint64_t count_status(const struct gsv_metrics *metrics, int status)
{
    uint64_t n = 0;

    for (int family = 0; family < GSV_FAMILIES; family++)
        n += atomic_load(&metrics->requests[family][status]);
    return n;
}

static void add_failures(struct gsv_buffer *page, const struct gsv_metrics *metrics)
{
    static const char *const names[N_FAILURES] = { "overloaded", "validation", "cancelled",
                                                   "inference" };
    uint64_t n[N_FAILURES] = { 0 };

    gsv_page_head(page, "te_request_failure", "counter", "Failed requests, by error type.");
    for (int status = GPUSERVE_OK + 1; status < GSV_STATUS_COUNT; status++)
        n[failure_of((gpuserve_status)status)] += count_status(metrics, status);
    for (int i = 0; i < N_FAILURES; i++)
        gsv_buffer_format(page, "te_request_failure{err=\"%s\"} %" PRIu64 "\n", names[i], n[i]);
}

/* Writes te_PREFIX_count and te_PREFIX_success. */
static void add_counters(struct gsv_buffer *page, const char *prefix, const char *what,
                         uint64_t count, uint64_t success)
{
    char name[64], help[64];

    snprintf(name, sizeof(name), "te_%s_count", prefix);
    snprintf(help, sizeof(help), "%s.", what);
    gsv_page_number(page, name, "counter", help, count);
    snprintf(name, sizeof(name), "te_%s_success", prefix);
    snprintf(help, sizeof(help), "%s that succeeded.", what);
    gsv_page_number(page, name, "counter", help, success);
}

/* Writes te_PREFIX_duration and similar: each is the sum of two histograms from arrays indexed by
 * gsv_time. */
static void add_durations(struct gsv_buffer *page, const char *prefix,
                          const struct gsv_histogram *first, const struct gsv_histogram *second)
{
    static const struct {
        enum gsv_time time;
        const char *name, *help;
    } rows[] = {
        { GSV_TIME_TOTAL, "duration", "Time from submission to success, in seconds." },
        { GSV_TIME_TOKENIZE, "tokenization_duration", "Tokenization time, in seconds." },
        { GSV_TIME_QUEUE, "queue_duration", "Queue time, in seconds." },
        { GSV_TIME_COMPUTE, "inference_duration", "Compute time, in seconds." },
    };
    char name[64];

    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        const struct gsv_histogram *const parts[] = { &first[rows[row].time],
                                                      &second[rows[row].time] };

        snprintf(name, sizeof(name), "te_%s_%s", prefix, rows[row].name);
        gsv_page_histogram(page, name, rows[row].help, &gsv_bounds_time, parts, 2);
    }
}

static void add_requests(struct gsv_buffer *page, const struct gsv_metrics *metrics)
{
    uint64_t count = 0;

    for (int status = 0; status < GSV_STATUS_COUNT; status++)
        count += count_status(metrics, status);
    add_counters(page, "request", "Requests", count, count_status(metrics, GPUSERVE_OK));
    add_durations(page, "request", metrics->times[GSV_FAMILY_EMBED][1],
                  metrics->times[GSV_FAMILY_CLASSIFY][1]);
}

static void add_texts(struct gsv_buffer *page, const struct gsv_metrics *metrics,
                      enum gsv_task_family family, const char *prefix)
{
    const uint64_t success = atomic_load(&metrics->texts[family][1]);

    add_counters(page, prefix, "Texts", success + atomic_load(&metrics->texts[family][0]), success);
    add_durations(page, prefix, metrics->times[family][1], metrics->more_texts[family]);
}

void gsv_page_te(struct gsv_buffer *page, const struct gsv_metrics *m)
{
    const struct gsv_histogram *text_tokens = &m->text_tokens, *batch_tokens = &m->batch_tokens,
                               *batch_texts = &m->batch_texts;

    add_requests(page, m);
    add_failures(page, m);
    gsv_page_histogram(page, "te_request_input_length", "Tokens per text.", &gsv_bounds_tokens,
                       &text_tokens, 1);
    add_texts(page, m, GSV_FAMILY_EMBED, "embed");
    add_texts(page, m, GSV_FAMILY_CLASSIFY, "predict");
    gsv_page_number(page, "te_queue_size", "gauge", "Requests not yet completed.",
                    atomic_load(&m->queued_requests));
    gsv_page_histogram(page, "te_batch_next_size", "Texts per batch.", &gsv_bounds_texts,
                       &batch_texts, 1);
    gsv_page_histogram(page, "te_batch_next_tokens", "Tokens per batch.", &gsv_bounds_tokens,
                       &batch_tokens, 1);
}
