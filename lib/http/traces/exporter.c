/*
 * exporter.c - the queue of finished requests, the thread that sends them, exemplars.
 *
 *   gsv_traces_add --> queue --(BATCH records, or delay_ms)--> thread --> spans.c --> post.c
 *
 * A batch that the collector cannot take now is sent again with exponential backoff, or after the
 * time that its Retry-After states, for at most MAX_RETRY_MS. Meanwhile the queue fills; a record
 * that finds it full is dropped. So memory is bounded, whatever the collector does.
 *
 * At the end of the server (flush_ns) the rest is sent at once. A collector that does not answer
 * then ends the attempt.
 */
#include "lib/http/traces/traces.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"
#include "lib/http/net/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    BATCH = 128, /* records of one POST: about 512 spans */
    FIRST_WAIT_MS = 1000,
    MAX_WAIT_MS = 30000,
    MAX_RETRY_MS = 60000,
    MAX_FLUSH_MS = 5000, /* within the time to drain */
    LAST_FLUSH_MS = 1000,
    MAX_BODY_BYTES = 32 << 20,
    RECORD_BYTES = 8192 /* a record of the queue, on average at most */
};

static const uint64_t ms_ns = 1000000;

/* Waits for a change of the state, until a time of CLOCK_MONOTONIC; the lock is held. */
static void wait_until(struct gsv_traces *traces, uint64_t until_ns)
{
    const struct timespec until = { (time_t)(until_ns / 1000000000u),
                                    (long)(until_ns % 1000000000u) };

    pthread_cond_timedwait(&traces->changed, &traces->lock, &until);
}

static bool is_flushing(const struct gsv_traces *traces)
{
    return atomic_load(&traces->flush_ns) != 0;
}

/* ---------------------------------------------------------------------------------------- send */

static void tell_failure(struct gsv_traces *traces, const char *why, bool is_lost)
{
    if (!traces->is_failing)
        gsv_http_log(traces->server, GPUSERVE_LOG_WARNING, "traces: POST %s: %s; %s",
                     traces->options.url, why, is_lost ? "traces are lost" : "it is tried again");
    traces->is_failing = true;
}

static void tell_success(struct gsv_traces *traces, const struct gsv_post *post, size_t n)
{
    if (traces->is_failing)
        gsv_http_log(traces->server, GPUSERVE_LOG_WARNING, "traces: POST %s succeeds again",
                     traces->options.url);
    traces->is_failing = false;
    if (post->n_rejected && !traces->is_refused) /* not for each of its replies */
        gsv_http_log(traces->server, GPUSERVE_LOG_WARNING,
                     "traces: the collector refused %llu spans", post->n_rejected);
    traces->is_refused = post->n_rejected > 0;
    atomic_fetch_add(&traces->n_exported, n);
}

/* Waits before the next attempt, but not if the server begins to stop. False: there is none. */
static bool wait_to_retry(struct gsv_traces *traces, const struct gsv_post *post,
                          uint64_t *backoff_ms, uint64_t end_ns)
{
    /* Half of the wait is random, so that servers do not return together. */
    const uint64_t half = *backoff_ms / 2;
    const uint64_t random = gsv_now_ns() / 1000 % (half + 1);
    const uint64_t wait_ms = post->retry_after_ms ? post->retry_after_ms : half + random;
    const uint64_t again_ns = gsv_now_ns() + wait_ms * ms_ns;
    const bool was_flushing = is_flushing(traces);
    bool again;

    *backoff_ms = *backoff_ms * 2 < MAX_WAIT_MS ? *backoff_ms * 2 : MAX_WAIT_MS;
    pthread_mutex_lock(&traces->lock);
    again = again_ns <= (was_flushing ? atomic_load(&traces->flush_ns) : end_ns);
    while (again && is_flushing(traces) == was_flushing && gsv_now_ns() < again_ns)
        wait_until(traces, again_ns);
    pthread_mutex_unlock(&traces->lock);
    return again;
}

/* True if the collector has taken the body. */
static bool send_body(struct gsv_traces *traces, const struct gsv_buffer *body, size_t n)
{
    const uint64_t end_ns = gsv_now_ns() + MAX_RETRY_MS * ms_ns;
    uint64_t backoff_ms = FIRST_WAIT_MS;

    for (;;) {
        struct gsv_post post = { .to = &traces->options, .until_ns = &traces->flush_ns };
        const enum gsv_post_result result = gsv_post_send(&post, body->bytes, body->size);

        if (result == GSV_POST_OK) {
            tell_success(traces, &post, n);
            return true;
        }
        tell_failure(traces, post.why, result == GSV_POST_REFUSED || is_flushing(traces));
        if (result == GSV_POST_REFUSED || (result == GSV_POST_UNREACHED && is_flushing(traces)) ||
            !wait_to_retry(traces, &post, &backoff_ms, end_ns))
            return false;
    }
}

static size_t free_list(struct gsv_request_trace *list)
{
    struct gsv_request_trace *next;
    size_t n = 0;

    for (; list; list = next, n++) {
        next = list->next;
        gsv_request_trace_destroy(list);
    }
    return n;
}

/* Sends and frees the records. False: they are lost. */
static bool send_list(struct gsv_traces *traces, struct gsv_request_trace *list)
{
    struct gsv_buffer body = { .maximum = MAX_BODY_BYTES };
    size_t n;
    bool sent = false;

    gsv_spans_write(&body, traces, list);
    n = free_list(list);
    if (!body.failed)
        sent = send_body(traces, &body, n);
    if (!sent)
        atomic_fetch_add(&traces->n_dropped, n);
    gsv_buffer_reset(&body);
    return sent;
}

/* -------------------------------------------------------------------------------------- thread */

/* Unlinks up to `n` records; the lock is held. */
static struct gsv_request_trace *take(struct gsv_traces *traces, size_t n)
{
    struct gsv_request_trace *list = traces->first, **end = &traces->first;

    for (; *end && n > 0; n--, end = &(*end)->next) {
        traces->n_queued--;
        traces->n_bytes -= (*end)->n_bytes;
    }
    traces->first = *end;
    if (end != &traces->first)
        *end = NULL;
    if (!traces->first)
        traces->last = &traces->first;
    return list;
}

/* Waits until a batch is due; the lock is held. False: the server stops, and nothing is left. */
static bool wait_for_batch(struct gsv_traces *traces)
{
    const uint64_t delay_ns = traces->options.delay_ms * ms_ns;

    while (!traces->is_stopping && !(is_flushing(traces) && traces->n_queued > 0) &&
           traces->n_queued < BATCH) {
        if (traces->n_queued == 0)
            pthread_cond_wait(&traces->changed, &traces->lock);
        else if (gsv_now_ns() < traces->first->queued_ns + delay_ns)
            wait_until(traces, traces->first->queued_ns + delay_ns);
        else
            break;
    }
    return traces->n_queued > 0;
}

static void *export_all(void *user)
{
    struct gsv_traces *traces = user;

    gsv_tls_block_sigpipe();
    pthread_mutex_lock(&traces->lock);
    while (wait_for_batch(traces)) {
        struct gsv_request_trace *list = take(traces, BATCH);
        bool sent;

        traces->is_sending = true;
        pthread_mutex_unlock(&traces->lock);
        sent = send_list(traces, list);
        pthread_mutex_lock(&traces->lock);
        traces->is_sending = false;
        if (!sent && is_flushing(traces))
            atomic_fetch_add(&traces->n_dropped, free_list(take(traces, SIZE_MAX)));
        pthread_cond_broadcast(&traces->changed);
    }
    pthread_mutex_unlock(&traces->lock);
    return NULL;
}

/* ----------------------------------------------------------------------------------- exemplars */

/* A quarter of a power of two of microseconds each. */
static size_t slot_of(uint64_t ns)
{
    const uint64_t us = ns / 1000;
    const unsigned bits = us > 0 ? 63u - (unsigned)__builtin_clzll(us) : 0;
    const unsigned part = bits >= 2 ? (unsigned)(us >> (bits - 2)) & 3u : 0;
    const size_t slot = 4 * (size_t)bits + part;

    return slot < GSV_EXEMPLAR_SLOTS ? slot : GSV_EXEMPLAR_SLOTS - 1;
}

/* The lock is held. */
static void keep_exemplars(struct gsv_traces *traces, const struct gsv_request_trace *trace,
                           const gpuserve_trace *job)
{
    const uint64_t started_ns = job->started_ns ? job->started_ns : job->completed_ns;
    const uint64_t times[GSV_EXEMPLARS] = { job->completed_ns - job->submitted_ns, job->tokenize_ns,
                                            started_ns - job->queued_ns,
                                            job->completed_ns - started_ns };
    const uint64_t at_ms = (job->completed_ns + (uint64_t)trace->clock_ns) / ms_ns;

    for (size_t i = 0; i < GSV_EXEMPLARS; i++)
        traces->exemplars[i][slot_of(times[i])] =
            (struct gsv_exemplar){ .ns = times[i], .context = trace->context, .at_ms = at_ms };
}

bool gsv_traces_exemplar(struct gsv_traces *traces, enum gsv_trace_histogram histogram,
                         uint64_t above_ns, uint64_t upto_ns, struct gsv_exemplar *exemplar)
{
    const size_t end = slot_of(upto_ns);

    exemplar->at_ms = 0;
    pthread_mutex_lock(&traces->lock);
    for (size_t i = slot_of(above_ns); i <= end; i++) {
        const struct gsv_exemplar *one = &traces->exemplars[histogram][i];

        if (one->ns > above_ns && one->ns <= upto_ns && one->at_ms >= exemplar->at_ms)
            *exemplar = *one;
    }
    pthread_mutex_unlock(&traces->lock);
    return exemplar->at_ms > 0;
}

/* ------------------------------------------------------------------------------------ interface */

void gsv_traces_add(struct gsv_traces *traces, struct gsv_request_trace *trace)
{
    bool is_full;

    trace->next = NULL;
    trace->queued_ns = gsv_now_ns();
    pthread_mutex_lock(&traces->lock);
    for (const struct gsv_trace_job *job = trace->jobs; job; job = job->next) {
        if (job->trace.completed_ns)
            keep_exemplars(traces, trace, &job->trace);
    }
    is_full = traces->n_queued >= traces->options.max_queue ||
              traces->n_bytes >= (size_t)traces->options.max_queue * RECORD_BYTES;
    if (!is_full) {
        *traces->last = trace;
        traces->last = &trace->next;
        traces->n_queued++;
        traces->n_bytes += trace->n_bytes;
        /* Others need no wake-up: the thread waits for the first one's delay. */
        if (traces->n_queued == 1 || traces->n_queued == BATCH)
            pthread_cond_broadcast(&traces->changed);
    }
    pthread_mutex_unlock(&traces->lock);
    if (!is_full)
        return;
    atomic_fetch_add(&traces->n_dropped, 1);
    gsv_request_trace_destroy(trace);
}

void gsv_traces_flush(struct gsv_traces *traces, uint32_t timeout_ms)
{
    const uint64_t limit_ms = timeout_ms < MAX_FLUSH_MS ? timeout_ms : MAX_FLUSH_MS;
    const uint64_t until_ns = gsv_now_ns() + limit_ms * ms_ns;

    if (!traces)
        return;
    pthread_mutex_lock(&traces->lock);
    atomic_store(&traces->flush_ns, until_ns);
    pthread_cond_broadcast(&traces->changed);
    while ((traces->n_queued > 0 || traces->is_sending) && gsv_now_ns() < until_ns)
        wait_until(traces, until_ns);
    pthread_mutex_unlock(&traces->lock);
}

static void destroy(struct gsv_traces *traces)
{
    free_list(traces->first);
    gsv_trace_options_reset(&traces->options);
    pthread_cond_destroy(&traces->changed);
    pthread_mutex_destroy(&traces->lock);
    free(traces);
}

static struct gsv_traces *create(struct gpuserve_http *server)
{
    struct gsv_traces *traces = calloc(1, sizeof(*traces));
    pthread_condattr_t monotonic;

    if (!traces)
        return NULL;
    traces->server = server;
    traces->last = &traces->first;
    pthread_mutex_init(&traces->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&traces->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (getrandom(traces->seeds, sizeof(traces->seeds), GRND_NONBLOCK) !=
        (ssize_t)sizeof(traces->seeds)) {
        for (size_t i = 0; i < 3; i++) /* unique rather than secret */
            traces->seeds[i] = server->seed * (2 * i + 3) + gsv_now_ns();
    }
    return traces;
}

gpuserve_status gsv_traces_start(struct gsv_traces **out, struct gpuserve_http *server,
                                 gpuserve_error *error)
{
    struct gsv_traces *traces;
    gpuserve_status st;

    *out = NULL;
    if (!server->options.otlp_traces_endpoint)
        return GPUSERVE_OK;
    traces = create(server);
    if (!traces)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for traces");
    st = gsv_trace_options_read(&traces->options, &server->options, error);
    if (st == GPUSERVE_OK && pthread_create(&traces->thread, NULL, export_all, traces) != 0)
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "the thread that exports traces did not start");
    if (st != GPUSERVE_OK) {
        destroy(traces);
        return st;
    }
    *out = traces;
    return GPUSERVE_OK;
}

void gsv_traces_stop(struct gsv_traces **handle)
{
    struct gsv_traces *traces = *handle;

    if (!traces)
        return;
    *handle = NULL;
    pthread_mutex_lock(&traces->lock);
    traces->is_stopping = true;
    atomic_store(&traces->flush_ns, gsv_now_ns() + LAST_FLUSH_MS * ms_ns);
    pthread_cond_broadcast(&traces->changed);
    pthread_mutex_unlock(&traces->lock);
    pthread_join(traces->thread, NULL);
    destroy(traces);
}
