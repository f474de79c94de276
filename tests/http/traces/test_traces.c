/*
 * test_traces.c - the W3C trace context, the options of traces, and a queue that is full, from
 * inside.
 */
#include "lib/http/net/server_state.h"
#include "lib/http/traces/traces.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define TRACE "0123456789abcdef0fedcba987654321"

Test(traces, w3c_context)
{
    static const struct {
        const char *header;
        bool is_valid, is_sampled;
    } cases[] = {
        { "00-" TRACE "-00f067aa0ba902b7-01", true, true },
        { "00-" TRACE "-00f067aa0ba902b7-00", true, false },
        { "00-" TRACE "-00f067aa0ba902b7-ff", true, true }, /* unknown flags are ignored */
        { "00-" TRACE "-00f067aa0ba902b7-fe", true, false },
        { "01-" TRACE "-00f067aa0ba902b7-01-more", true, true },
        { "01-" TRACE "-00f067aa0ba902b7-01more", false, false },
        { "00-" TRACE "-00f067aa0ba902b7-01-more", false, false },
        { "ff-" TRACE "-00f067aa0ba902b7-01", false, false },
        { "00-" TRACE "-0000000000000000-01", false, false },
        { "00-00000000000000000000000000000000-00f067aa0ba902b7-01", false, false },
        { "00-0123456789ABCDEF0fedcba987654321-00f067aa0ba902b7-01", false, false },
        { "0g-" TRACE "-00f067aa0ba902b7-01", false, false },
        { "00-" TRACE "-00f067aa0ba902b7-0g", false, false },
        { "00-" TRACE "-00f067aa0ba902b7-1", false, false },
        { "00_" TRACE "-00f067aa0ba902b7-01", false, false },
        { "00-" TRACE "_00f067aa0ba902b7-01", false, false },
        { "00-" TRACE "-00f067aa0ba902b7_01", false, false },
        { "", false, false },
        { NULL, false, false },
    };
    struct gsv_span_context context;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *header = cases[i].header;

        cr_expect_eq(gsv_traceparent_read(header, &context), cases[i].is_valid, "%s", header);
        if (cases[i].is_valid)
            cr_expect_eq(context.is_sampled, cases[i].is_sampled, "%s", header);
    }
    cr_assert(gsv_traceparent_read(cases[0].header, &context));
    cr_expect_eq(context.trace[0], UINT64_C(0x0123456789abcdef));
    cr_expect_eq(context.trace[1], UINT64_C(0x0fedcba987654321));
    cr_expect_eq(context.span, UINT64_C(0x00f067aa0ba902b7));
}

Test(traces, endpoints)
{
    static const struct {
        const char *url, *host, *port, *path; /* host NULL: refused */
    } cases[] = {
        { "http://localhost:4318/v1/traces", "localhost", "4318", "/v1/traces" },
        { "http://c", "c", "80", "/" },
        { "http://c?a=b", "c", "80", "?a=b" },
        { "https://c/v1/traces", "c", "443", "/v1/traces" },
        { "https://[::1]:4318", "::1", "4318", "/" },
        { "https://c:0", NULL, NULL, NULL },
        { "https://me@c", NULL, NULL, NULL },
        { "http://[::1]:4318/x", "::1", "4318", "/x" },
        { "http://[::1]", "::1", "80", "/" },
        { "http://127.0.0.1:65535", "127.0.0.1", "65535", "/" },
        { "http://127.0.0.1:65536", NULL, NULL, NULL },
        { "http://c:", NULL, NULL, NULL },
        { "http://c:80x", NULL, NULL, NULL },
        { "http://c:0000080", NULL, NULL, NULL },
        { "http://c/\x7f", NULL, NULL, NULL },
        { "http://c/\"", NULL, NULL, NULL },
        { "http://" A64 A64 A64 A64 "/", NULL, NULL, NULL },
        { "http://:4318", NULL, NULL, NULL },
        { "http://[]:4318", NULL, NULL, NULL },
        { "http://[::1]4318", NULL, NULL, NULL },
        { "http://c/\n", NULL, NULL, NULL },
        { "http://c/#a", NULL, NULL, NULL },
        { "HTTP://c/", NULL, NULL, NULL },
        { "", NULL, NULL, NULL },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
        struct gsv_trace_options read = { 0 };
        const bool is_good = cases[i].host != NULL;

        options.otlp_traces_endpoint = cases[i].url;
        cr_expect_eq(gsv_trace_options_read(&read, &options, NULL),
                     is_good ? GPUSERVE_OK : GPUSERVE_E_INVALID, "%s", cases[i].url);
        if (is_good) {
            cr_expect_str_eq(read.host, cases[i].host);
            cr_expect_str_eq(read.port, cases[i].port);
            cr_expect_str_eq(read.path, cases[i].path);
            cr_expect_eq(read.tls != NULL, cases[i].url[4] == 's');
        }
        gsv_trace_options_reset(&read);
    }
}

Test(traces, headers)
{
    static const struct {
        const char *text, *lines; /* lines NULL: refused */
    } cases[] = {
        { "", "" },
        { " , ,", "" },
        { "x-key=abc", "x-key: abc\r\n" },
        { "x-key=", "x-key: \r\n" },
        { " a = b ,c=d%20e%2Cf=,", "a: b\r\nc: d e,f=\r\n" },
        { "authorization=Basic YTpi==", "authorization: Basic YTpi==\r\n" },
        { "a", NULL },
        { "=b", NULL },
        { "a b=c", NULL },
        { "a:=c", NULL },
        { "a=%", NULL },
        { "a=%0d%0aX: y", NULL },
        { "a=b\r\nX: y", NULL },
        { "a=%00", NULL },
        { "a=%ff", NULL },
        { "HOST=c", NULL },
        { "content-length=0", NULL },
        { "Transfer-Encoding=chunked", NULL },
    };
    char large[8300], *long_value = large + 2;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
        struct gsv_trace_options read = { 0 };
        const char *want = cases[i].lines;

        options.otlp_traces_endpoint = "http://c";
        options.otlp_headers = cases[i].text;
        cr_expect_eq(gsv_trace_options_read(&read, &options, NULL),
                     want ? GPUSERVE_OK : GPUSERVE_E_INVALID, "%s", cases[i].text);
        if (want)
            cr_expect(read.headers.size == strlen(want) &&
                          (read.headers.size == 0 ||
                           memcmp(read.headers.bytes, want, read.headers.size) == 0),
                      "%s", cases[i].text);
        gsv_trace_options_reset(&read);
    }
    for (size_t size = 8180; size <= 8190; size++) { /* "a: " and CR LF are 5 more */
        gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
        struct gsv_trace_options read = { 0 };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        const bool fits = size + 5 <= 8192;
        gpuserve_status st;

        memcpy(large, "a=", 2);
        memset(long_value, 'b', size);
        long_value[size] = 0;
        options.otlp_traces_endpoint = "http://c";
        options.otlp_headers = large;
        st = gsv_trace_options_read(&read, &options, &error);
        cr_expect_eq(st, fits ? GPUSERVE_OK : GPUSERVE_E_INVALID, "%zu: %s", size, error.message);
        gsv_trace_options_reset(&read);
    }
}

static struct gsv_traces *start(struct gpuserve_http *server)
{
    struct gsv_traces *traces = NULL;

    memset(server, 0, sizeof(*server));
    server->options.otlp_traces_endpoint =
        "http://127.0.0.1:1/v1/traces"; /* a port without a listener */
    server->options.traces_delay_ms = 3600000;
    server->options.traces_queue = 4;
    cr_assert_eq(gsv_traces_start(&traces, server, NULL), GPUSERVE_OK);
    return traces;
}

static struct gsv_request_trace *record(struct gsv_traces *traces, size_t n_jobs)
{
    struct gsv_request_trace *trace = gsv_request_trace_create(traces, NULL);

    cr_assert_not_null(trace);
    for (size_t i = 0; i < n_jobs; i++) {
        gpuserve_trace *job = gsv_request_trace_job(trace, 1);

        if (!job)
            continue;
        *job = (gpuserve_trace){ .submitted_ns = 1000000,
                                 .tokenize_ns = 1000 * (i + 1),
                                 .queued_ns = 2000000,
                                 .started_ns = 3000000,
                                 .completed_ns = 5000000 + 1000000 * i };
    }
    return trace;
}

/* By number, and by bytes: two records of 16 jobs exceed four times 8 KiB. */
Test(traces, a_full_queue_drops)
{
    struct gpuserve_http server;
    struct gsv_traces *traces = start(&server);

    for (int i = 0; i < 7; i++)
        gsv_traces_add(traces, record(traces, 1));
    cr_expect_eq(traces->n_dropped, 3);
    gsv_traces_flush(traces, 1000); /* the remaining records: no collector takes them */
    cr_expect_eq(traces->n_dropped, 7);
    cr_expect_eq(traces->n_queued, 0);
    cr_expect_eq(traces->n_bytes, 0);
    gsv_traces_stop(&traces);

    traces = start(&server);
    for (int i = 0; i < 4; i++)
        gsv_traces_add(traces, record(traces, 100));
    cr_expect_eq(traces->n_dropped, 2, "%llu", traces->n_dropped);
    gsv_traces_stop(&traces);
    cr_expect_null(traces);
}

Test(traces, exemplars_are_in_their_bucket)
{
    struct gpuserve_http server;
    struct gsv_traces *traces = start(&server);
    struct gsv_request_trace *trace = record(traces, 2);
    const struct gsv_span_context context = trace->context;
    struct gsv_exemplar found;

    gsv_traces_add(traces, trace);
    cr_expect(gsv_traces_exemplar(traces, GSV_EXEMPLAR_TOTAL, 0, 4000000, &found));
    cr_expect_eq(found.ns, 4000000);
    cr_expect_eq(found.context.span, context.span);
    cr_expect(gsv_traces_exemplar(traces, GSV_EXEMPLAR_TOTAL, 4000000, UINT64_MAX, &found));
    cr_expect_eq(found.ns, 5000000);
    cr_expect_not(gsv_traces_exemplar(traces, GSV_EXEMPLAR_TOTAL, 0, 3999999, &found));
    cr_expect_not(gsv_traces_exemplar(traces, GSV_EXEMPLAR_TOTAL, 5000000, UINT64_MAX, &found));
    cr_expect(gsv_traces_exemplar(traces, GSV_EXEMPLAR_TOKENIZE, 1000, 2000, &found));
    cr_expect_eq(found.ns, 2000);
    cr_expect(gsv_traces_exemplar(traces, GSV_EXEMPLAR_QUEUE, 0, UINT64_MAX, &found));
    cr_expect_eq(found.ns, 1000000);
    gsv_traces_stop(&traces);
}

/* Every id is that of one span, and every text is JSON whatever its bytes are. */
Test(traces, spans_are_json)
{
    struct gpuserve_http server;
    struct gsv_traces *traces = start(&server);
    struct gsv_buffer body = { .maximum = 1 << 20 };
    struct gsv_request_trace *trace = record(traces, GSV_TRACE_JOBS + 5);
    json_t *json, *spans, *ids = json_object();

    for (struct gsv_trace_job *job = trace->jobs; job; job = job->next) {
        job->trace.n_batches = GSV_TRACE_BATCHES + 8;
        job->trace.ended_ns = 4000000;
        for (size_t i = 0; i < GSV_TRACE_BATCHES; i++)
            job->batches[i].id = i + 1;
    }
    snprintf(trace->path, sizeof(trace->path), "/\"\\\n\x01");
    snprintf(trace->method, sizeof(trace->method), "POST");
    gsv_spans_write(&body, traces, trace);
    cr_assert_not(body.failed);
    json = json_loadb(body.bytes, body.size, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(json, "%.*s", (int)body.size, body.bytes);
    spans = json_object_get(
        json_array_get(json_object_get(json_array_get(json_object_get(json, "resourceSpans"), 0),
                                       "scopeSpans"),
                       0),
        "spans");
    /* the request, queue and batch of 16 jobs, the reply, 32 batches that they shared */
    cr_expect_eq(json_array_size(spans), 1 + 2 * GSV_TRACE_JOBS + 1 + GSV_TRACE_BATCHES);
    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *span = json_array_get(spans, i);

        json_object_set(ids, json_string_value(json_object_get(span, "spanId")), json_true());
        if (strcmp(json_string_value(json_object_get(span, "name")), "batch") == 0)
            cr_expect_eq(json_integer_value(json_object_get(span, "droppedLinksCount")), 8);
    }
    cr_expect_eq(json_object_size(ids), json_array_size(spans));
    json_decref(ids);
    json_decref(json);
    gsv_buffer_reset(&body);
    gsv_request_trace_destroy(trace);
    gsv_traces_stop(&traces);
}
