/*
 * spans.c - OTLP/JSON text of finished requests.
 *
 *   POST /v1/embeddings       the request, a child of the client's span
 *     tokenize                of each job: from its submission to its last token
 *     queue                   until its first batch
 *     batch                   until its last batch ends; links to the spans of the shared batches
 *     reply                   from the last job's result until the reply is sent
 *   shared batch              a trace of its own, with the texts of several requests
 *
 * In the JSON form of OTLP ids are hexadecimal, and 64-bit numbers are strings. Attributes have the
 * names of OpenTelemetry's semantic conventions where these have one. The ids of a shared batch
 * follow from its number, so every request links to it without knowing the others. Its span is
 * written with the first request that was in it.
 */
#include "lib/http/traces/traces.h"

#include "lib/http/core/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };
/* Flags of a span or link: the W3C flag, and whether the parent is known to be remote. */
enum { FLAG_SAMPLED = 1, FLAG_HAS_REMOTE = 256, FLAG_IS_REMOTE = 512 };

/* The text under construction. */
struct page {
    struct gsv_buffer *to;
    struct gsv_traces *traces;
    const struct gsv_request_trace *request;
    bool has_spans, has_attributes;
};

/* Bijective; the finalizer of SplitMix64. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static uint64_t next_id(struct gsv_traces *traces, uint64_t seed)
{
    const uint64_t n = atomic_fetch_add(&traces->n_ids, 1) + 1;
    const uint64_t id = mix(seed + n * UINT64_C(0x9e3779b97f4a7c15));

    return id ? id : 1;
}

static struct gsv_span_context shared_context(const struct gsv_traces *traces, uint64_t batch)
{
    const uint64_t span = mix(traces->seeds[2] ^ batch);

    return (
        struct gsv_span_context){ .trace = { traces->seeds[2] | 1, mix(traces->seeds[1] ^ batch) },
                                  .span = span ? span : 1,
                                  .is_sampled = true };
}

/* -------------------------------------------------------------------------------- record, sampler
 */

static bool is_sampled(const struct gsv_trace_options *options,
                       const struct gsv_span_context *parent, uint64_t low)
{
    if (options->by_parent && parent)
        return parent->is_sampled;
    if (options->sampler == GSV_SAMPLE_RATIO)
        return low < options->bound;
    return options->sampler == GSV_SAMPLE_ALL;
}

struct gsv_request_trace *gsv_request_trace_create(struct gsv_traces *traces,
                                                   const struct gsv_span_context *parent)
{
    const uint64_t low = parent ? parent->trace[1] : next_id(traces, traces->seeds[1]);
    struct gsv_request_trace *trace;

    if (!is_sampled(&traces->options, parent, low))
        return NULL;
    trace = calloc(1, sizeof(*trace));
    if (!trace) {
        atomic_fetch_add(&traces->n_dropped, 1);
        return NULL;
    }
    trace->n_bytes = sizeof(*trace);
    trace->context.trace[0] = parent ? parent->trace[0] : next_id(traces, traces->seeds[0]);
    trace->context.trace[1] = low;
    trace->context.span = next_id(traces, traces->seeds[2]);
    trace->context.is_sampled = true;
    trace->parent = parent ? parent->span : 0;
    return trace;
}

gpuserve_trace *gsv_request_trace_job(struct gsv_request_trace *trace, size_t n_items)
{
    const gpuserve_trace none = GPUSERVE_TRACE_INIT;
    struct gsv_trace_job *job;

    if (trace->n_jobs++ >= GSV_TRACE_JOBS)
        return NULL;
    job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    trace->n_bytes += sizeof(*job);
    job->trace = none;
    job->trace.batches = job->batches;
    job->trace.capacity = GSV_TRACE_BATCHES;
    job->n_items = n_items;
    job->next = trace->jobs;
    trace->jobs = job;
    return &job->trace;
}

void gsv_request_trace_tokens(struct gsv_request_trace *trace, const gpuserve_trace *job,
                              size_t n_tokens)
{
    if (trace->jobs && &trace->jobs->trace == job) /* the one that just ended */
        trace->jobs->n_tokens = n_tokens;
}

void gsv_request_trace_destroy(struct gsv_request_trace *trace)
{
    struct gsv_trace_job *next;

    for (struct gsv_trace_job *job = trace ? trace->jobs : NULL; job; job = next) {
        next = job->next;
        free(job);
    }
    free(trace);
}

/* ----------------------------------------------------------------------------------- attributes */

static void begin_attributes(struct page *page)
{
    gsv_buffer_text(page->to, ",\"attributes\":[");
    page->has_attributes = false;
}

static void put_key(struct page *page, const char *key, const char *kind)
{
    gsv_buffer_format(page->to,
                      "%s{\"key\":\"%s\",\"value\":{\"%s\":", page->has_attributes ? "," : "", key,
                      kind);
    page->has_attributes = true;
}

static void put_string(struct page *page, const char *key, const char *value)
{
    if (!value[0])
        return;
    put_key(page, key, "stringValue");
    gsv_put_text(page->to, value);
    gsv_buffer_text(page->to, "}}");
}

static void put_integer(struct page *page, const char *key, uint64_t value)
{
    put_key(page, key, "intValue");
    gsv_buffer_format(page->to, "\"%" PRIu64 "\"}}", value);
}

/* ---------------------------------------------------------------------------------------- spans */

static void put_ids(struct gsv_buffer *to, const struct gsv_span_context *context)
{
    gsv_buffer_format(to,
                      "\"traceId\":\"%016" PRIx64 "%016" PRIx64 "\",\"spanId\":\"%016" PRIx64 "\"",
                      context->trace[0], context->trace[1], context->span);
}

struct span_fields {
    const char *name;
    struct gsv_span_context context;
    uint64_t parent; /* 0: none */
    unsigned kind, flags;
    uint64_t begin_ns, end_ns; /* of CLOCK_MONOTONIC */
};

static void begin_span(struct page *page, const struct span_fields *span)
{
    const uint64_t clock = (uint64_t)page->request->clock_ns;
    const uint64_t end_ns = span->end_ns > span->begin_ns ? span->end_ns : span->begin_ns;

    gsv_buffer_text(page->to, page->has_spans ? ",{" : "{");
    page->has_spans = true;
    put_ids(page->to, &span->context);
    if (span->parent)
        gsv_buffer_format(page->to, ",\"parentSpanId\":\"%016" PRIx64 "\"", span->parent);
    gsv_buffer_format(page->to,
                      ",\"flags\":%u,\"kind\":%u,\"startTimeUnixNano\":\"%" PRIu64
                      "\",\"endTimeUnixNano\":\"%" PRIu64 "\",\"name\":",
                      span->flags, span->kind, span->begin_ns + clock, end_ns + clock);
    gsv_put_text(page->to, span->name);
    begin_attributes(page);
}

static void end_attributes(struct page *page)
{
    gsv_buffer_text(page->to, "]");
}

static void end_span(struct page *page, bool is_error)
{
    if (is_error)
        gsv_buffer_format(page->to, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    gsv_buffer_text(page->to, "}");
}

/* A child of the request's span. */
static void begin_child(struct page *page, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    struct span_fields span = { .name = name,
                                .context = page->request->context,
                                .parent = page->request->context.span,
                                .kind = KIND_INTERNAL,
                                .flags = FLAG_SAMPLED | FLAG_HAS_REMOTE,
                                .begin_ns = begin_ns,
                                .end_ns = end_ns };

    span.context.span = next_id(page->traces, page->traces->seeds[2]);
    begin_span(page, &span);
}

/* --------------------------------------------------------------------------------------- batches
 */

static void put_batch_attributes(struct page *page, const gpuserve_trace_batch *batch)
{
    put_string(page, "gen_ai.request.model", page->request->model);
    put_integer(page, "gpuserve.batch.rows", batch->n_items);
    put_integer(page, "gpuserve.batch.tokens", batch->n_tokens);
    put_string(page, "gpuserve.device", batch->device);
}

static void put_shared(struct page *page, const gpuserve_trace_batch *batch)
{
    uint64_t *seen = &page->traces->seen[batch->id % GSV_TRACE_SEEN];
    struct span_fields span = { .name = "shared batch",
                                .context = shared_context(page->traces, batch->id),
                                .kind = KIND_INTERNAL,
                                .flags = FLAG_SAMPLED | FLAG_HAS_REMOTE,
                                .begin_ns = batch->begin_ns,
                                .end_ns = batch->end_ns };

    if (*seen == batch->id)
        return;
    *seen = batch->id;
    begin_span(page, &span);
    put_batch_attributes(page, batch);
    end_attributes(page);
    end_span(page, false);
}

static size_t recorded(const struct gsv_trace_job *job)
{
    return job->trace.n_batches < GSV_TRACE_BATCHES ? job->trace.n_batches : GSV_TRACE_BATCHES;
}

static void put_links(struct page *page, const struct gsv_trace_job *job)
{
    const size_t n = recorded(job);

    gsv_buffer_text(page->to, ",\"links\":[");
    for (size_t i = 0; i < n; i++) {
        const struct gsv_span_context context = shared_context(page->traces, job->batches[i].id);

        gsv_buffer_text(page->to, i > 0 ? ",{" : "{");
        put_ids(page->to, &context);
        gsv_buffer_format(page->to, ",\"flags\":%u", FLAG_SAMPLED | FLAG_HAS_REMOTE);
        begin_attributes(page);
        put_batch_attributes(page, &job->batches[i]);
        end_attributes(page);
        gsv_buffer_text(page->to, "}");
    }
    gsv_buffer_format(page->to, "],\"droppedLinksCount\":%zu", job->trace.n_batches - n);
}

static void put_batch(struct page *page, const struct gsv_trace_job *job)
{
    const gpuserve_trace *times = &job->trace;

    begin_child(page, "batch", times->started_ns, times->ended_ns);
    put_string(page, "gen_ai.request.model", page->request->model);
    put_integer(page, "gpuserve.batch.rows", job->n_items);
    put_integer(page, "gpuserve.batch.tokens", job->n_tokens);
    if (recorded(job) > 0)
        put_string(page, "gpuserve.device", job->batches[0].device);
    end_attributes(page);
    put_links(page, job);
    end_span(page, false);
}

/* ------------------------------------------------------------------------------------- one request
 */

/* Spans of the phases that the job reached; one without batches has its rows from the cache. */
static void put_job(struct page *page, const struct gsv_trace_job *job)
{
    const gpuserve_trace *times = &job->trace;
    const uint64_t queue_end = times->started_ns ? times->started_ns : times->completed_ns;

    if (times->completed_ns == 0)
        return;
    if (times->tokenized_ns) {
        begin_child(page, "tokenize", times->submitted_ns, times->tokenized_ns);
        put_integer(page, "gpuserve.texts", job->n_items);
        end_attributes(page);
        end_span(page, false);
    }
    begin_child(page, "queue", times->queued_ns, queue_end);
    end_attributes(page);
    end_span(page, false);
    if (times->started_ns && times->ended_ns)
        put_batch(page, job);
}

/* Oldest first: the list is the other way round. */
static void put_jobs(struct page *page, const struct gsv_trace_job *job)
{
    if (!job)
        return;
    put_jobs(page, job->next);
    put_job(page, job);
}

/* The conventions bound the values of the method's attribute, and so the names of spans. */
static bool is_known_method(const char *method)
{
    static const char *const known[] = { "GET",     "POST",  "PUT",   "DELETE", "HEAD",
                                         "OPTIONS", "PATCH", "TRACE", "CONNECT" };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i], method) == 0)
            return true;
    }
    return false;
}

static void put_request_attributes(struct page *page)
{
    const struct gsv_request_trace *request = page->request;
    const bool is_known = is_known_method(request->method);

    put_string(page, "http.request.method", is_known ? request->method : "_OTHER");
    if (!is_known)
        put_string(page, "http.request.method_original", request->method);
    put_string(page, "url.path", request->path);
    put_string(page, "url.scheme", request->is_tls ? "https" : "http");
    put_string(page, "http.route", request->route);
    if (request->status)
        put_integer(page, "http.response.status_code", request->status);
    put_string(page, "client.address", request->client);
    put_string(page, "user_agent.original", request->agent);
    put_string(page, "gpuserve.request.id", request->id);
    put_string(page, "gen_ai.request.model", request->model);
    if (request->n_tokens)
        put_integer(page, "gen_ai.usage.input_tokens", request->n_tokens);
    if (request->n_jobs > GSV_TRACE_JOBS)
        put_integer(page, "gpuserve.jobs_without_spans", request->n_jobs - GSV_TRACE_JOBS);
}

static void put_request(struct page *page)
{
    const struct gsv_request_trace *request = page->request;
    const bool is_error = request->status == 0 || request->status >= 500;
    char name[sizeof(request->method) + sizeof(request->route)], code[16];
    const struct span_fields span = {
        .name = name,
        .context = request->context,
        .parent = request->parent,
        .kind = KIND_SERVER,
        .flags = FLAG_SAMPLED | FLAG_HAS_REMOTE | (request->parent ? FLAG_IS_REMOTE : 0),
        .begin_ns = request->begun_ns,
        .end_ns = request->ended_ns,
    };

    snprintf(name, sizeof(name), "%s%s%s",
             is_known_method(request->method) ? request->method : "HTTP",
             request->route[0] ? " " : "", request->route);
    snprintf(code, sizeof(code), "%u", request->status);
    begin_span(page, &span);
    put_request_attributes(page);
    if (is_error)
        put_string(page, "error.type", request->status ? code : "client_disconnected");
    end_attributes(page);
    if (request->state[0]) {
        gsv_buffer_text(page->to, ",\"traceState\":");
        gsv_put_text(page->to, request->state);
    }
    end_span(page, is_error);
}

static void put_trace(struct page *page, const struct gsv_request_trace *request)
{
    const struct gsv_trace_job *last = request->jobs;

    page->request = request;
    put_request(page);
    put_jobs(page, last);
    if (last && last->trace.completed_ns) {
        begin_child(page, "reply", last->trace.completed_ns, request->ended_ns);
        end_attributes(page);
        end_span(page, false);
    }
    for (const struct gsv_trace_job *job = last; job; job = job->next) {
        for (size_t i = 0; i < recorded(job); i++)
            put_shared(page, &job->batches[i]);
    }
}

void gsv_spans_write(struct gsv_buffer *to, struct gsv_traces *traces,
                     const struct gsv_request_trace *list)
{
    struct page page = { .to = to, .traces = traces };
    char instance[40];

    snprintf(instance, sizeof(instance), "%016" PRIx64, mix(traces->seeds[2]));
    gsv_buffer_text(to, "{\"resourceSpans\":[{\"resource\":{\"droppedAttributesCount\":0");
    begin_attributes(&page);
    put_string(&page, "service.name", traces->options.service);
    put_string(&page, "service.version", gpuserve_version());
    put_string(&page, "service.instance.id", instance);
    end_attributes(&page);
    gsv_buffer_text(to, "},\"scopeSpans\":[{\"scope\":{\"name\":\"gpuserve\",\"version\":");
    gsv_put_text(to, gpuserve_version());
    gsv_buffer_text(to, "},\"spans\":[");
    for (const struct gsv_request_trace *trace = list; trace; trace = trace->next)
        put_trace(&page, trace);
    gsv_buffer_text(to, "]}]}]}");
}
