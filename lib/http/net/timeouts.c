/*
 * timeouts.c - time limits for handshake, header, body, reply and idle connections.
 *
 * gsv_client_check_time() runs every tick for each client on the event loop thread and applies the
 * limit of its current state. gsv_clients_relieve() applies backpressure by eviction: while unread
 * replies exceed max_unread_bytes, it resets the slowest readers.
 */
#include "lib/base/clock.h"
#include "lib/http/net/connection.h"

#include "lib/http/net/server_state.h"

#include <sys/socket.h>

static const uint64_t rate_grace_ns = 5000000000u; /* time before a minimum rate applies */

/* While unread replies exceed max_unread_bytes: readers slower than this rate (bytes/s) are reset,
 * at most so many in one call. */
enum { RELIEVED_RATE = 16 * 1024, RELIEVED_AT_ONCE = 256 };
static const uint64_t relief_grace_ns = 1000000000u; /* progress is visible in bursts only */

static bool too_slow(uint64_t bytes, uint64_t elapsed_ns, uint32_t rate)
{
    return elapsed_ns > rate_grace_ns && bytes < elapsed_ns / 1000000 * rate / 1000;
}

/* Closes with a reset: otherwise the kernel keeps the unsent bytes for a slow reader. */
static void break_off(struct gsv_client *client)
{
    const struct linger reset = { 1, 0 };

    if (client->net.fd >= 0)
        setsockopt(client->net.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    gsv_client_close(client);
}

static void check_body(struct gsv_client *client, uint64_t elapsed_ns)
{
    const gpuserve_http_options *options = &client->event_loop->server->options;

    if (client->in_begin < client->in_passed) { /* the delay is libmicrohttpd's, not the client's */
        client->since_ns = gsv_now_ns();
        client->body_bytes = 0;
    } else if (elapsed_ns > options->body_timeout_ms * 1000000ull) {
        gsv_client_refuse(client, 408, "the body did not arrive in time", options->body_timeout_ms,
                          "ms (--body-timeout)");
    } else if (too_slow(client->body_bytes, elapsed_ns, options->min_body_rate)) {
        gsv_client_refuse(client, 408, "the body arrives too slowly", options->min_body_rate,
                          "bytes a second (--min-body-rate)");
    }
}

void gsv_client_check_time(struct gsv_client *client, uint64_t now_ns)
{
    const gpuserve_http_options *options = &client->event_loop->server->options;
    const uint64_t elapsed_ns = now_ns > client->since_ns ? now_ns - client->since_ns : 0;

    /* Retries input that libmicrohttpd did not accept, in case its event was missed. */
    if (!client->linger_ns && !client->net.eof && client->in_begin < client->in_passed)
        gsv_client_resume_in(client);
    if (client->ended)
        return;
    if (!client->ready) { /* before the handshake no error can be sent */
        if (elapsed_ns > (client->probation ? 1000u : options->header_timeout_ms) * 1000000ull)
            gsv_client_close(client);
    } else if (client->linger_ns) {
        if (now_ns > client->linger_ns)
            gsv_client_close(client);
    } else if (client->stalled_ns) {
        if (too_slow(client->taken_bytes, now_ns - client->stalled_ns, options->min_body_rate))
            break_off(client);
    } else if (client->framing.state == GSV_FRAMING_REFUSED || client->net.eof) {
        gsv_client_end_input(client); /* the last replies are in flight */
    } else if (client->waiting) {
        if (elapsed_ns > options->idle_timeout_ms * 1000000ull && atomic_load(&client->n_open) == 0)
            gsv_client_close(client);
    } else if (client->framing.state == GSV_FRAMING_HEADER) {
        if (elapsed_ns > (client->probation ? 1000u : options->header_timeout_ms) * 1000000ull)
            gsv_client_refuse(client, 408, "the header did not arrive in time",
                              client->probation ? 1000 : options->header_timeout_ms,
                              client->probation ? "ms while all connections are in use"
                                                : "ms (--header-timeout)");
    } else {
        check_body(client, elapsed_ns);
    }
}

static size_t unread_bytes(const struct gsv_client *client)
{
    return client->stalled_ns && !client->ended
               ? client->held_bytes + client->request_bytes + client->out_end
               : 0;
}

/* Bytes/s since the output stalled. */
static uint64_t rate_of(const struct gsv_client *client, uint64_t now_ns)
{
    return client->taken_bytes * 1000 / ((now_ns - client->stalled_ns) / 1000000 + 1);
}

/* The slowest client that holds unread bytes; NULL: all are fast enough. */
static struct gsv_client *slowest_reader(const struct gsv_event_loop *event_loop, uint64_t now_ns)
{
    struct gsv_client *found = NULL;

    for (struct gsv_client *c = event_loop->clients; c; c = c->next) {
        if (unread_bytes(c) == 0 || now_ns < c->stalled_ns + relief_grace_ns ||
            rate_of(c, now_ns) >= RELIEVED_RATE)
            continue;
        if (!found || rate_of(c, now_ns) < rate_of(found, now_ns))
            found = c;
    }
    return found;
}

void gsv_clients_relieve(struct gsv_event_loop *event_loop, uint64_t now_ns)
{
    struct gsv_client *victim;
    size_t unread = 0;

    for (const struct gsv_client *c = event_loop->clients; c; c = c->next)
        unread += unread_bytes(c);
    for (int i = 0; i < RELIEVED_AT_ONCE && unread > event_loop->server->options.max_unread_bytes;
         i++) {
        victim = slowest_reader(event_loop, now_ns);
        if (!victim)
            return;
        unread -= unread_bytes(victim);
        break_off(victim);
    }
}
