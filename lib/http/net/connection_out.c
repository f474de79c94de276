/*
 * connection_out.c - output path of one connection: libmicrohttpd -> client.
 *
 * `out` buffers what the client does not accept at once. Backpressure: while `out` is not empty,
 * libmicrohttpd's socket is not read. Runs on the event loop thread.
 */
#include "lib/base/clock.h"
#include "lib/http/net/connection_io.h"

#include "lib/http/net/server_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

bool gsv_client_write_out(struct gsv_client *client)
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

void gsv_client_pump_out(struct gsv_client *client)
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
