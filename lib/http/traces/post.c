/*
 * post.c - sends one export request: POST over a new connection, TCP or TLS, which the reply
 * closes.
 *
 * Every wait ends after a limit of its own (TIMEOUT_MS for all of it) or at *until_ns, which the
 * server sets when it stops, also during a wait. Only the resolver of names waits on its own terms.
 */
#include "lib/http/traces/traces.h"

#include "lib/base/clock.h"
#include "lib/http/net/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, SLICE_MS = 50, MAX_REPLY_BYTES = 16 * 1024 };

struct exchange {
    struct gsv_post *post;
    int fd;
    struct ssl_st *tls; /* NULL: plain */
    uint64_t end_ns;    /* of TIMEOUT_MS */
    char reply[MAX_REPLY_BYTES + 1];
    size_t n_reply;
};

static enum gsv_post_result tell(struct gsv_post *post, enum gsv_post_result result,
                                 const char *format, ...) GPUSERVE_PRINTF(3, 4);
static enum gsv_post_result tell(struct gsv_post *post, enum gsv_post_result result,
                                 const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(post->why, sizeof(post->why), format, arguments);
    va_end(arguments);
    return result;
}

/* Waits for the socket. False, with errno: the time is over. */
static bool wait_for(const struct exchange *exchange, short events)
{
    struct pollfd ready = { .fd = exchange->fd, .events = events };

    for (;;) {
        const uint64_t now = gsv_now_ns(), until = atomic_load(exchange->post->until_ns);
        const int n = poll(&ready, 1, SLICE_MS);

        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        if (now >= exchange->end_ns || (until != 0 && now >= until)) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool connect_to(struct exchange *exchange, const struct addrinfo *to)
{
    int failure = 0;
    socklen_t size = sizeof(failure);

    exchange->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (exchange->fd < 0)
        return false;
    if (connect(exchange->fd, to->ai_addr, to->ai_addrlen) == 0)
        return true;
    if (errno == EINPROGRESS && wait_for(exchange, POLLOUT) &&
        getsockopt(exchange->fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0) {
        if (failure == 0)
            return true;
        errno = failure;
    }
    failure = errno;
    close(exchange->fd);
    exchange->fd = -1;
    errno = failure;
    return false;
}

/* Tries each address of the name. */
static enum gsv_post_result open_connection(struct exchange *exchange)
{
    const struct gsv_trace_options *to = exchange->post->to;
    const struct addrinfo wanted = { .ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    const int failure = getaddrinfo(to->host, to->port, &wanted, &found);

    if (failure != 0)
        return tell(exchange->post, GSV_POST_UNREACHED, "%s: %s", to->host, gai_strerror(failure));
    errno = 0;
    for (const struct addrinfo *at = found; at && exchange->fd < 0; at = at->ai_next)
        connect_to(exchange, at);
    freeaddrinfo(found);
    return exchange->fd >= 0 ? GSV_POST_OK
                             : tell(exchange->post, GSV_POST_UNREACHED, "%s", strerror(errno));
}

/* Waits for what the last call wanted, GSV_TLS_WANTS_*. False, with errno: it failed, or the time
 * is over. */
static bool wait_for_wanted(const struct exchange *exchange, ssize_t result)
{
    if (result == GSV_TLS_WANTS_IN)
        return wait_for(exchange, POLLIN);
    if (result == GSV_TLS_WANTS_OUT)
        return wait_for(exchange, POLLOUT);
    if (exchange->tls)
        errno = ECONNRESET;
    return false;
}

static enum gsv_post_result start_tls(struct exchange *exchange)
{
    const struct gsv_trace_options *to = exchange->post->to;
    char reason[GSV_TLS_REASON_BYTES];
    int result;

    exchange->tls = gsv_tls_outgoing_session(to->tls, exchange->fd, to->host);
    if (!exchange->tls)
        return tell(exchange->post, GSV_POST_UNREACHED, "out of memory");
    while ((result = gsv_tls_handshake(exchange->tls, reason)) != 1) {
        if (result == GSV_TLS_FAILED)
            return tell(exchange->post, GSV_POST_UNREACHED, "TLS: %s", reason);
        if (!wait_for_wanted(exchange, result))
            return tell(exchange->post, GSV_POST_UNREACHED, "TLS: %s", strerror(errno));
    }
    return GSV_POST_OK;
}

/* The result of a call of the socket, as the sessions of tls.h have it. */
static ssize_t plain_result(ssize_t n, ssize_t wanted)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EINTR ? wanted : GSV_TLS_FAILED;
}

static bool send_all(const struct exchange *exchange, const char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t n =
            exchange->tls
                ? gsv_tls_write(exchange->tls, bytes, size)
                : plain_result(send(exchange->fd, bytes, size, MSG_NOSIGNAL), GSV_TLS_WANTS_OUT);

        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        } else if (!wait_for_wanted(exchange, n)) {
            return false;
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------------- reply */

/* The value of a header field in the reply's header; NULL: none. */
static const char *field_of(const struct exchange *exchange, const char *name)
{
    const size_t size = strlen(name);
    const char *line = strstr(exchange->reply, "\r\n");

    for (; line && line[2] != '\r'; line = strstr(line + 2, "\r\n")) {
        const char *value = line + 2 + size + 1;

        if (strncasecmp(line + 2, name, size) == 0 && line[2 + size] == ':')
            return value + strspn(value, " \t");
    }
    return NULL;
}

/* The whole reply is there: its header, and the body of the length that it states. */
static bool is_whole(const struct exchange *exchange)
{
    const char *body = strstr(exchange->reply, "\r\n\r\n");
    const char *length = body ? field_of(exchange, "Content-Length") : NULL;

    return length &&
           (size_t)(exchange->reply + exchange->n_reply - (body + 4)) >= strtoull(length, NULL, 10);
}

/* Reads until the reply is whole or the collector closes; longer replies are cut. False: no header
 * came. */
static bool read_reply(struct exchange *exchange)
{
    while (exchange->n_reply < MAX_REPLY_BYTES && !is_whole(exchange)) {
        char *to = exchange->reply + exchange->n_reply;
        const size_t size = MAX_REPLY_BYTES - exchange->n_reply;
        const ssize_t n = exchange->tls
                              ? gsv_tls_read(exchange->tls, to, size)
                              : plain_result(recv(exchange->fd, to, size, 0), GSV_TLS_WANTS_IN);

        if (n == 0)
            break;
        if (n < 0 && !wait_for_wanted(exchange, n))
            return false;
        if (n > 0)
            exchange->n_reply += (size_t)n;
        exchange->reply[exchange->n_reply] = 0;
    }
    errno = ECONNRESET; /* if there is no header */
    return strstr(exchange->reply, "\r\n\r\n") != NULL;
}

/* Seconds, or a date. */
static uint64_t read_retry_after(const char *text)
{
    struct tm date = { 0 };
    time_t seconds;

    if (!text)
        return 0;
    if (*text >= '0' && *text <= '9')
        return strtoull(text, NULL, 10) % 86400 * 1000;
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date))
        return 0;
    seconds = timegm(&date) - time(NULL);
    return seconds > 0 && seconds < 86400 ? (uint64_t)seconds * 1000 : 0;
}

/* {"partialSuccess": {"rejectedSpans": "3"}}; the number may be a string. */
static unsigned long long read_rejected(const char *reply)
{
    const char *at = strstr(reply, "\"rejectedSpans\"");

    if (!at)
        return 0;
    at += strlen("\"rejectedSpans\"");
    return strtoull(at + strspn(at, " \t\r\n:\""), NULL, 10);
}

static enum gsv_post_result read_status(struct exchange *exchange)
{
    struct gsv_post *post = exchange->post;
    unsigned status = 0;

    if (sscanf(exchange->reply, "HTTP/1.%*1[0-9] %3u", &status) != 1 || status < 200)
        return tell(post, GSV_POST_REFUSED, "the reply is not HTTP");
    if (status < 300) {
        post->n_rejected = read_rejected(exchange->reply);
        return GSV_POST_OK;
    }
    tell(post, GSV_POST_OK, "status %u", status);
    if (status != 429 && (status < 502 || status > 504))
        return GSV_POST_REFUSED;
    post->retry_after_ms = read_retry_after(field_of(exchange, "Retry-After"));
    return GSV_POST_RETRY;
}

static enum gsv_post_result send_request(struct exchange *exchange, const char *body, size_t size)
{
    const struct gsv_trace_options *to = exchange->post->to;
    struct gsv_buffer header = { .maximum = 4096 + to->headers.size };
    const bool is_ipv6 = strchr(to->host, ':') != NULL;
    enum gsv_post_result result = GSV_POST_UNREACHED;

    gsv_buffer_format(&header,
                      "POST %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: "
                      "gpuserve\r\nContent-Type: application/json\r\nContent-Length: "
                      "%zu\r\nConnection: close\r\n",
                      to->path[0] == '/' ? "" : "/", to->path, is_ipv6 ? "[" : "", to->host,
                      is_ipv6 ? "]" : "", to->port, size);
    gsv_buffer_add(&header, to->headers.bytes, to->headers.size);
    gsv_buffer_text(&header, "\r\n");
    if (header.failed)
        errno = ENOMEM;
    else if (send_all(exchange, header.bytes, header.size) && send_all(exchange, body, size) &&
             read_reply(exchange))
        result = read_status(exchange);
    gsv_buffer_reset(&header);
    return result == GSV_POST_UNREACHED ? tell(exchange->post, result, "%s", strerror(errno))
                                        : result;
}

enum gsv_post_result gsv_post_send(struct gsv_post *post, const char *body, size_t size)
{
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    enum gsv_post_result result;

    if (!exchange)
        return tell(post, GSV_POST_UNREACHED, "out of memory");
    exchange->post = post;
    exchange->fd = -1;
    exchange->end_ns = gsv_now_ns() + (uint64_t)TIMEOUT_MS * 1000000;
    result = open_connection(exchange);
    if (result == GSV_POST_OK && post->to->tls)
        result = start_tls(exchange);
    if (result == GSV_POST_OK)
        result = send_request(exchange, body, size);
    gsv_tls_session_free(exchange->tls);
    if (exchange->fd >= 0)
        close(exchange->fd);
    free(exchange);
    return result;
}
