/*
 * exchange.c - memory, reply and errors of an exchange.
 *
 * gsv_exchange_alloc() allocates blocks in a list, newest first. gsv_exchange_shrink() frees all
 * blocks newer than `kept` when the reply is queued. One thread at a time uses an exchange.
 */
#include "lib/http/protocol/exchange.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/utf8.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A block of gsv_exchange_alloc; the returned memory follows it. */
struct block {
    struct block *next;
    max_align_t bytes[];
};

struct gsv_exchange *gsv_exchange_create(struct gpuserve_http *server,
                                         struct MHD_Connection *connection, const char *target)
{
    struct gsv_exchange *exchange = calloc(1, sizeof(*exchange));

    if (!exchange)
        return NULL;
    exchange->server = server;
    exchange->connection = connection;
    exchange->begun_ns = gsv_now_ns();
    exchange->dialect = GSV_TEI;
    exchange->reply_fd = -1;
    exchange->target = gsv_copy_text(target, strlen(target));
    if (exchange->target)
        return exchange;
    free(exchange);
    return NULL;
}

void gsv_exchange_shrink(struct gsv_exchange *exchange)
{
    struct block *block, *next;

    json_decref(exchange->json);
    exchange->json = NULL;
    gsv_buffer_reset(&exchange->body);
    for (block = exchange->memory; block != exchange->kept; block = next) {
        next = block->next;
        free(block);
    }
    exchange->memory = exchange->kept;
    exchange->n_headers = 0; /* the strings are freed, and so are: */
    exchange->state = NULL;
    exchange->rerank = NULL;
    exchange->compact = NULL;
    exchange->long_wanted = NULL;
    gpuserve_long_texts_free(&exchange->long_texts);
    gpuserve_entity_query_free(&exchange->entities);
}

void gsv_exchange_destroy(struct gsv_exchange *exchange)
{
    if (!exchange)
        return;
    gpuserve_request_free(&exchange->work.request); /* before the memory it writes to */
    exchange->kept = NULL;
    gsv_exchange_shrink(exchange);
    gsv_served_release(exchange->served);
    gsv_buffer_reset(&exchange->reply);
    gsv_reply_encoder_free(exchange->encoder);
    if (exchange->reply_fd >= 0)
        close(exchange->reply_fd);
    free(exchange->target);
    free(exchange);
}

void *gsv_exchange_alloc(struct gsv_exchange *exchange, size_t n, size_t size)
{
    struct block *block = NULL;
    size_t bytes;

    if (gsv_mul_size(n, size, &bytes) && gsv_add_size(bytes, sizeof(*block), &bytes))
        block = calloc(1, bytes);
    if (!block) {
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory: %zu values of %zu bytes", n,
                   size);
        return NULL;
    }
    block->next = exchange->memory;
    exchange->memory = block;
    return block->bytes;
}

char *gsv_exchange_copy_text(struct gsv_exchange *exchange, const char *text, size_t size)
{
    char *copy = gsv_exchange_alloc(exchange, size + 1, 1);

    if (copy && size)
        memcpy(copy, text, size);
    return copy;
}

char *gsv_exchange_format(struct gsv_exchange *exchange, const char *format, ...)
{
    va_list arguments;
    char text[1024];
    int size;

    va_start(arguments, format);
    size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (size < 0)
        size = 0;
    return gsv_exchange_copy_text(exchange, text,
                                  (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

const char *gsv_header(const struct gsv_exchange *exchange, const char *name)
{
    return exchange->connection
               ? MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name)
               : NULL;
}

void gsv_add_header(struct gsv_exchange *exchange, const char *name, const char *value)
{
    if (!value || exchange->n_headers == GSV_MAX_HEADERS)
        return;
    for (size_t i = 0; i < exchange->n_headers; i++) { /* a request may run several equal jobs */
        if (strcmp(exchange->headers[i].name, name) == 0 &&
            strcmp(exchange->headers[i].value, value) == 0)
            return;
    }
    exchange->headers[exchange->n_headers].name = name;
    exchange->headers[exchange->n_headers].value = value;
    exchange->n_headers++;
}

/* --------------------------------------------------------------------------------------- reply */

void gsv_reply(struct gsv_exchange *exchange, unsigned status, const char *content_type)
{
    if (exchange->reply.failed) {
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the reply");
        return;
    }
    exchange->status = status;
    exchange->content_type = content_type;
}

void gsv_reply_json(struct gsv_exchange *exchange)
{
    gsv_reply(exchange, 200, "application/json");
}

void gsv_reply_text(struct gsv_exchange *exchange, unsigned status, const char *text)
{
    gsv_buffer_text(&exchange->reply, text);
    gsv_reply(exchange, status, "text/plain; charset=utf-8");
}

bool gsv_refuse(struct gsv_exchange *exchange, enum gsv_problem kind, const char *param,
                const char *format, ...)
{
    char message[1280];
    struct gsv_complaint complaint = { kind, message, param };
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (size > 0) { /* contains client text: must be UTF-8 even if truncated */
        size_t end = strlen(message);

        message[gsv_utf8_valid_length(message, end)] = 0;
    }
    gsv_buffer_reset(&exchange->reply);
    exchange->borrowed = NULL;
    gsv_problem_write(&exchange->reply, &complaint, exchange->dialect);
    exchange->status = gsv_problem_status(kind, exchange->dialect);
    exchange->content_type = "application/json";
    if (gsv_problem_stays(kind)) /* otherwise the openai package retries twice */
        gsv_add_header(exchange, "x-should-retry", "false");
    return false;
}

static enum gsv_problem problem_of(gpuserve_status status)
{
    switch (status) {
    case GPUSERVE_E_INVALID:
        return GSV_P_INVALID;
    case GPUSERVE_E_NOT_FOUND:
        return GSV_P_NO_MODEL;
    case GPUSERVE_E_MISMATCH:
        return GSV_P_CONFLICT;
    case GPUSERVE_E_UNSUPPORTED:
        return GSV_P_UNSUPPORTED;
    case GPUSERVE_E_TOO_LARGE:
        return GSV_P_TOO_LONG;
    case GPUSERVE_E_BUSY:
        return GSV_P_OVERLOADED;
    case GPUSERVE_E_NOMEM:
    case GPUSERVE_E_CANCELLED:
        return GSV_P_UNAVAILABLE;
    case GPUSERVE_E_EXPIRED:
    case GPUSERVE_E_TIMEOUT:
        return GSV_P_EXPIRED;
    case GPUSERVE_E_DEVICE:
    case GPUSERVE_E_NUMERIC:
        return GSV_P_BACKEND;
    default:
        return GSV_P_INTERNAL;
    }
}

/* Retry-After holds whole seconds, at least one; retry-after-ms holds milliseconds. */
void gsv_add_retry_after(struct gsv_exchange *exchange, uint32_t after_ms)
{
    const uint32_t ms = after_ms ? after_ms : 1000;

    gsv_add_header(exchange, "Retry-After", gsv_exchange_format(exchange, "%u", (ms + 999) / 1000));
    gsv_add_header(exchange, "retry-after-ms", gsv_exchange_format(exchange, "%u", ms));
}

bool gsv_refuse_length(struct gsv_exchange *exchange, const char *message, bool is_ids)
{
    const char *cut_by = exchange->cut_by;

    if (!cut_by && exchange->dialect == GSV_COHERE)
        cut_by = "`truncate`: \"END\"";
    if (is_ids || !cut_by)
        return gsv_refuse(exchange, GSV_P_TOO_LONG, NULL,
                          "%s; this model's maximum context length is %zu tokens: send %s", message,
                          exchange->served->max_tokens,
                          is_ids ? "fewer ids, as ids are never cut" : "a shorter text");
    return gsv_refuse(exchange, GSV_P_TOO_LONG, NULL,
                      "%s; this model's maximum context length is %zu tokens: send a shorter text, "
                      "or %s to have it cut",
                      message, exchange->served->max_tokens, cut_by);
}

bool gsv_refuse_error(struct gsv_exchange *exchange, gpuserve_status status,
                      const gpuserve_error *error)
{
    const enum gsv_problem kind = problem_of(status);
    const char *message = error->message[0] ? error->message : gpuserve_status_name(status);

    if (kind == GSV_P_OVERLOADED) {
        gsv_add_retry_after(exchange, error->retry_after_ms);
        return gsv_refuse(exchange, kind, NULL,
                          error->hint[0] ? "%s (--queue-ms, --queue-tokens)" : "%s", message);
    }
    if (kind == GSV_P_TOO_LONG && exchange->served && !error->hint[0])
        return gsv_refuse_length(exchange, message, exchange->work.job.ids != NULL);
    if (error->hint[0])
        return gsv_refuse(exchange, kind, NULL, "%s (%s)", message, error->hint);
    return gsv_refuse(exchange, kind, NULL, "%s", message);
}

bool gsv_refuse_tokens(struct gsv_exchange *exchange, gpuserve_status status,
                       const gpuserve_error *error)
{
    if (status == GPUSERVE_E_INVALID)
        return gsv_refuse(exchange, GSV_P_TOKENIZER, NULL, "%s", error->message);
    return gsv_refuse_error(exchange, status, error);
}
