/*
 * connection_io.c - one client connection: its two ends, its events and its close.
 *
 * The connection_*.c files run on the event loop thread: accepted input to libmicrohttpd
 * (connection_in.c), replies back (connection_out.c), rejections without libmicrohttpd
 * (early_reject.c), timeouts (timeouts.c).
 *
 * Backpressure: reading stops where writing cannot continue. A connection holds at most one header
 * of input and one chunk of output.
 */
#include "lib/http/net/connection_io.h"

#include "lib/base/clock.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <stdlib.h>
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
    client->ended = true;
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
    if (events & EPOLLOUT && gsv_client_write_out(client)) {
        gsv_client_watch(client, &client->net, client->net.events & ~(uint32_t)EPOLLOUT);
        gsv_client_watch(client, &client->mhd, client->mhd.events | EPOLLIN);
        while (client->mhd_off && !client->ended && client->out_end == 0 && client->mhd.fd >= 0)
            gsv_client_pump_out(client);
    }
    if (!client->ended && events & EPOLLIN)
        gsv_client_pump_in(client);
    if (!client->ended && events & (EPOLLRDHUP | EPOLLHUP) && !client->net.eof) {
        gsv_client_abandon(client);          /* bytes before the end may be unread */
        if (!(client->net.events & EPOLLIN)) /* reading is paused and does not resume */
            gsv_client_on_end(client);
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
        gsv_client_pump_out(client);
}
