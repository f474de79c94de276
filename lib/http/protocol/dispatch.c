/*
 * dispatch.c - runs the steps of an exchange on the event loop thread or a worker thread.
 *
 *   request complete -> handler -> (job -> finish)* -> reply -> libmicrohttpd
 *
 * Long steps go to the worker threads: a large or compressed body, a long reply, a large result.
 * A streamed reply continues in read_stream(), which libmicrohttpd calls for more of it.
 * While a step or a job runs elsewhere, the connection is suspended and counted in n_working.
 */
#include "lib/http/models/idle.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/worker_threads.h"

#include "lib/http/net/server_state.h"
#include "lib/http/protocol/route.h"

#include <string.h>

/* A step over more data than this takes at least a quarter of a millisecond: a body is parsed at
 * about 6 ns a byte, a float is written as JSON in about 50 ns. */
enum {
    SMALL_COMPRESSED_BYTES = 64 * 1024,
    SMALL_BODY_BYTES = 32 * 1024,
    SMALL_REPLY_FLOATS = 4 * 1024,
    TINY_BODY_BYTES = 2048,
    STREAM_PART_BYTES = 32 * 1024
};

static ssize_t read_stream(void *user, uint64_t position, char *to, size_t capacity);

/* --------------------------------------------------------------------------------------- reply */

/* Transfers the reply bytes to libmicrohttpd, which frees them after sending. */
static struct MHD_Response *make_response(struct gsv_exchange *exchange)
{
    struct MHD_Response *response;

    if (exchange->reply_fd >= 0) {
        response = MHD_create_response_from_fd64(exchange->n_borrowed, exchange->reply_fd);
        exchange->n_reply_bytes = exchange->n_borrowed;
        if (response)
            exchange->reply_fd = -1; /* closed by libmicrohttpd */
        return response;
    }
    if (exchange->borrowed) {
        exchange->n_reply_bytes = exchange->n_borrowed;
        return MHD_create_response_from_buffer(exchange->n_borrowed, (void *)exchange->borrowed,
                                               MHD_RESPMEM_PERSISTENT);
    }
    if (exchange->stream && exchange->client)
        exchange->client->request_bytes = exchange->stream->n_request_bytes;
    if (exchange->stream)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_PART_BYTES, read_stream,
                                                 exchange, NULL);
    response = MHD_create_response_from_buffer(exchange->reply.size, exchange->reply.bytes,
                                               MHD_RESPMEM_MUST_FREE);
    if (!response)
        return NULL;
    exchange->n_reply_bytes = exchange->reply.size;
    exchange->reply = (struct gsv_buffer){ 0 };
    if (exchange->client)
        gsv_client_hold(exchange->client, exchange->n_reply_bytes);
    return response;
}

enum MHD_Result gsv_advance_send(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    struct MHD_Response *response;
    enum MHD_Result result;

    if (exchange->status != 200) /* an error is one reply */
        exchange->stream = NULL;
    else if (exchange->stream)
        exchange->stream->has_begun = true;
    response = make_response(exchange);
    gsv_worker_threads_taken_over(server->workers, exchange);
    if (!response)
        return MHD_NO;
    if (exchange->content_type)
        MHD_add_response_header(response, "Content-Type", exchange->content_type);
    for (size_t i = 0; i < exchange->n_headers; i++)
        MHD_add_response_header(response, exchange->headers[i].name, exchange->headers[i].value);
    if (exchange->close || atomic_load(&server->draining))
        MHD_add_response_header(response, "Connection", "close");
    result = MHD_queue_response(exchange->connection, exchange->status, response);
    MHD_destroy_response(response);
    if (!exchange->stream)
        gsv_exchange_shrink(exchange);
    return result;
}

/* --------------------------------------------------------------------------------------- steps */

static void answer(struct gsv_exchange *exchange)
{
    gsv_request_end(exchange);
    if (exchange->status != 0)
        return;
    if (exchange->route->flags & GSV_JSON_BODY && !gsv_request_json(exchange))
        return;
    exchange->route->handler(exchange);
    if (exchange->status == 0 && !exchange->work.waiting)
        gsv_refuse(exchange, GSV_P_INTERNAL, NULL, "%s has no reply", exchange->path);
}

static bool is_over(const struct gsv_exchange *exchange)
{
    return !exchange->work.waiting && exchange->status != 0;
}

/* The client disconnected, or the server is stopping. */
static bool is_in_vain(const struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    bool in_vain;

    pthread_mutex_lock(&server->lock);
    in_vain = server->stopping || (exchange->client && exchange->client->gone);
    pthread_mutex_unlock(&server->lock);
    return in_vain;
}

static void take_step(struct gsv_exchange *exchange)
{
    if (!exchange->work.waiting && exchange->is_offloaded && is_in_vain(exchange)) {
        exchange->work.status = GPUSERVE_E_CANCELLED; /* gsv_exchange_has_left() reads it */
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "the request was cancelled");
    } else if (exchange->work.waiting) {
        gsv_call_finish(exchange);
    } else {
        answer(exchange);
    }
}

/* A handler that would have to resume a suspended model, which takes as long as a load. */
static bool may_resume(const struct gsv_exchange *exchange)
{
    return exchange->route && exchange->route->flags & (GSV_JSON_BODY | GSV_RAW_BODY) &&
           gsv_idle_any(exchange->server->idle_models);
}

/* True if the next step would noticeably delay the event loop's other clients. */
static bool takes_long(const struct gsv_exchange *exchange)
{
    const struct gsv_call *work = &exchange->work;
    const struct gsv_route *route = exchange->route;
    const size_t small =
        route && route->flags & GSV_LONG_REPLY ? TINY_BODY_BYTES : SMALL_BODY_BYTES;

    if (work->waiting)
        return !work->is_load && work->job.output_capacity > SMALL_REPLY_FLOATS;
    return (route && route->flags & GSV_BLOCKING) || may_resume(exchange) ||
           exchange->body.size > small || gsv_header(exchange, "Content-Encoding");
}

/* False: the server is stopping, so this thread must run the step. */
static bool hand_over(struct gsv_exchange *exchange)
{
    if (!gsv_call_count_in(exchange))
        return false;
    exchange->is_offloaded = true;
    MHD_suspend_connection(exchange->connection);
    gsv_worker_threads_add(exchange->server->workers, exchange);
    return true;
}

/* ------------------------------------------------------------------------------- end of a reply */

/* A refusal after the first block has replaced the block: it becomes the last line. */
static void end_failed_stream(struct gsv_exchange *exchange)
{
    struct gsv_stream *stream = exchange->stream;

    if (!stream || !stream->has_begun || exchange->status == 200 || stream->is_last)
        return;
    if (stream->fail)
        stream->fail(exchange);
    else
        gsv_buffer_text(&exchange->reply, "\n");
    stream->is_last = true;
}

/* The reply, or a block of a streamed one, is complete. On the thread that made it. */
static void end_reply(struct gsv_exchange *exchange, size_t max_compressed_bytes)
{
    end_failed_stream(exchange);
    gsv_compress_reply(exchange, max_compressed_bytes);
}

enum MHD_Result gsv_dispatch(struct gsv_exchange *exchange)
{
    if (exchange->is_offloaded) {
        exchange->is_offloaded = false;
        gsv_call_count_out(exchange);
    }
    while (!is_over(exchange)) {
        if (takes_long(exchange) && hand_over(exchange))
            return MHD_YES;
        take_step(exchange);
        if (exchange->work.waiting && gsv_call_suspend(exchange))
            return MHD_YES;
    }
    end_reply(exchange, SMALL_COMPRESSED_BYTES);
    return gsv_advance_send(exchange);
}

/* --------------------------------------------------------------------------------- streamed reply
 */

/* Takes the worker thread's or the library's result up, or starts the next block. False: the
 * connection is suspended, or is to be resumed at once. */
static bool advance_stream(struct gsv_exchange *exchange)
{
    struct gsv_stream *stream = exchange->stream;

    if (exchange->work.waiting) {
        if (takes_long(exchange) && hand_over(exchange))
            return false;
        gsv_call_finish(exchange);
    } else {
        exchange->reply.size = stream->taken = 0;
        exchange->is_compressed = false;
        stream->next(exchange);
        if (exchange->work.waiting)
            return !gsv_call_suspend(exchange);
    }
    return true;
}

/* libmicrohttpd's reader of a streamed reply, on the event loop thread. Returns 0 with the
 * connection suspended until there is more. */
static ssize_t read_stream(void *user, uint64_t position, char *to, size_t capacity)
{
    struct gsv_exchange *exchange = user;
    struct gsv_stream *stream = exchange->stream;
    size_t size;

    (void)position;
    if (exchange->is_offloaded) {
        exchange->is_offloaded = false;
        gsv_call_count_out(exchange);
        gsv_worker_threads_taken_over(exchange->server->workers, exchange);
    }
    while (stream->taken == exchange->reply.size || exchange->work.waiting) {
        if (stream->is_last && !exchange->work.waiting)
            return stream->is_cut ? MHD_CONTENT_READER_END_WITH_ERROR
                                  : MHD_CONTENT_READER_END_OF_STREAM;
        if (!advance_stream(exchange))
            return 0;
        if (!exchange->work.waiting)
            end_reply(exchange, SIZE_MAX);
    }
    size = exchange->reply.size - stream->taken;
    size = size < capacity ? size : capacity;
    memcpy(to, exchange->reply.bytes + stream->taken, size);
    stream->taken += size;
    exchange->n_reply_bytes += size;
    if (exchange->client)
        gsv_client_hold(exchange->client, exchange->reply.size - stream->taken);
    return (ssize_t)size;
}

void gsv_dispatch_offload(struct gsv_exchange *exchange)
{
    do {
        take_step(exchange);
        /* After gsv_call_leave() the completing thread may resume and free the exchange. */
        if (exchange->work.waiting && gsv_call_leave(exchange))
            return;
    } while (!is_over(exchange));
    end_reply(exchange, SIZE_MAX);
    gsv_worker_threads_made(exchange->server->workers, exchange);
    gsv_event_loop_resume(&exchange->server->event_loop, exchange);
}
