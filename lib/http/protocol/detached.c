/*
 * detached.c - runs the steps of a request without a connection.
 */
#include "lib/http/protocol/exchange.h"

#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

static struct gsv_exchange *create(struct gpuserve_http *server, const char *path)
{
    struct gsv_exchange *exchange = gsv_exchange_create(server, NULL, path);

    if (!exchange)
        return NULL;
    exchange->method = "POST";
    exchange->path = gsv_exchange_copy_text(exchange, path, strlen(path));
    return exchange;
}

/* Runs steps until the reply is complete (false) or the library computes (true). */
static bool advance(struct gsv_exchange *exchange)
{
    while (exchange->work.waiting) {
        if (gsv_call_leave(exchange))
            return true;
        gsv_call_finish(exchange);
    }
    if (exchange->status == 0)
        gsv_refuse(exchange, GSV_P_INTERNAL, NULL, "%s has no reply", exchange->path);
    return false;
}

/* Replaces the line by its field `body`. */
static bool take_body(struct gsv_exchange *exchange)
{
    json_t *body = json_object_get(exchange->json, "body");

    if (!json_is_object(body))
        return gsv_refuse(exchange, GSV_P_INVALID, "body", "`body` is not an object");
    json_incref(body);
    json_decref(exchange->json);
    exchange->json = body;
    return true;
}

bool gsv_detached_begin(struct gsv_exchange **out, struct gpuserve_http *server,
                        const struct gsv_detached_options *options, const char *text, size_t size)
{
    struct gsv_exchange *exchange = create(server, options->path);

    *out = exchange;
    if (!exchange)
        return false;
    exchange->id = options->id;
    exchange->resume = options->resume;
    exchange->resume_user = options->user;
    exchange->priority = options->priority;
    memcpy(exchange->key_name, options->key_name,
           strnlen(options->key_name, sizeof(exchange->key_name) - 1));
    if (exchange->status == 0 && gsv_route_find(exchange)) {
        if (server->traces)
            gsv_request_trace_begin(exchange);
        if (gsv_request_parse(exchange, text, size) && take_body(exchange))
            exchange->route->handler(exchange);
    }
    return advance(exchange);
}

bool gsv_detached_continue(struct gsv_exchange *exchange)
{
    gsv_call_finish(exchange);
    return advance(exchange);
}

void gsv_detached_cancel(struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&exchange->server->lock);
    if (exchange->work.request)
        gpuserve_cancel(exchange->work.request);
    pthread_mutex_unlock(&exchange->server->lock);
}

void gsv_detached_end(struct gsv_exchange **exchange)
{
    if (*exchange && (*exchange)->trace)
        gsv_request_trace_end(*exchange);
    gsv_exchange_destroy(*exchange);
    *exchange = NULL;
}
