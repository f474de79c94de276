/*
 * mhd.c - libmicrohttpd: its callbacks, and how the event loop drives it.
 *
 * An exchange is created at the request line, listed at the header, and destroyed when
 * libmicrohttpd completes the request. The access handler is called with the header, then with each
 * chunk of the body, then with an empty chunk, and again after each resumption.
 *
 * Any thread may request a resumption, which goes through the list `resumed` and the eventfd. All
 * else runs on the thread that holds `loop`.
 */
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/http/core/encoding.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/worker_threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { N_TURNS = 16 }; /* before other clients are served */

/* ---------------------------------------------------------------------------- list of exchanges */

static void list(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;

    pthread_mutex_lock(&server->lock);
    exchange->after = server->exchanges;
    if (exchange->after)
        exchange->after->before = exchange;
    server->exchanges = exchange;
    if (++server->n_exchanges > 1)
        server->crowded_ns = exchange->begun_ns;
    if (exchange->client)
        exchange->client->exchange = exchange;
    exchange->listed = true;
    pthread_mutex_unlock(&server->lock);
}

static void unlist(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;

    if (!exchange->listed)
        return;
    pthread_mutex_lock(&server->lock);
    if (exchange->before)
        exchange->before->after = exchange->after;
    else
        server->exchanges = exchange->after;
    if (exchange->after)
        exchange->after->before = exchange->before;
    if (exchange->client)
        exchange->client->exchange = NULL;
    if (--server->n_exchanges == 0)
        pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* -------------------------------------------------------------------- libmicrohttpd's callbacks */

bool gsv_connection_expect(struct gpuserve_http *server, int fd, struct gsv_client *client)
{
    size_t capacity = server->n_expected;
    bool good;

    pthread_mutex_lock(&server->lock);
    good = gsv_grow((void **)&server->expected, &capacity, (size_t)fd + 1,
                    sizeof(struct gsv_client *), SIZE_MAX / sizeof(struct gsv_client *));
    if (good) {
        memset(server->expected + server->n_expected, 0,
               (capacity - server->n_expected) * sizeof(struct gsv_client *));
        server->n_expected = capacity;
        if (server->expected[fd]) /* a connection that libmicrohttpd never started */
            gsv_client_release(server->expected[fd]);
        server->expected[fd] = client;
        atomic_fetch_add(&client->n_owners, 1);
    }
    pthread_mutex_unlock(&server->lock);
    return good;
}

void gsv_on_connection(void *user, struct MHD_Connection *connection, void **context,
                       enum MHD_ConnectionNotificationCode what)
{
    struct gpuserve_http *server = user;
    const union MHD_ConnectionInfo *info;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            gsv_client_release(*context);
        *context = NULL;
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&server->lock);
    if (info && (size_t)info->connect_fd < server->n_expected) {
        *context = server->expected[info->connect_fd];
        server->expected[info->connect_fd] = NULL;
    }
    pthread_mutex_unlock(&server->lock);
}

void *gsv_on_request_line(void *user, const char *target, struct MHD_Connection *connection)
{
    struct gsv_exchange *exchange = gsv_exchange_create(user, connection, target);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    if (exchange && info)
        exchange->client = info->socket_context;
    return exchange;
}

enum MHD_Result gsv_on_request(void *user, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_size, void **context)
{
    struct gsv_exchange *exchange = *context;
    bool good;

    (void)user;
    (void)connection;
    (void)version;
    (void)url; /* truncated at an escaped NUL: exchange->target is decoded instead */
    if (!exchange)
        return MHD_NO; /* out of memory */
    if (!exchange->begun) {
        exchange->begun = true;
        exchange->method = method;
        list(exchange);
        good = gsv_request_begin(exchange);
        if (exchange->server->traces)
            gsv_request_trace_begin(exchange);
        exchange->kept = exchange->memory;
        if (good || !gsv_request_has_body(exchange))
            return MHD_YES;
        exchange->close = true; /* the body is not read */
        if (exchange->client)
            exchange->client->is_last = true;
        return gsv_advance_send(exchange);
    }
    if (*upload_size > 0) {
        gsv_request_take(exchange, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (!exchange->received_ns)
        exchange->received_ns = gsv_now_ns();
    return gsv_dispatch(exchange);
}

void gsv_on_completed(void *user, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode why)
{
    struct gsv_exchange *exchange = *context;

    (void)user;
    (void)connection;
    (void)why;
    if (!exchange)
        return;
    *context = NULL;
    gsv_call_abandon(exchange);
    gsv_worker_threads_taken_over(exchange->server->workers, exchange);
    if (exchange->server->access_log->path)
        gsv_access_log_write(exchange->server->access_log, exchange);
    unlist(exchange);
    if (exchange->client) {
        exchange->client->request_bytes = 0;
        gsv_client_hold(exchange->client, 0); /* one reply at a time, even with pipelining */
        atomic_fetch_sub(&exchange->client->n_open, 1);
        gsv_event_loop_answered(exchange->client);
    }
    if (exchange->trace)
        gsv_request_trace_end(exchange);
    gsv_exchange_destroy(exchange);
}

/* -------------------------------------------------------------------------------- run and resume
 */

void gsv_event_loop_wake(struct gsv_event_loop *event_loop)
{
    const uint64_t one = 1;

    if (write(event_loop->wake, &one, sizeof(one)) < 0)
        return; /* the counter is saturated: it wakes anyway */
}

void gsv_event_loop_resume(struct gsv_event_loop *event_loop, struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&event_loop->lock);
    exchange->queued = event_loop->resumed;
    event_loop->resumed = exchange;
    /* Under the lock, so that the event loop cannot stop and close `wake` in between. */
    if (!exchange->queued)
        gsv_event_loop_wake(event_loop);
    pthread_mutex_unlock(&event_loop->lock);
}

static void resume_all(struct gsv_event_loop *event_loop)
{
    struct gsv_exchange *exchange, *next;

    pthread_mutex_lock(&event_loop->lock);
    exchange = event_loop->resumed;
    event_loop->resumed = NULL;
    pthread_mutex_unlock(&event_loop->lock);
    for (; exchange; exchange = next) {
        next = exchange->queued;
        MHD_resume_connection(exchange->connection);
    }
}

void gsv_event_loop_answered(struct gsv_client *client)
{
    if (client->ended || client->is_answered)
        return;
    client->is_answered = true;
    client->next_answered = client->event_loop->answered;
    client->event_loop->answered = client;
}

/* Passes new replies on at once; epoll would report them one turn later. */
static void pass_replies(struct gsv_event_loop *event_loop)
{
    struct gsv_client *client = event_loop->answered, *next;

    event_loop->answered = NULL;
    for (; client; client = next) {
        next = client->next_answered;
        client->is_answered = false;
        if (!client->ended)
            gsv_client_event(client, &client->mhd, EPOLLIN);
    }
}

bool gsv_event_loop_run_mhd(struct gsv_event_loop *event_loop)
{
    struct MHD_Daemon *daemon = event_loop->server->daemon;
    MHD_UNSIGNED_LONG_LONG left_ms;

    resume_all(event_loop);
    for (int i = 0; i < N_TURNS; i++) {
        MHD_run(daemon);
        pass_replies(event_loop);
        if (MHD_get_timeout(daemon, &left_ms) != MHD_YES || left_ms > 0)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------------- inline jobs */

bool gsv_event_loop_may_run_inline(const struct gsv_event_loop *event_loop)
{
    return !event_loop->lead && !event_loop->is_leading;
}

void gsv_event_loop_watch(struct gsv_event_loop *event_loop, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = event_loop };

    epoll_ctl(event_loop->follower, EPOLL_CTL_MOD, event_loop->epoll, &event);
}

void gsv_event_loop_run_inline(struct gsv_event_loop *event_loop)
{
    struct gsv_exchange *const exchange = event_loop->lead;

    event_loop->lead = NULL;
    event_loop->is_leading = true;
    gsv_event_loop_watch(event_loop, EPOLLIN | EPOLLONESHOT);
    pthread_mutex_unlock(&event_loop->loop);
    gsv_call_compute(exchange);
    pthread_mutex_lock(&event_loop->loop);
    event_loop->is_leading = false;
    gsv_event_loop_watch(event_loop, 0);
    MHD_resume_connection(exchange->connection);
    event_loop->is_done = gsv_event_loop_run_mhd(event_loop);
}
