/*
 * metrics.c - GET /metrics in the Prometheus text format: the server's metrics, each loaded model's
 * with Triton's names, then the page of gpuserve_context_metrics(), which the library writes for
 * programs without this server.
 */
#include "lib/base/prometheus.h"
#include "lib/http/batch/batch.h"
#include "lib/http/dialects/health.h"
#include "lib/http/dialects/kserve.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/route.h"
#include "lib/http/protocol/worker_threads.h"

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
    put_tls(exchange);
    gsv_kserve_metrics(exchange);
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
    gsv_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8");
}

const struct gsv_route gsv_metrics_routes[] = {
    { "GET", "/metrics", GSV_TEI, GSV_WITHOUT_BODY, metrics },
    { 0 },
};
