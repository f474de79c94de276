/*
 * request_trace.c - begins and ends the trace of an exchange.
 *
 * A request for health, metrics or the files of a page is traced only if its client does: probes
 * would be most of the traces.
 */
#include "lib/http/protocol/request.h"

#include "lib/base/clock.h"
#include "lib/base/utf8.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/route.h"
#include "lib/http/traces/traces.h"

#include <stdio.h>
#include <string.h>

static bool is_probe(const struct gsv_exchange *exchange)
{
    const struct gsv_route *route = exchange->route;

    return route && (route->flags & GSV_OPEN || strcmp(route->pattern, "/metrics") == 0);
}

/* Copies the valid UTF-8 before the end of the field. */
static void copy(char *to, size_t capacity, const char *text)
{
    const size_t size = text ? strnlen(text, capacity - 1) : 0;

    snprintf(to, capacity, "%.*s", (int)(text ? gsv_utf8_valid_length(text, size) : 0),
             text ? text : "");
}

void gsv_request_trace_begin(struct gsv_exchange *exchange)
{
    const char *state = gsv_header(exchange, "tracestate");
    struct gsv_span_context parent;
    const bool has_parent = gsv_traceparent_read(gsv_header(exchange, "traceparent"), &parent);

    if (is_probe(exchange) && !(has_parent && parent.is_sampled))
        return;
    exchange->trace =
        gsv_request_trace_create(exchange->server->traces, has_parent ? &parent : NULL);
    if (exchange->trace && has_parent && state && strlen(state) < sizeof(exchange->trace->state))
        copy(exchange->trace->state, sizeof(exchange->trace->state), state);
}

static int64_t clock_difference(uint64_t now_ns)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)now_ns;
}

void gsv_request_trace_end(struct gsv_exchange *exchange)
{
    struct gsv_request_trace *trace = exchange->trace;

    exchange->trace = NULL;
    gpuserve_request_free(&exchange->work.request); /* before the trace it writes to is read */
    trace->begun_ns = exchange->begun_ns;
    trace->ended_ns = gsv_now_ns();
    trace->clock_ns = clock_difference(trace->ended_ns);
    trace->status = gsv_exchange_has_left(exchange) ? 0 : exchange->status;
    trace->n_tokens = exchange->usage.n_tokens;
    trace->is_tls = gsv_tls_is_on(&exchange->server->tls);
    copy(trace->method, sizeof(trace->method), exchange->method);
    copy(trace->route, sizeof(trace->route), exchange->route ? exchange->route->pattern : NULL);
    copy(trace->path, sizeof(trace->path), exchange->path);
    copy(trace->model, sizeof(trace->model), exchange->served ? exchange->served->name : NULL);
    copy(trace->agent, sizeof(trace->agent), gsv_header(exchange, "User-Agent"));
    copy(trace->id, sizeof(trace->id), exchange->id);
    gsv_client_text(exchange->client, trace->client, sizeof(trace->client));
    gsv_traces_add(exchange->server->traces, trace);
}
