/*
 * traces.h - OpenTelemetry traces of requests: sampling, spans, export by OTLP/JSON over HTTP.
 *
 *   request --begin--> gsv_request_trace --end--> bounded queue --> exporter thread --POST-->
 * collector
 *
 * A sampled request has a record with its ids; each job of the library adds its times and batches
 * to it. At its end the record is moved to the queue. The exporter thread (exporter.c) makes the
 * JSON text (spans.c) and sends it (post.c). A request never waits for any of it: a full queue
 * drops the record and counts it.
 *
 * A server without an endpoint has no gsv_traces; a request then costs one comparison.
 */
#ifndef GSV_HTTP_TRACES_H
#define GSV_HTTP_TRACES_H

#include "lib/base/buffer.h"

#include <gpuserve/gpuserve.h>
#include <gpuserve/http.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gpuserve_http;

/* ---------------------------------------------------------------------------- context, options */

/* The ids of a span. */
struct gsv_span_context {
    uint64_t trace[2]; /* high and low half */
    uint64_t span;
    bool is_sampled;
};

/* Reads a W3C `traceparent` header. False: NULL, or not valid. */
bool gsv_traceparent_read(const char *header, struct gsv_span_context *context);

enum gsv_sampler { GSV_SAMPLE_ALL, GSV_SAMPLE_NONE, GSV_SAMPLE_RATIO };

/* The options of the exporter, checked. */
struct gsv_trace_options {
    char host[256], port[8];
    const char *path; /* in `url` */
    char *url, *service;
    struct ssl_ctx_st *tls;    /* NULL: http:// */
    struct gsv_buffer headers; /* field lines, each with CR LF */
    enum gsv_sampler sampler;  /* of requests without a parent */
    bool by_parent;            /* a request with a parent is sampled if the parent is */
    uint64_t bound;            /* RATIO: lower halves of trace ids below it are sampled */
    uint32_t delay_ms, max_queue;
};

/* Checks and copies. Without an endpoint only the other fields are checked. */
gpuserve_status gsv_trace_options_read(struct gsv_trace_options *to,
                                       const gpuserve_http_options *from, gpuserve_error *error);
void gsv_trace_options_reset(struct gsv_trace_options *options);

/* --------------------------------------------------------------------------- record of a request
 */

enum { GSV_TRACE_BATCHES = 32, GSV_TRACE_JOBS = 16 };

struct gsv_trace_job {
    struct gsv_trace_job *next; /* the one before */
    gpuserve_trace trace;       /* written by the library */
    size_t n_items, n_tokens;
    gpuserve_trace_batch batches[GSV_TRACE_BATCHES];
};

struct gsv_request_trace {
    struct gsv_request_trace *next; /* in the queue */
    struct gsv_span_context context;
    uint64_t parent; /* span id; 0: none */
    char state[513]; /* `tracestate` of the parent */
    struct gsv_trace_job *jobs;
    size_t n_jobs; /* all; at most GSV_TRACE_JOBS are in `jobs` */
    uint64_t begun_ns, ended_ns, queued_ns;
    size_t n_bytes;   /* of the record */
    int64_t clock_ns; /* CLOCK_REALTIME minus CLOCK_MONOTONIC */
    unsigned status;  /* of the reply; 0: the client left before it */
    size_t n_tokens;
    bool is_tls;
    char method[16], route[96], path[256], model[128], client[64], agent[128], id[132];
};

/* A record of a sampled request; NULL: not sampled, or out of memory. `parent` may be NULL. */
struct gsv_traces;
struct gsv_request_trace *gsv_request_trace_create(struct gsv_traces *traces,
                                                   const struct gsv_span_context *parent);
/* Where the library writes the trace of the next job; NULL: no more are recorded. */
gpuserve_trace *gsv_request_trace_job(struct gsv_request_trace *trace, size_t n_items);
/* A job of the trace has this many tokens. */
void gsv_request_trace_tokens(struct gsv_request_trace *trace, const gpuserve_trace *job,
                              size_t n_tokens);
void gsv_request_trace_destroy(struct gsv_request_trace *trace);

/* ---------------------------------------------------------------------------------- export */

enum gsv_trace_histogram {
    GSV_EXEMPLAR_TOTAL,
    GSV_EXEMPLAR_TOKENIZE,
    GSV_EXEMPLAR_QUEUE,
    GSV_EXEMPLAR_COMPUTE,
    GSV_EXEMPLARS
};

/* The latest traced job of about this time, for the buckets of a histogram. */
struct gsv_exemplar {
    uint64_t ns; /* 0: none */
    struct gsv_span_context context;
    uint64_t at_ms; /* since the epoch */
};

enum { GSV_EXEMPLAR_SLOTS = 160, GSV_TRACE_SEEN = 4096 };

struct gsv_traces {
    struct gpuserve_http *server;
    struct gsv_trace_options options;
    uint64_t seeds[3]; /* random; of span ids, trace ids and shared batches */
    _Atomic uint64_t n_ids;
    _Atomic unsigned long long n_exported, n_dropped; /* requests */
    pthread_t thread;

    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    struct gsv_request_trace *first, **last;
    size_t n_queued, n_bytes;
    bool is_sending, is_stopping;
    _Atomic uint64_t
        flush_ns; /* send at once, and give up at this time; 0: none; read without it */
    struct gsv_exemplar exemplars[GSV_EXEMPLARS][GSV_EXEMPLAR_SLOTS];

    /* The exporter thread's own. */
    uint64_t seen[GSV_TRACE_SEEN]; /* batches whose span was written, by their number */
    bool is_failing, is_refused;
};

/* Starts the exporter thread; *traces is NULL without an endpoint. */
gpuserve_status gsv_traces_start(struct gsv_traces **traces, struct gpuserve_http *server,
                                 gpuserve_error *error);
/* Takes the record over. */
void gsv_traces_add(struct gsv_traces *traces, struct gsv_request_trace *trace);
/* Waits until all records were sent, at most that long. NULL is allowed. */
void gsv_traces_flush(struct gsv_traces *traces, uint32_t timeout_ms);
/* Flushes for a moment, then frees. */
void gsv_traces_stop(struct gsv_traces **traces);

/* The exemplar of a bucket of times above `above_ns` up to `upto_ns`. False: none. */
bool gsv_traces_exemplar(struct gsv_traces *traces, enum gsv_trace_histogram histogram,
                         uint64_t above_ns, uint64_t upto_ns, struct gsv_exemplar *exemplar);

/* spans.c: the body of an export request, from a list of records. */
void gsv_spans_write(struct gsv_buffer *to, struct gsv_traces *traces,
                     const struct gsv_request_trace *list);

/* post.c: the result of one POST. */
enum gsv_post_result {
    GSV_POST_OK,
    GSV_POST_RETRY,     /* the collector cannot take it now: 429, 502, 503, 504 */
    GSV_POST_UNREACHED, /* no connection, or no reply in time */
    GSV_POST_REFUSED    /* another status */
};
struct gsv_post {
    const struct gsv_trace_options *to;
    const _Atomic uint64_t *until_ns; /* gives up at this time, if it is not 0 */
    uint64_t retry_after_ms;          /* of a RETRY; 0: not given */
    unsigned long long n_rejected;    /* of an OK: spans that the collector did not take */
    char why[160];                    /* of all but OK */
};
enum gsv_post_result gsv_post_send(struct gsv_post *post, const char *body, size_t size);

#endif
