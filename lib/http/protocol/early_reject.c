/*
 * early_reject.c - error replies written without libmicrohttpd, for input that framing.c or a limit
 * rejected.
 *
 * Order: replies to earlier requests are sent first. Then the error is written, and the connection
 * lingers. Runs on the event loop thread.
 */
#include "lib/base/clock.h"
#include "lib/http/net/connection.h"

#include "lib/http/net/server_state.h"
#include "lib/http/protocol/route.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

static const uint64_t linger_time_ns = 1000000000u; /* time for the reply to arrive */

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

void gsv_client_linger(struct gsv_client *client)
{
    gsv_client_end_output(client);
    gsv_end_close(&client->mhd);
    client->linger_ns = gsv_now_ns() + linger_time_ns;
    client->in_begin = client->in_passed = client->in_end = 0;
    gsv_client_watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
}

static enum gsv_problem problem_of(unsigned status)
{
    switch (status) {
    case 413:
        return GSV_P_TOO_LARGE;
    case 429:
    case 503:
        return GSV_P_OVERLOADED;
    default:
        return GSV_P_FRAMING;
    }
}

/* Writes the whole error reply in the dialect of the target. Over a connection limit, capacity
 * returns when another connection ends or its request is answered, mostly by the same client. The
 * time is unknown, so Retry-After has its minimum, one second. */
static void write_refusal(const struct gsv_framing *framing, struct gsv_buffer *to)
{
    const bool is_busy = framing->status == 429 || framing->status == 503;
    char message[256];
    const struct gsv_complaint complaint = { problem_of(framing->status), message, NULL };
    struct gsv_buffer body = { 0 };

    if (framing->limit)
        snprintf(message, sizeof(message), "%s: the limit is %llu %s", framing->reason,
                 (unsigned long long)framing->limit, framing->unit);
    else
        snprintf(message, sizeof(message), "%s", framing->reason);
    gsv_problem_write(&body, &complaint, gsv_route_dialect(framing->target));
    gsv_buffer_format(
        to,
        "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s"
        "Connection: close\r\n\r\n",
        framing->status, reason_phrase(framing->status), body.size,
        is_busy ? "Retry-After: 1\r\nretry-after-ms: 1000\r\n" : "");
    gsv_buffer_add(to, body.bytes, body.size);
    to->failed |= body.failed;
    gsv_buffer_reset(&body);
}

void gsv_client_send_refusal(struct gsv_client *client)
{
    struct gsv_buffer text = { 0 };
    bool sent;

    if (!client->ready) { /* before the TLS handshake no error can be sent */
        gsv_client_close(client);
        return;
    }
    if (client->is_last) { /* a second reply would be taken for that of the next request */
        gsv_client_linger(client);
        return;
    }
    write_refusal(&client->framing, &text);
    sent = !text.failed && gsv_client_write(client, text.bytes, text.size) == (ssize_t)text.size;
    gsv_buffer_reset(&text);
    if (sent)
        gsv_client_linger(client);
    else
        gsv_client_close(client);
}

void gsv_client_refuse(struct gsv_client *client, unsigned status, const char *reason,
                       uint64_t limit, const char *unit)
{
    client->framing.state = GSV_FRAMING_REFUSED;
    client->framing.status = status;
    client->framing.reason = reason;
    client->framing.limit = limit;
    client->framing.unit = unit;
    /* Pending replies come first. Some may be unread in the socketpair although their requests are
     * complete. libmicrohttpd closes after them, and on_mhd_end() then sends this one. It does not
     * answer a truncated body. */
    if (client->mhd.fd >= 0) {
        gsv_client_end_input(client);
        gsv_client_watch(client, &client->net, client->net.events & EPOLLOUT);
        return;
    }
    gsv_client_send_refusal(client);
}
