/*
 * metrics.c - GET /metrics in the Prometheus text format or, where asked for, OpenMetrics: the
 * server's metrics, each loaded model's with Triton's names, then the page of
 * gpuserve_context_metrics(), which the library writes for programs without this server.
 */
#include "lib/base/prometheus.h"
#include "lib/http/batch/batch.h"
#include "lib/http/core/openmetrics.h"
#include "lib/http/dialects/health.h"
#include "lib/http/dialects/kserve.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/route.h"
#include "lib/http/protocol/worker_threads.h"
#include "lib/http/traces/traces.h"

#include <inttypes.h>
#include <string.h>

static void put_tls(struct gsv_exchange *exchange)
{
    struct gsv_tls *tls = &exchange->server->tls;

    if (!gsv_tls_is_on(tls))
        return;
    gsv_page_number(&exchange->reply, "gpuserve_http_tls_failed_handshakes_total", "counter",
                    "Failed TLS handshakes.", atomic_load(&tls->n_failed_handshakes));
    gsv_page_number(&exchange->reply, "gpuserve_http_tls_certificate_end_seconds", "gauge",
                    "Expiry of the TLS certificate, in seconds since the epoch.",
                    (unsigned long long)atomic_load(&tls->not_after));
}

static void put_batches(struct gsv_buffer *to, struct gsv_batch_jobs *batches)
{
    const struct gsv_page_row rows[] = {
        { "gpuserve_http_batch_lines_total", "counter", "Lines of batches that were computed.",
          atomic_load(&batches->n_done) },
        { "gpuserve_http_batch_failed_lines_total", "counter",
          "Lines of batches that were refused or failed.", atomic_load(&batches->n_errors) },
        { "gpuserve_http_batch_retries_total", "counter",
          "Lines of batches that found the queue full and were tried again.",
          atomic_load(&batches->n_retries) },
        { "gpuserve_http_batch_disk_bytes", "gauge", "Bytes of the files in --batch-dir.",
          atomic_load(&batches->store.n_bytes) },
    };

    gsv_page_numbers(to, rows, sizeof(rows) / sizeof(rows[0]));
}

static void put_traces(struct gsv_buffer *to, struct gsv_traces *traces)
{
    gsv_page_number(to, "gpuserve_traces_exported_total", "counter",
                    "Traced requests that the collector has taken.",
                    atomic_load(&traces->n_exported));
    gsv_page_number(to, "gpuserve_traces_dropped_total", "counter",
                    "Traced requests that were not exported: the queue was full, or the collector "
                    "was not reached or refused them.",
                    atomic_load(&traces->n_dropped));
}

static void put_server(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    struct gsv_buffer *to = &exchange->reply;
    size_t n_exchanges, n_working;

    pthread_mutex_lock(&server->lock);
    n_exchanges = server->n_exchanges;
    n_working = server->n_working;
    pthread_mutex_unlock(&server->lock);
    gsv_page_number(to, "gpuserve_http_connections", "gauge", "Open connections.",
                    atomic_load(&server->event_loop.n_clients));
    gsv_page_number(to, "gpuserve_http_requests_total", "counter", "Requests received.",
                    atomic_load(&server->n_requests));
    gsv_page_number(to, "gpuserve_http_requests_open", "gauge", "Requests in progress.",
                    n_exchanges);
    gsv_page_number(to, "gpuserve_http_requests_working", "gauge",
                    "Requests in progress that wait for a model.", n_working);
    gsv_page_number(to, "gpuserve_http_unread_bytes", "gauge",
                    "Reply bytes that clients have not read yet.",
                    atomic_load(&server->workers->unread_bytes));
    gsv_page_number(to, "gpuserve_http_reloads_total", "counter", "Configuration reloads.",
                    atomic_load(&server->n_reloads));
    gsv_page_number(to, "gpuserve_http_failed_reloads_total", "counter",
                    "Configuration reloads with at least one part that failed and was not changed.",
                    atomic_load(&server->n_failed_reloads));
    gsv_page_number(to, "gpuserve_http_model_loads_total", "counter",
                    "Model loads started by clients.", atomic_load(&server->loads->n_loads));
    gsv_page_number(to, "gpuserve_http_model_loads_joined_total", "counter",
                    "Load and unload requests merged with an equal pending request.",
                    atomic_load(&server->loads->n_joined));
    gsv_page_number(
        to, "gpuserve_http_model_loads_cancelled_total", "counter",
        "Loads and unloads cancelled before they started: no client waited, or the server stopped.",
        atomic_load(&server->loads->n_cancelled));
    gsv_page_number(to, "gpuserve_http_idle_suspends_total", "counter",
                    "Models suspended after the time of `keep_alive`.",
                    atomic_load(&server->idle_models->n_suspended));
    gsv_page_number(to, "gpuserve_http_access_log_lost_total", "counter",
                    "Access log lines that could not be written.",
                    atomic_load(&server->access_log->n_lost));
    gsv_page_number(to, "gpuserve_http_ready", "gauge",
                    "1 if the server is ready for requests, otherwise 0.",
                    gsv_http_ready(server, NULL));
    if (server->batches)
        put_batches(to, server->batches);
    if (server->traces)
        put_traces(to, server->traces);
    put_tls(exchange);
#if GSV_HAS_KSERVE
    gsv_kserve_metrics(exchange);
#endif
}

/* ----------------------------------------------------------------------------------- OpenMetrics
 */

static bool wants_openmetrics(const struct gsv_exchange *exchange)
{
    const char *accepted = gsv_header(exchange, "Accept");
    const unsigned quality = gsv_accepted_by_name(accepted, "application/openmetrics-text");

    return quality > 0 && quality >= gsv_accepted_by_name(accepted, "text/plain");
}

/* The traced job of the bucket that ended last. */
static void put_exemplar(void *user, struct gsv_buffer *to, const char *histogram, size_t size,
                         uint64_t above_ns, uint64_t upto_ns)
{
    static const char *const names[GSV_EXEMPLARS] = {
        [GSV_EXEMPLAR_TOTAL] = "gpuserve_request_seconds",
        [GSV_EXEMPLAR_TOKENIZE] = "gpuserve_request_tokenize_seconds",
        [GSV_EXEMPLAR_QUEUE] = "gpuserve_request_queue_seconds",
        [GSV_EXEMPLAR_COMPUTE] = "gpuserve_request_compute_seconds",
    };
    struct gsv_exemplar exemplar;

    for (int i = 0; i < GSV_EXEMPLARS; i++) {
        if (strlen(names[i]) != size || memcmp(names[i], histogram, size) != 0 ||
            !gsv_traces_exemplar(user, (enum gsv_trace_histogram)i, above_ns, upto_ns, &exemplar))
            continue;
        gsv_buffer_format(
            to, " # {trace_id=\"%016" PRIx64 "%016" PRIx64 "\",span_id=\"%016" PRIx64 "\"} ",
            exemplar.context.trace[0], exemplar.context.trace[1], exemplar.context.span);
        gsv_page_decimal(to, exemplar.ns, 9);
        gsv_buffer_text(to, " ");
        gsv_page_decimal(to, exemplar.at_ms, 3);
    }
}

/* Replaces the page of the reply. */
static void make_openmetrics(struct gsv_exchange *exchange)
{
    struct gsv_traces *traces = exchange->server->traces;
    struct gsv_buffer page = exchange->reply;

    exchange->reply = (struct gsv_buffer){ .failed = page.failed };
    gsv_openmetrics_write(&exchange->reply, page.bytes, page.size, traces ? put_exemplar : NULL,
                          traces);
    gsv_buffer_reset(&page);
}

static void metrics(struct gsv_exchange *exchange)
{
    gpuserve_context *context = exchange->server->models->context;
    struct gsv_buffer *to = &exchange->reply;
    gpuserve_status st = GPUSERVE_E_TOO_LARGE;
    size_t capacity = 16384, size = 0;

    put_server(exchange);
    if (exchange->status != 0)
        return;
    /* The text may grow between two calls. */
    while (st == GPUSERVE_E_TOO_LARGE) {
        char *at = gsv_buffer_reserve(to, capacity);

        if (!at)
            break;
        st = gpuserve_context_metrics(context, at, capacity, &size, NULL);
        capacity = size > capacity ? size + 1024 : 2 * capacity;
    }
    if (st == GPUSERVE_OK)
        to->size += size - 1; /* without the NUL */
    else
        to->failed = true; /* only memory can be short */
    if (!wants_openmetrics(exchange)) {
        gsv_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8");
        return;
    }
    make_openmetrics(exchange);
    gsv_reply(exchange, 200, "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

const struct gsv_route gsv_metrics_routes[] = {
    { "GET", "/metrics", GSV_TEI, GSV_WITHOUT_BODY, metrics },
    { 0 },
};
