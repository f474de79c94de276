/*
 * dialect_health.c - whether the server lives, and whether it is ready for work.
 *
 * Live: it answers at all. Ready: it is not draining and its default model is loaded. TEI asks at
 * /health and /ping, Kubernetes at /healthz, /livez and /readyz.
 */
#include "lib/http/route.h"
#include "lib/http/server.h"

bool gsv_http_ready(struct gpuserve_http *server)
{
    struct gsv_served *served = gsv_models_hold(&server->models, server->models.entries);
    const bool ready = served && !atomic_load(&server->draining);

    gsv_served_release(served);
    return ready;
}

static void live(struct gsv_exchange *exchange)
{
    gsv_reply_text(exchange, 200, "live\n");
}

static void ready(struct gsv_exchange *exchange)
{
    if (gsv_http_ready(exchange->server))
        gsv_reply_text(exchange, 200, "ready\n");
    else
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL,
                   atomic_load(&exchange->server->draining) ? "draining" : "no model is loaded");
}

const struct gsv_route gsv_health_routes[] = {
    { "GET", "/health", GSV_TEI, GSV_OPEN, ready },  { "GET", "/ping", GSV_TEI, GSV_OPEN, ready },
    { "GET", "/healthz", GSV_TEI, GSV_OPEN, ready }, { "GET", "/readyz", GSV_TEI, GSV_OPEN, ready },
    { "GET", "/livez", GSV_TEI, GSV_OPEN, live },    { 0 },
};
