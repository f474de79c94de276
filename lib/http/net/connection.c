/*
 * connection.c - one client connection: its bytes in and out, its events and its close.
 *
 *   client -> `in` -> framing.c -> libmicrohttpd -> `out` -> client
 *
 * `in` holds [in_begin, in_passed) accepted bytes and [in_passed, in_end) unchecked bytes. Only
 * accepted bytes reach libmicrohttpd. `out` buffers what the client does not accept at once.
 *
 * Backpressure: reading stops where writing cannot continue. While libmicrohttpd accepts no input,
 * the client's socket is not read; while `out` is not empty, libmicrohttpd's socket is not read. A
 * connection holds at most one header of input and one chunk of output.
 *
 * Reads and writes of the socket: connection_socket.c. Rejections without libmicrohttpd:
 * early_reject.c. Limits of time: timeouts.c. All run on the event loop thread.
 */
#include "lib/http/net/connection.h"

#include "lib/base/clock.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t first_time_ns = 1000000000u; /* wait for a first request while draining */

/* ---------------------------------------------------------------------------------------- ends */

bool gsv_must_wait(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

void gsv_client_watch(struct gsv_client *client, struct gsv_end *end, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = end };

    if (end->fd < 0 || end->events == events)
        return;
    end->events = events;
    epoll_ctl(client->event_loop->epoll, EPOLL_CTL_MOD, end->fd, &event);
}

/* Removes the descriptor from epoll explicitly and shuts it down. close() alone does neither while
 * a forked or spawned child of the host program shares the descriptor. Events of a descriptor left
 * in the set would point to freed memory. */
void gsv_end_close(struct gsv_end *end)
{
    if (end->fd < 0)
        return;
    epoll_ctl(end->client->event_loop->epoll, EPOLL_CTL_DEL, end->fd, NULL);
    shutdown(end->fd, SHUT_RDWR);
    close(end->fd);
    end->fd = -1;
}

void gsv_client_close(struct gsv_client *client)
{
    if (client->ended)
        return;
    client->ended = client->event_loop->has_ended = true;
    gsv_client_abandon(client);
    if (client->tls && client->ready && client->out_end == 0)
        gsv_client_end_output(client);
    gsv_tls_session_free(client->tls);
    client->tls = NULL;
    gsv_end_close(&client->net);
    gsv_end_close(&client->mhd);
    free(client->in);
    free(client->out);
    client->in = client->out = NULL;
}

void gsv_client_end_input(struct gsv_client *client)
{
    const bool whole = !client->in_body && client->in_begin == client->in_passed;

    if (client->mhd.fd >= 0 && (!whole || atomic_load(&client->n_open) == 0))
        shutdown(client->mhd.fd, SHUT_WR);
}

void gsv_client_drain(struct gsv_client *client)
{
    uint64_t since_ns;
    int n_unread = 0;

    if (!client->waiting || atomic_load(&client->n_open) > 0 || client->linger_ns)
        return;
    /* A request may be unread in the socket or, on a new connection, still on its way. */
    if ((ioctl(client->net.fd, FIONREAD, &n_unread) == 0 && n_unread > 0) ||
        gsv_client_has_more(client))
        return;
    since_ns = client->event_loop->draining_ns;
    if (client->since_ns > since_ns)
        since_ns = client->since_ns;
    if (client->framing.n_headers == 0 && gsv_now_ns() - since_ns < first_time_ns)
        return;
    if (client->mhd.fd < 0)
        gsv_client_close(client);
    else /* libmicrohttpd closes after its pending output is read */
        shutdown(client->mhd.fd, SHUT_WR);
}

/* -------------------------------------------------------------------------------------- input */

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

static void on_end(struct gsv_client *client)
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
        on_end(client);
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

static void pump_in(struct gsv_client *client)
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
        pump_in(client);
}

/* ------------------------------------------------------------------------------------- output */

void gsv_client_hold(struct gsv_client *client, size_t bytes)
{
    client->event_loop->held_bytes -= client->held_bytes;
    client->event_loop->held_bytes += bytes;
    client->held_bytes = bytes;
}

static bool write_out(struct gsv_client *client)
{
    while (client->out_begin < client->out_end) {
        const ssize_t n = gsv_client_write(client, client->out + client->out_begin,
                                           client->out_end - client->out_begin);

        if (gsv_must_wait(n))
            return false;
        if (n <= 0) {
            gsv_client_close(client);
            return false;
        }
        client->out_begin += (size_t)n;
        client->taken_bytes += (uint64_t)n;
    }
    free(client->out);
    client->out = NULL;
    client->out_begin = client->out_end = 0;
    client->stalled_ns = 0;
    return true;
}

/* Buffers output until the client accepts it; libmicrohttpd is not read meanwhile. */
static void keep_out(struct gsv_client *client, const char *bytes, size_t size)
{
    client->out = malloc(size);
    if (!client->out) {
        gsv_client_close(client);
        return;
    }
    memcpy(client->out, bytes, size);
    client->out_begin = 0;
    client->out_end = size;
    client->stalled_ns = gsv_now_ns();
    client->taken_bytes = 0;
    gsv_client_watch(client, &client->net, client->net.events | EPOLLOUT);
    gsv_client_watch(client, &client->mhd, client->mhd.events & ~(uint32_t)EPOLLIN);
}

static void on_mhd_end(struct gsv_client *client)
{
    client->mhd.eof = true;
    if (client->framing.state == GSV_FRAMING_REFUSED && !client->linger_ns) {
        gsv_client_send_refusal(client);
        return;
    }
    /* The reply ends the connection while its request still arrives. As after a rejection, the rest
     * is read and dropped; otherwise the reset would overtake the reply. */
    if (client->net.eof || client->waiting) {
        gsv_client_end_output(client);
        gsv_client_close(client);
        return;
    }
    gsv_client_linger(client);
}

static void pump_out(struct gsv_client *client)
{
    char *const part = client->event_loop->scratch;
    ssize_t n, sent;

    if (client->out_end > 0)
        return;
    n = recv(client->mhd.fd, part, GSV_SCRATCH_BYTES, 0);
    if (gsv_must_wait(n))
        return;
    if (n <= 0) {
        on_mhd_end(client);
        return;
    }
    if (client->waiting)
        client->since_ns = gsv_now_ns(); /* the idle timeout starts with the reply */
    sent = gsv_client_write(client, part, (size_t)n);
    if (sent < 0 && !gsv_must_wait(sent)) {
        gsv_client_close(client);
        return;
    }
    if (client->framing.state == GSV_FRAMING_REFUSED || client->net.eof)
        gsv_client_end_input(client);
    if (sent < n)
        keep_out(client, part + (sent > 0 ? sent : 0), (size_t)(n - (sent > 0 ? sent : 0)));
}

/* -------------------------------------------------------------------------------------- events */

static void on_net(struct gsv_client *client, uint32_t events)
{
    if (events & EPOLLERR) {
        gsv_client_close(client);
        return;
    }
    if (!client->ready) {
        if (!gsv_client_make_ready(client))
            return;
        events |= EPOLLIN; /* bytes may have arrived with the last handshake message */
    }
    if (events & EPOLLOUT && client->reading_wants_out) {
        client->reading_wants_out = false;
        events |= EPOLLIN;
    }
    if (events & EPOLLOUT && write_out(client)) {
        gsv_client_watch(client, &client->net, client->net.events & ~(uint32_t)EPOLLOUT);
        gsv_client_watch(client, &client->mhd, client->mhd.events | EPOLLIN);
        while (client->mhd_off && !client->ended && client->out_end == 0 && client->mhd.fd >= 0)
            pump_out(client);
    }
    if (!client->ended && events & EPOLLIN)
        pump_in(client);
    if (!client->ended && events & (EPOLLRDHUP | EPOLLHUP) && !client->net.eof) {
        gsv_client_abandon(client);          /* bytes before the end may be unread */
        if (!(client->net.events & EPOLLIN)) /* reading is paused and does not resume */
            on_end(client);
    }
    if (!client->ended && events & EPOLLHUP)
        gsv_client_close(client);
}

void gsv_client_event(struct gsv_client *client, struct gsv_end *end, uint32_t events)
{
    if (end == &client->net) {
        on_net(client, events);
        return;
    }
    if (client->mhd.fd < 0)
        return;
    if (events & EPOLLHUP && client->out_end > 0) { /* level-triggered: would repeat */
        epoll_ctl(client->event_loop->epoll, EPOLL_CTL_DEL, client->mhd.fd, NULL);
        client->mhd_off = true;
        return;
    }
    if (events & EPOLLOUT)
        gsv_client_resume_in(client);
    if (!client->ended && client->mhd.fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        pump_out(client);
}
