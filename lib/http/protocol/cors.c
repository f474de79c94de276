/*
 * cors.c - CORS: which origins may send requests, and what their scripts may read.
 *
 * Preflights (OPTIONS with Access-Control-Request-Method) carry no API key and are answered here.
 * Origins that are not listed get no CORS header, so the browser hides the reply from the page.
 * Stateless; runs on the event loop thread.
 */
#include "lib/http/protocol/api_keys.h"
#include "lib/http/protocol/origin.h"
#include "lib/http/server.h"

#include <string.h>

bool gsv_cors_allows(const struct gpuserve_http *server, const char *origin, bool *anyone)
{
    *anyone = false;
    for (size_t i = 0; i < server->n_origins; i++) {
        if (strcmp(server->origins[i], "*") == 0)
            *anyone = true;
        else if (strcmp(server->origins[i], origin) == 0)
            return true;
    }
    return *anyone;
}

bool gsv_cors_begin(struct gsv_exchange *exchange)
{
    const struct gpuserve_http *server = exchange->server;
    const char *origin, *headers;
    bool anyone;

    if (server->n_origins == 0)
        return false;
    gsv_add_header(exchange, "Vary", "Origin");
    origin = gsv_header(exchange, "Origin");
    if (!origin || !gsv_cors_allows(server, origin, &anyone))
        return false;
    gsv_add_header(exchange, "Access-Control-Allow-Origin", anyone ? "*" : origin);
    if (strcmp(exchange->method, "OPTIONS") != 0 ||
        !gsv_header(exchange, "Access-Control-Request-Method")) {
        gsv_add_header(exchange, "Access-Control-Expose-Headers",
                       "*, x-request-id, Retry-After, retry-after-ms, x-gpuserve-space, "
                       "x-gpuserve-dtype, x-compute-type, x-compute-tokens, x-total-time");
        return false;
    }
    headers = gsv_header(exchange, "Access-Control-Request-Headers");
    gsv_add_header(exchange, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    /* "*" never includes Authorization, so the requested names are repeated. */
    gsv_add_header(exchange, "Access-Control-Allow-Headers",
                   headers ? headers : "Authorization, Content-Type");
    gsv_add_header(exchange, "Access-Control-Max-Age", "600");
    exchange->status = 204;
    return true;
}
