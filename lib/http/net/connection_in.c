/*
 * connection_in.c - input path of one connection: client -> framing.c -> libmicrohttpd.
 *
 * `in` holds [in_begin, in_passed) accepted bytes and [in_passed, in_end) unchecked bytes. Only
 * accepted bytes reach libmicrohttpd. Backpressure: while libmicrohttpd accepts no input, the
 * client's socket is not read. Runs on the event loop thread.
 */
#include "lib/base/clock.h"
#include "lib/http/net/connection_io.h"

#include "lib/http/net/server_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Opens the socketpair to libmicrohttpd when the first header is accepted, not earlier. */
static bool open_mhd(struct gsv_client *client)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &client->mhd };
    struct gpuserve_http *server = client->event_loop->server;
    int pair[2];

    if (client->mhd.fd >= 0)
        return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    client->mhd.fd = pair[0];
    client->mhd.events = event.events;
    if (epoll_ctl(client->event_loop->epoll, EPOLL_CTL_ADD, pair[0], &event) != 0 ||
        !gsv_connection_expect(server, pair[1], client)) {
        close(pair[1]);
        gsv_end_close(&client->mhd);
        return false;
    }
    if (MHD_add_connection(server->daemon, pair[1], (struct sockaddr *)&client->address,
                           client->address_size) != MHD_YES) { /* its end is closed already */
        gsv_end_close(&client->mhd);
        return false;
    }
    return true;
}

/* Sends accepted bytes to libmicrohttpd. False: the client is refused or closed. */
static bool pass_on(struct gsv_client *client)
{
    while (client->in_begin < client->in_passed) {
        ssize_t n;

        if (!open_mhd(client)) {
            gsv_client_refuse(client, 503,
                              "the process has no free file descriptor for another connection", 0,
                              "");
            return false;
        }
        n = send(client->mhd.fd, client->in + client->in_begin,
                 client->in_passed - client->in_begin, MSG_NOSIGNAL);
        if (gsv_must_wait(n))
            break;
        if (n < 0) { /* libmicrohttpd closed the connection: an early reply is in flight */
            client->in_begin = client->in_passed;
            break;
        }
        client->in_begin += (size_t)n;
    }
    if (client->in_begin == client->in_end) {
        client->in_begin = client->in_passed = client->in_end = 0;
        if (client->waiting) { /* an idle connection holds no input buffer */
            free(client->in);
            client->in = NULL;
        }
    }
    return true;
}

/* Updates the state after bytes were accepted. False: the client is refused. */
static bool note_passed(struct gsv_client *client, bool is_header)
{
    const struct gsv_framing *framing = &client->framing;

    if (is_header) {
        if (client->probation && !framing->is_health) {
            gsv_client_refuse(client, 503, "all connections are in use",
                              client->event_loop->server->options.max_connections,
                              "(--max-connections)");
            return false;
        }
        atomic_fetch_add(&client->n_open, 1);
        client->since_ns = gsv_now_ns();
        client->body_bytes = 0;
    }
    client->in_body = framing->state != GSV_FRAMING_HEADER;
    if (!client->in_body) {
        client->waiting = client->in_passed == client->in_end;
        client->since_ns = gsv_now_ns();
    }
    return true;
}

/* Removes bytes that are valid and not passed on: at most GSV_DROPPED_BYTES of a request, so that
 * their number bounds the bytes moved. */
static void drop_input(struct gsv_client *client, size_t n)
{
    char *at = client->in + client->in_passed;

    memmove(at, at + n, client->in_end - client->in_passed - n);
    client->in_end -= n;
}

/* Runs the framing check over new input. False: the client is refused or closed. */
static bool check_input(struct gsv_client *client)
{
    struct gsv_framing *framing = &client->framing;

    while (client->in_passed < client->in_end) {
        const uint64_t before = framing->n_headers;
        const size_t n = gsv_framing_take(framing, client->in + client->in_passed,
                                          client->in_end - client->in_passed);

        if (framing->state == GSV_FRAMING_REFUSED) {
            /* Complete requests before the invalid bytes are answered first. */
            if (pass_on(client))
                gsv_client_refuse(client, framing->status, framing->reason, framing->limit,
                                  framing->unit);
            return false;
        }
        if (n == 0)
            break;
        if (framing->drop) {
            drop_input(client, n);
            continue;
        }
        client->in_passed += n;
        if (!note_passed(client, framing->n_headers > before))
            return false;
    }
    return true;
}

static void make_space(struct gsv_client *client)
{
    if (client->in_begin == 0 || client->in_end < GSV_HEADER_BYTES)
        return;
    memmove(client->in, client->in + client->in_begin, client->in_end - client->in_begin);
    client->in_end -= client->in_begin;
    client->in_passed -= client->in_begin;
    client->in_begin = 0;
}

void gsv_client_on_end(struct gsv_client *client)
{
    client->net.eof = true;
    gsv_client_abandon(client);
    if (client->mhd.fd < 0 || client->linger_ns) {
        gsv_client_close(client);
        return;
    }
    gsv_client_end_input(client); /* pending replies are still written, if the client reads them */
    gsv_client_watch(client, &client->net, client->out_end > 0 ? EPOLLOUT : 0);
}

/* Reads once. False: no bytes now, or the client closed its side. */
static bool read_client(struct gsv_client *client)
{
    const bool dropping = client->linger_ns != 0;
    ssize_t n;

    if (!dropping && !client->in)
        client->in = malloc(GSV_HEADER_BYTES);
    if (!dropping && !client->in) {
        gsv_client_close(client);
        return false;
    }
    make_space(client);
    n = dropping ? gsv_client_read(client, client->event_loop->scratch, GSV_SCRATCH_BYTES)
                 : gsv_client_read(client, client->in + client->in_end,
                                   GSV_HEADER_BYTES - client->in_end);
    if (gsv_must_wait(n))
        return false;
    if (n <= 0) {
        gsv_client_on_end(client);
        return false;
    }
    if (dropping)
        return false;
    if (client->waiting)
        client->since_ns = gsv_now_ns();
    client->waiting = false;
    client->in_end += (size_t)n;
    client->body_bytes += (size_t)n;
    return true;
}

/* libmicrohttpd accepts no more: wait for EPOLLOUT on its socket and stop reading the client. */
static void wait_for_writable(struct gsv_client *client)
{
    gsv_client_watch(client, &client->net, (client->net.events & EPOLLOUT) | EPOLLRDHUP);
    gsv_client_watch(client, &client->mhd, client->mhd.events | EPOLLOUT);
}

static void pump_part(struct gsv_client *client)
{
    if (client->framing.state == GSV_FRAMING_REFUSED && !client->linger_ns)
        return; /* the last replies are in flight */
    if (client->in_end < GSV_HEADER_BYTES || client->in_begin > 0 || client->linger_ns) {
        if (!read_client(client))
            return;
    }
    if (!check_input(client) || !pass_on(client))
        return;
    if (client->in_begin < client->in_passed)
        wait_for_writable(client);
}

void gsv_client_pump_in(struct gsv_client *client)
{
    do {
        pump_part(client);
    } while (!client->ended && client->net.events & EPOLLIN && gsv_client_has_more(client));
}

void gsv_client_resume_in(struct gsv_client *client)
{
    if (!pass_on(client))
        return;
    if (client->in_begin == client->in_passed) {
        gsv_client_watch(client, &client->mhd, client->mhd.events & ~(uint32_t)EPOLLOUT);
        gsv_client_watch(client, &client->net, client->net.events | EPOLLIN | EPOLLRDHUP);
        if (client->in_passed < client->in_end && (!check_input(client) || !pass_on(client)))
            return;
    }
    /* All input may have been read already: then no client event would trigger a retry. */
    if (client->in_begin < client->in_passed)
        wait_for_writable(client);
    else if (client->net.events & EPOLLIN && gsv_client_has_more(client))
        gsv_client_pump_in(client);
}
