/*
 * metrics.c - GET /metrics in the Prometheus text format: the server's metrics, then the library's.
 */
#include "lib/http/protocol/route.h"
#include "lib/http/server.h"

static void put_figure(struct gsv_buffer *to, const char *name, const char *kind, const char *help,
                       unsigned long long value)
{
    gsv_buffer_format(to, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, kind, name,
                      value);
}

static void put_tls(struct gsv_exchange *exchange)
{
    struct gsv_tls *tls = &exchange->server->tls;

    if (!gsv_tls_is_on(tls))
        return;
    put_figure(&exchange->reply, "gpuserve_http_tls_failed_handshakes_total", "counter",
               "Connections that did not come to speak TLS.",
               atomic_load(&tls->n_failed_handshakes));
    put_figure(&exchange->reply, "gpuserve_http_tls_certificate_end_seconds", "gauge",
               "When the certificate ends, in seconds since 1970.",
               (unsigned long long)atomic_load(&tls->not_after));
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
    put_figure(to, "gpuserve_http_connections", "gauge", "Open connections.",
               atomic_load(&server->event_loop.n_clients));
    put_figure(to, "gpuserve_http_requests_total", "counter", "Requests begun.",
               atomic_load(&server->n_requests));
    put_figure(to, "gpuserve_http_requests_open", "gauge", "Requests not answered yet.",
               n_exchanges);
    put_figure(to, "gpuserve_http_requests_working", "gauge", "Of them waiting for a model.",
               n_working);
    put_figure(to, "gpuserve_http_unread_bytes", "gauge", "Of replies that wait for their readers.",
               atomic_load(&server->workers.unread_bytes));
    put_figure(to, "gpuserve_http_reloads_total", "counter", "Reloads of all files.",
               atomic_load(&server->n_reloads));
    put_figure(to, "gpuserve_http_failed_reloads_total", "counter",
               "Reloads of which some part failed and stayed as it was.",
               atomic_load(&server->n_failed_reloads));
    put_figure(to, "gpuserve_http_model_loads_total", "counter",
               "Loads that clients asked for, begun.", atomic_load(&server->loads.n_loads));
    put_figure(to, "gpuserve_http_model_loads_joined_total", "counter",
               "Requests for a load or an unload that joined an equal one.",
               atomic_load(&server->loads.n_joined));
    put_figure(
        to, "gpuserve_http_model_loads_cancelled_total", "counter",
        "Loads and unloads dropped before they began: no client waited, or the server stopped.",
        atomic_load(&server->loads.n_cancelled));
    put_figure(to, "gpuserve_http_access_log_lost_total", "counter",
               "Lines of the access log that could not be written.",
               atomic_load(&server->access_log.n_lost));
    put_figure(to, "gpuserve_http_ready", "gauge", "1: ready for requests.",
               gsv_http_ready(server, NULL));
    put_tls(exchange);
}

static void metrics(struct gsv_exchange *exchange)
{
    gpuserve_context *context = exchange->server->models.context;
    struct gsv_buffer *to = &exchange->reply;
    gpuserve_status st = GPUSERVE_E_TOO_LARGE;
    size_t capacity = 16384, size = 0;

    put_server(exchange);
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
