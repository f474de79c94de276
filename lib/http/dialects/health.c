/*
 * health.c - health checks: liveness, readiness, and a deep check that computes.
 *
 * Live: the server answers. Ready: it is not draining and can compute a request; a lost device
 * shows after the first request that meets it. Deep: each loaded model computes a text now, on the
 * thread of the queue `checks`. TEI probes /health and /ping, Kubernetes /healthz, /livez and
 * /readyz.
 */
#include "lib/http/dialects/health.h"

#include "lib/base/error.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/route.h"

#include <time.h>

/* ---------------------------------------------------------------------------------------- ready */

static bool model_is_ready(struct gpuserve_http *server, size_t i, gpuserve_error *why)
{
    struct gsv_served *served = gsv_models_hold(server->models, &server->models->entries[i]);
    gpuserve_status st;

    if (!served) { /* only the default model is required: clients may unload the others */
        if (i == 0)
            gsv_fail(why, GPUSERVE_E_BUSY, "no model is loaded");
        return i != 0;
    }
    st = gpuserve_model_ready(served->model, why);
    gsv_served_release(served);
    return st == GPUSERVE_OK || (i != 0 && st == GPUSERVE_E_BUSY);
}

bool gsv_http_ready(struct gpuserve_http *server, gpuserve_error *why)
{
    if (atomic_load(&server->draining)) {
        gsv_fail(why, GPUSERVE_E_BUSY, "draining");
        return false;
    }
    for (size_t i = 0; i < server->models->n; i++) {
        if (!model_is_ready(server, i, why))
            return false;
    }
    return true;
}

static void live(struct gsv_exchange *exchange)
{
    gsv_reply_text(exchange, 200, "live\n");
}

static bool is_ready(struct gsv_exchange *exchange)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;

    return gsv_http_ready(exchange->server, &why) ||
           gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "%s", why.message);
}

static void ready(struct gsv_exchange *exchange)
{
    if (is_ready(exchange))
        gsv_reply_text(exchange, 200, "ready\n");
}

/* The same in JSON: `status` for llama.cpp's clients, `unix` for infinity's. TEI's read only the
 * HTTP status. */
static void health(struct gsv_exchange *exchange)
{
    struct timespec now;

    if (!is_ready(exchange))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gsv_buffer_format(&exchange->reply, "{\"status\":\"ok\",\"unix\":%lld.%03ld}",
                      (long long)now.tv_sec, now.tv_nsec / 1000000);
    gsv_reply_json(exchange);
}

/* ----------------------------------------------------------------------------------------- deep */

static void tell_all(struct gsv_exchange *exchange)
{
    const bool *good = exchange->state;
    const bool all_ready = *good && gsv_http_ready(exchange->server, NULL);

    gsv_buffer_format(&exchange->reply, ",\"ready\":%s}", all_ready ? "true" : "false");
    gsv_reply(exchange, all_ready ? 200 : 503, "application/json");
}

static void deep(struct gsv_exchange *exchange)
{
    exchange->state = gsv_exchange_alloc(exchange, 1, sizeof(bool));
    if (exchange->state)
        gsv_call_load(exchange, exchange->server->checks, NULL, GSV_CHECK, tell_all);
}

const struct gsv_route gsv_health_routes[] = {
    { "GET", "/health", GSV_TEI, GSV_OPEN, health, "text-embeddings-inference" },
    { "GET", "/ping", GSV_TEI, GSV_OPEN, ready, "text-embeddings-inference" },
    { "GET", "/healthz", GSV_TEI, GSV_OPEN, ready },
    { "GET", "/readyz", GSV_TEI, GSV_OPEN, ready },
    { "GET", "/livez", GSV_TEI, GSV_OPEN, live },
    { "GET", "/health/deep", GSV_TEI, GSV_WITHOUT_BODY, deep },
    { 0 },
};
