/*
 * client.c - one client: bytes to libmicrohttpd as far as they have passed, replies back, and the
 * limits on its time.
 *
 * Everything here runs on the guard's thread. Reading stops where writing does not go on, so a
 * connection never holds more than one header on the way in and one part on the way out.
 */
#include "lib/http/guard.h"
#include "lib/http/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCRATCH_BYTES = 64 * 1024 };

static const uint64_t rate_grace_ns = 5000000000u;  /* before a least rate is asked for */
static const uint64_t first_time_ns = 1000000000u;  /* for a first request while draining */
static const uint64_t linger_time_ns = 1000000000u; /* for a refusal to arrive */

/* ---------------------------------------------------------------------------------------- ends */

/* The only places that touch the client's socket: where TLS would come in. */
static ssize_t net_read(struct gsv_client *client, char *to, size_t size)
{
    return recv(client->net.fd, to, size, 0);
}

static ssize_t net_write(struct gsv_client *client, const char *bytes, size_t size)
{
    return send(client->net.fd, bytes, size, MSG_NOSIGNAL);
}

static bool must_wait(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static void watch(struct gsv_client *client, struct gsv_end *end, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = end };

    if (end->fd < 0 || end->events == events)
        return;
    end->events = events;
    epoll_ctl(client->guard->epoll, EPOLL_CTL_MOD, end->fd, &event);
}

static void close_end(struct gsv_end *end)
{
    if (end->fd >= 0)
        close(end->fd);
    end->fd = -1;
}

/* The client has closed its side or the connection is broken: nobody will read the answer. */
static void give_up_work(struct gsv_client *client)
{
    struct gpuserve_http *server = client->guard->server;

    pthread_mutex_lock(&server->lock);
    client->gone = true;
    if (client->exchange && client->exchange->work.request)
        gpuserve_cancel(client->exchange->work.request);
    pthread_mutex_unlock(&server->lock);
}

void gsv_client_close(struct gsv_client *client)
{
    if (client->ended)
        return;
    client->ended = true;
    give_up_work(client);
    close_end(&client->net);
    close_end(&client->mhd);
    free(client->in);
    free(client->out);
    client->in = client->out = NULL;
}

/* No more requests for libmicrohttpd: it ends its side after what it has written. Not while one is
 * unanswered, unless its body will never be whole: it might take the end for a broken connection.
 */
static void end_input(struct gsv_client *client)
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
    /* A request may be here that was not read yet, or, on a connection just made, be coming. */
    if (ioctl(client->net.fd, FIONREAD, &n_unread) == 0 && n_unread > 0)
        return;
    since_ns = client->guard->draining_ns;
    if (client->since_ns > since_ns)
        since_ns = client->since_ns;
    if (client->framing.n_headers == 0 && gsv_http_now() - since_ns < first_time_ns)
        return;
    if (client->mhd.fd < 0)
        gsv_client_close(client);
    else /* it ends its side after what it has written is read */
        shutdown(client->mhd.fd, SHUT_WR);
}

/* ------------------------------------------------------------------------------------- refusal */

static const char *reason_phrase(unsigned status)
{
    switch (status) {
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

/* The answer in a form that every dialect's clients can show, then the end. What the client still
 * sends is read and dropped for a moment: closing at once would reset the connection under it. */
static void send_refusal(struct gsv_client *client)
{
    const unsigned status = client->framing.status;
    char body[256], text[640];
    int size;

    snprintf(body, sizeof(body), "{\"error\":\"%s\",\"error_type\":\"%s\"}", client->framing.reason,
             status == 429 || status == 503 ? "Overloaded" : "Validation");
    size = snprintf(
        text, sizeof(text),
        "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s"
        "Connection: close\r\n\r\n%s",
        status, reason_phrase(status), strlen(body),
        status == 429 || status == 503 ? "Retry-After: 1\r\nretry-after-ms: 1000\r\n" : "", body);
    if (net_write(client, text, (size_t)size) != size) {
        gsv_client_close(client);
        return;
    }
    shutdown(client->net.fd, SHUT_WR);
    close_end(&client->mhd);
    client->linger_ns = gsv_http_now() + linger_time_ns;
    client->in_begin = client->in_passed = client->in_end = 0;
    watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
}

void gsv_client_refuse(struct gsv_client *client, unsigned status, const char *reason)
{
    client->framing.state = GSV_FRAMING_REFUSED;
    client->framing.status = status;
    client->framing.reason = reason;
    /* Answers that are due come first, and some may lie unread in the pair though their requests
     * are completed: libmicrohttpd ends its side after them, and only then this one is sent. Of a
     * body cut short it answers nothing. */
    if (client->mhd.fd >= 0) {
        end_input(client);
        watch(client, &client->net, client->net.events & EPOLLOUT);
        return;
    }
    send_refusal(client);
}

/* ----------------------------------------------------------------------- from the client to us */

/* libmicrohttpd gets its end of a pair when the first header has passed, not before. */
static bool open_mhd(struct gsv_client *client)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &client->mhd };
    struct gpuserve_http *server = client->guard->server;
    int pair[2];

    if (client->mhd.fd >= 0)
        return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    client->mhd.fd = pair[0];
    client->mhd.events = event.events;
    if (epoll_ctl(client->guard->epoll, EPOLL_CTL_ADD, pair[0], &event) != 0 ||
        !gsv_connection_expect(server, pair[1], client)) {
        close(pair[1]);
        close_end(&client->mhd);
        return false;
    }
    if (MHD_add_connection(server->daemon, pair[1], (struct sockaddr *)&client->address,
                           client->address_size) != MHD_YES) { /* it has closed its end */
        close_end(&client->mhd);
        return false;
    }
    return true;
}

/* To libmicrohttpd what has passed. False: the client is refused or closed. */
static bool pass_on(struct gsv_client *client)
{
    while (client->in_begin < client->in_passed) {
        ssize_t n;

        if (!open_mhd(client)) {
            gsv_client_refuse(client, 503, "no more connections can be opened");
            return false;
        }
        n = send(client->mhd.fd, client->in + client->in_begin,
                 client->in_passed - client->in_begin, MSG_NOSIGNAL);
        if (must_wait(n))
            break;
        if (n < 0) { /* it has ended the connection: an early answer is on its way */
            client->in_begin = client->in_passed;
            break;
        }
        client->in_begin += (size_t)n;
    }
    if (client->in_begin == client->in_end) {
        client->in_begin = client->in_passed = client->in_end = 0;
        if (client->waiting) { /* between requests a connection holds no memory for them */
            free(client->in);
            client->in = NULL;
        }
    }
    return true;
}

/* What was counted as passed may go on. False: the client is refused. */
static bool note_passed(struct gsv_client *client, bool is_header)
{
    const struct gsv_framing *framing = &client->framing;

    if (is_header) {
        if (client->probation && !framing->is_health) {
            gsv_client_refuse(client, 503, "all connections are taken");
            return false;
        }
        atomic_fetch_add(&client->n_open, 1);
        client->since_ns = gsv_http_now();
        client->body_bytes = 0;
    }
    client->in_body = framing->state != GSV_FRAMING_HEADER;
    if (!client->in_body) {
        client->waiting = client->in_passed == client->in_end;
        client->since_ns = gsv_http_now();
    }
    return true;
}

/* Find what is good. False: the client is refused or closed. */
static bool check_input(struct gsv_client *client)
{
    struct gsv_framing *framing = &client->framing;

    while (client->in_passed < client->in_end) {
        const uint64_t before = framing->n_headers;
        const size_t n = gsv_framing_take(framing, client->in + client->in_passed,
                                          client->in_end - client->in_passed);

        if (framing->state == GSV_FRAMING_REFUSED) {
            /* Whole requests before it are answered first. */
            if (client->in_body || pass_on(client))
                gsv_client_refuse(client, framing->status, framing->reason);
            return false;
        }
        if (n == 0)
            break;
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

static void on_client_end(struct gsv_client *client)
{
    client->net.eof = true;
    give_up_work(client);
    if (client->mhd.fd < 0 || client->linger_ns) {
        gsv_client_close(client);
        return;
    }
    end_input(client); /* what is due is still written, if somebody reads it */
    watch(client, &client->net, client->out_end > 0 ? EPOLLOUT : 0);
}

/* Some bytes; false: none now, or the client has ended. */
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
    n = dropping ? net_read(client, client->guard->scratch, SCRATCH_BYTES)
                 : net_read(client, client->in + client->in_end, GSV_HEADER_BYTES - client->in_end);
    if (must_wait(n))
        return false;
    if (n <= 0) {
        on_client_end(client);
        return false;
    }
    if (dropping)
        return false;
    if (client->waiting)
        client->since_ns = gsv_http_now();
    client->waiting = false;
    client->in_end += (size_t)n;
    client->body_bytes += (size_t)n;
    return true;
}

/* libmicrohttpd takes no more now: wait for it, and do not read meanwhile. */
static void wait_for_room(struct gsv_client *client)
{
    watch(client, &client->net, (client->net.events & EPOLLOUT) | EPOLLRDHUP);
    watch(client, &client->mhd, client->mhd.events | EPOLLOUT);
}

static void pump_in(struct gsv_client *client)
{
    if (client->framing.state == GSV_FRAMING_REFUSED && !client->linger_ns)
        return; /* its last answers are on their way */
    if (client->in_end < GSV_HEADER_BYTES || client->in_begin > 0 || client->linger_ns) {
        if (!read_client(client))
            return;
    }
    if (!check_input(client) || !pass_on(client))
        return;
    if (client->in_begin < client->in_passed)
        wait_for_room(client);
}

/* The other side takes more again. */
static void resume_in(struct gsv_client *client)
{
    if (!pass_on(client))
        return;
    if (client->in_begin == client->in_passed) {
        watch(client, &client->mhd, client->mhd.events & ~(uint32_t)EPOLLOUT);
        watch(client, &client->net, client->net.events | EPOLLIN | EPOLLRDHUP);
        if (client->in_passed < client->in_end && (!check_input(client) || !pass_on(client)))
            return;
    }
    /* All may have been read from the client: no event of its would ever try again. */
    if (client->in_begin < client->in_passed)
        wait_for_room(client);
}

/* ----------------------------------------------------------------------- from us to the client */

/* False: it takes no more now, or is closed. */
static bool write_out(struct gsv_client *client)
{
    while (client->out_begin < client->out_end) {
        const ssize_t n =
            net_write(client, client->out + client->out_begin, client->out_end - client->out_begin);

        if (must_wait(n))
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

/* What the client did not take waits here; libmicrohttpd is not read meanwhile. */
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
    client->stalled_ns = gsv_http_now();
    client->taken_bytes = 0;
    watch(client, &client->net, client->net.events | EPOLLOUT);
    watch(client, &client->mhd, client->mhd.events & ~(uint32_t)EPOLLIN);
}

static void on_mhd_end(struct gsv_client *client)
{
    client->mhd.eof = true;
    if (client->framing.state == GSV_FRAMING_REFUSED && !client->linger_ns) {
        send_refusal(client);
        return;
    }
    /* A reply that ends the connection while its request is still coming in: as after a refusal,
     * the rest is read and dropped, or the reset would overtake the reply. */
    shutdown(client->net.fd, SHUT_WR);
    if (client->net.eof || client->waiting) {
        gsv_client_close(client);
        return;
    }
    close_end(&client->mhd);
    client->linger_ns = gsv_http_now() + linger_time_ns;
    watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
}

static void pump_out(struct gsv_client *client)
{
    char *const part = client->guard->scratch;
    ssize_t n, sent;

    if (client->out_end > 0)
        return;
    n = recv(client->mhd.fd, part, SCRATCH_BYTES, 0);
    if (must_wait(n))
        return;
    if (n <= 0) {
        on_mhd_end(client);
        return;
    }
    if (client->waiting)
        client->since_ns = gsv_http_now(); /* the time between requests begins with the reply */
    sent = net_write(client, part, (size_t)n);
    if (sent < 0 && !must_wait(sent)) {
        gsv_client_close(client);
        return;
    }
    if (client->framing.state == GSV_FRAMING_REFUSED || client->net.eof)
        end_input(client);
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
    if (events & EPOLLOUT && write_out(client)) {
        watch(client, &client->net, client->net.events & ~(uint32_t)EPOLLOUT);
        watch(client, &client->mhd, client->mhd.events | EPOLLIN);
        while (client->mhd_off && !client->ended && client->out_end == 0 && client->mhd.fd >= 0)
            pump_out(client);
    }
    if (!client->ended && events & EPOLLIN)
        pump_in(client);
    if (!client->ended && events & (EPOLLRDHUP | EPOLLHUP) && !client->net.eof) {
        give_up_work(client);                /* bytes before the end may still be unread */
        if (!(client->net.events & EPOLLIN)) /* and are not going to be */
            on_client_end(client);
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
    if (events & EPOLLHUP && client->out_end > 0) { /* would be told again and again meanwhile */
        epoll_ctl(client->guard->epoll, EPOLL_CTL_DEL, client->mhd.fd, NULL);
        client->mhd_off = true;
        return;
    }
    if (events & EPOLLOUT)
        resume_in(client);
    if (!client->ended && client->mhd.fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        pump_out(client);
}

/* ---------------------------------------------------------------------------------------- time */

static bool too_slow(uint64_t bytes, uint64_t elapsed_ns, uint32_t rate)
{
    return elapsed_ns > rate_grace_ns && bytes < elapsed_ns / 1000000 * rate / 1000;
}

static void check_body(struct gsv_client *client, uint64_t elapsed_ns)
{
    const gpuserve_http_options *options = &client->guard->server->options;

    if (client->in_begin < client->in_passed) { /* it is us who do not take it */
        client->since_ns = gsv_http_now();
        client->body_bytes = 0;
    } else if (elapsed_ns > options->body_timeout_ms * 1000000ull) {
        gsv_client_refuse(client, 408, "the body did not arrive in time");
    } else if (too_slow(client->body_bytes, elapsed_ns, options->min_body_rate)) {
        gsv_client_refuse(client, 408, "the body arrives too slowly");
    }
}

void gsv_client_check_time(struct gsv_client *client, uint64_t now_ns)
{
    const gpuserve_http_options *options = &client->guard->server->options;
    const uint64_t elapsed_ns = now_ns > client->since_ns ? now_ns - client->since_ns : 0;

    /* What libmicrohttpd did not take before is offered again, should its sign have been missed. */
    if (!client->linger_ns && !client->net.eof && client->in_begin < client->in_passed)
        resume_in(client);
    if (client->ended)
        return;
    if (client->linger_ns) {
        if (now_ns > client->linger_ns)
            gsv_client_close(client);
    } else if (client->stalled_ns) {
        if (too_slow(client->taken_bytes, now_ns - client->stalled_ns, options->min_body_rate))
            gsv_client_close(client);
    } else if (client->framing.state == GSV_FRAMING_REFUSED || client->net.eof) {
        end_input(client); /* its last answers are on their way */
    } else if (client->waiting) {
        if (elapsed_ns > options->idle_timeout_ms * 1000000ull && atomic_load(&client->n_open) == 0)
            gsv_client_close(client);
    } else if (client->framing.state == GSV_FRAMING_HEADER) {
        if (elapsed_ns > (client->probation ? 1000u : options->header_timeout_ms) * 1000000ull)
            gsv_client_refuse(client, 408, "the header did not arrive in time");
    } else {
        check_body(client, elapsed_ns);
    }
}
