/*
 * client_refuse.c - what is answered without libmicrohttpd: requests that did not pass.
 */
#include "lib/http/client.h"

#include "lib/http/server.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

static const uint64_t linger_time_ns = 1000000000u; /* for a refusal to arrive */

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
    client->linger_ns = gsv_http_now() + linger_time_ns;
    client->in_begin = client->in_passed = client->in_end = 0;
    gsv_client_watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
}

void gsv_client_send_refusal(struct gsv_client *client)
{
    const unsigned status = client->framing.status;
    char body[256], text[640];
    int size;

    if (!client->ready) { /* there is no way to tell it yet */
        gsv_client_close(client);
        return;
    }
    snprintf(body, sizeof(body), "{\"error\":\"%s\",\"error_type\":\"%s\"}", client->framing.reason,
             status == 429 || status == 503 ? "Overloaded" : "Validation");
    size = snprintf(
        text, sizeof(text),
        "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s"
        "Connection: close\r\n\r\n%s",
        status, reason_phrase(status), strlen(body),
        status == 429 || status == 503 ? "Retry-After: 1\r\nretry-after-ms: 1000\r\n" : "", body);
    if (gsv_client_write(client, text, (size_t)size) != size) {
        gsv_client_close(client);
        return;
    }
    gsv_client_linger(client);
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
        gsv_client_end_input(client);
        gsv_client_watch(client, &client->net, client->net.events & EPOLLOUT);
        return;
    }
    gsv_client_send_refusal(client);
}
