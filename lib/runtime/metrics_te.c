/*
 * metrics_te.c - the same figures under the names of text-embeddings-inference, so that dashboards
 * made for it go on working.
 *
 * Its durations are histograms in seconds; `te_request_*` is everything, `te_embed_*` and
 * `te_predict_*` the two kinds of it. Requests refused before the queue count as failures.
 */
#include "lib/runtime/metrics_page.h"

#include <inttypes.h>
#include <stdio.h>

/* What text-embeddings-inference calls our statuses. */
static const char *failure_of(gpuserve_status status)
{
    switch (status) {
    case GPUSERVE_E_BUSY:
        return "overloaded";
    case GPUSERVE_E_INVALID:
    case GPUSERVE_E_TOO_LARGE:
    case GPUSERVE_E_UNSUPPORTED:
        return "validation";
    case GPUSERVE_E_CANCELLED:
    case GPUSERVE_E_EXPIRED:
        return "cancelled";
    default:
        return "inference";
    }
}

static uint64_t count_status(const struct gsv_metrics *metrics, int status)
{
    uint64_t n = 0;

    for (int family = 0; family < GSV_FAMILIES; family++)
        n += atomic_load(&metrics->requests[family][status]);
    return n;
}

static uint64_t count_family(const struct gsv_metrics *metrics, enum gsv_family family)
{
    uint64_t n = 0;

    for (int status = 0; status < GSV_STATUS_COUNT; status++)
        n += atomic_load(&metrics->requests[family][status]);
    return n;
}

static void add_failures(struct gsv_page *page, const struct gsv_metrics *metrics)
{
    static const char *const kinds[] = { "overloaded", "validation", "cancelled", "inference" };

    gsv_page_head(page, "te_request_failure", "counter", "Requests that failed, by kind.");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 0;

        for (int status = GPUSERVE_OK + 1; status < GSV_STATUS_COUNT; status++) {
            if (failure_of((gpuserve_status)status) == kinds[i])
                n += count_status(metrics, status);
        }
        gsv_page_add(page, "te_request_failure{err=\"%s\"} %" PRIu64 "\n", kinds[i], n);
    }
}

/* te_embed_count or the like, with its four durations; `n` families from `first` on. */
static void add_family(struct gsv_page *page, const struct gsv_metrics *metrics, const char *prefix,
                       enum gsv_family first, int n)
{
    static const struct {
        enum gsv_time time;
        const char *name, *help;
    } rows[] = {
        { GSV_TIME_TOTAL, "duration", "From submission to completion, in seconds." },
        { GSV_TIME_TOKENIZE, "tokenization_duration", "Tokenization, in seconds." },
        { GSV_TIME_QUEUE, "queue_duration", "Wait in the queue, in seconds." },
        { GSV_TIME_COMPUTE, "inference_duration", "Computation, in seconds." },
    };
    uint64_t count = 0, success = 0;
    char name[64];

    for (int i = 0; i < n; i++) {
        count += count_family(metrics, first + (enum gsv_family)i);
        success += atomic_load(&metrics->requests[first + (enum gsv_family)i][GPUSERVE_OK]);
    }
    snprintf(name, sizeof(name), "te_%s_count", prefix);
    gsv_page_number(page, name, "counter", "Requests.", count);
    snprintf(name, sizeof(name), "te_%s_success", prefix);
    gsv_page_number(page, name, "counter", "Requests that succeeded.", success);
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        const struct gsv_histogram *parts[GSV_FAMILIES];

        for (int i = 0; i < n; i++)
            parts[i] = &metrics->times[first + (enum gsv_family)i][rows[row].time];
        snprintf(name, sizeof(name), "te_%s_%s", prefix, rows[row].name);
        gsv_page_histogram(page, name, rows[row].help, &gsv_bounds_time, parts, (size_t)n);
    }
}

void gsv_page_te(struct gsv_page *page, const struct gsv_metrics *m)
{
    const struct gsv_histogram *text_tokens = &m->text_tokens, *batch_tokens = &m->batch_tokens,
                               *batch_texts = &m->batch_texts;

    add_family(page, m, "request", GSV_FAMILY_EMBED, GSV_FAMILIES);
    add_failures(page, m);
    gsv_page_histogram(page, "te_request_input_length", "Tokens of a text.", &gsv_bounds_tokens,
                       &text_tokens, 1);
    add_family(page, m, "embed", GSV_FAMILY_EMBED, 1);
    add_family(page, m, "predict", GSV_FAMILY_CLASSIFY, 1);
    gsv_page_number(page, "te_queue_size", "gauge", "Requests not completed.",
                    atomic_load(&m->queued_requests));
    gsv_page_histogram(page, "te_batch_next_size", "Texts of a batch.", &gsv_bounds_texts,
                       &batch_texts, 1);
    gsv_page_histogram(page, "te_batch_next_tokens", "Tokens of a batch.", &gsv_bounds_tokens,
                       &batch_tokens, 1);
}
