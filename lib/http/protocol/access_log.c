/*
 * access_log.c - formats and writes the access log: one JSON object per line.
 *
 * A line is built without the lock and written with one write() under it. poll() precedes the
 * write, so a full pipe drops the line and counts it in n_lost. After a partial write the next
 * line starts with a line feed.
 */
#include "lib/http/protocol/access_log.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/event_loop.h"
#include "lib/http/net/server_state.h"
#include "lib/http/traces/traces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PATH_BYTES = 512,
    MESSAGE_PATH_BYTES = 400,
    CLIENT_LEFT = 499 /* as in nginx */
};

/* ---------------------------------------------------------------------------------- open, close */

static int open_file(const char *path)
{
    if (strcmp(path, "-") == 0)
        return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
}

gpuserve_status gsv_access_log_open(struct gsv_access_log *log, const char *path,
                                    gpuserve_error *error)
{
    log->fd = -1;
    if (!path)
        return GPUSERVE_OK;
    log->path = gsv_copy_text(path, strlen(path));
    if (!log->path)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a file's name");
    return gsv_access_log_reopen(log, error);
}

gpuserve_status gsv_access_log_reopen(struct gsv_access_log *log, gpuserve_error *error)
{
    int fd, old;

    if (!log->path)
        return GPUSERVE_OK;
    fd = open_file(log->path);
    if (fd < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "access log %s: %s", log->path, strerror(errno));
    pthread_mutex_lock(&log->lock);
    old = log->fd;
    log->fd = fd;
    log->is_torn = false;
    pthread_mutex_unlock(&log->lock);
    if (old >= 0)
        close(old);
    return GPUSERVE_OK;
}

void gsv_access_log_close(struct gsv_access_log *log)
{
    if (log->path && log->fd >= 0)
        close(log->fd);
    free(log->path);
    log->path = NULL;
}

/* ------------------------------------------------------------------------------------- one line */

static void put_time(struct gsv_buffer *line)
{
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    gsv_buffer_format(line, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ\"",
                      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                      utc.tm_sec, now.tv_nsec / 1000000);
}

/* Text from the client: truncated, and only its valid UTF-8 prefix. */
static void put_member(struct gsv_buffer *line, const char *name, const char *text)
{
    size_t size = text ? strlen(text) : 0;

    if (size == 0)
        return;
    if (size > MAX_PATH_BYTES)
        size = MAX_PATH_BYTES;
    gsv_buffer_format(line, ",\"%s\":", name);
    gsv_put_bytes(line, text, gsv_utf8_valid_length(text, size));
}

/* The trace of the client, or that of the server's own span. */
static void put_trace(struct gsv_buffer *line, const struct gsv_exchange *exchange)
{
    struct gsv_span_context parent;
    const bool has_parent = gsv_traceparent_read(gsv_header(exchange, "traceparent"), &parent);
    const struct gsv_span_context *context = has_parent ? &parent : NULL;

    if (exchange->trace)
        context = &exchange->trace->context;
    if (context)
        gsv_buffer_format(line, ",\"trace_id\":\"%016" PRIx64 "%016" PRIx64 "\"", context->trace[0],
                          context->trace[1]);
    if (has_parent)
        gsv_buffer_format(line, ",\"parent_id\":\"%016" PRIx64 "\"", parent.span);
}

void gsv_client_text(const struct gsv_client *client, char *text, size_t capacity)
{
    const void *address;

    text[0] = '\0';
    if (!client)
        return;
    if (client->address.ss_family == AF_UNIX) {
        snprintf(text, capacity, "unix");
        return;
    }
    address = client->address.ss_family == AF_INET
                  ? (const void *)&((const struct sockaddr_in *)&client->address)->sin_addr
                  : (const void *)&((const struct sockaddr_in6 *)&client->address)->sin6_addr;
    if (!inet_ntop(client->address.ss_family, address, text, (socklen_t)capacity))
        text[0] = '\0';
}

static void put_client(struct gsv_buffer *line, const struct gsv_client *client)
{
    char text[INET6_ADDRSTRLEN];

    gsv_client_text(client, text, sizeof(text));
    put_member(line, "client", text);
}

bool gsv_exchange_has_left(const struct gsv_exchange *exchange)
{
    return exchange->status == 0 || (exchange->work.status == GPUSERVE_E_CANCELLED &&
                                     exchange->client && exchange->client->gone);
}

static unsigned status_of(const struct gsv_exchange *exchange)
{
    return gsv_exchange_has_left(exchange) ? (unsigned)CLIENT_LEFT : exchange->status;
}

/* The members of all lines of a JSON log: "level":"info","message":"POST /embed 200". */
static void put_message(struct gsv_buffer *line, const struct gsv_exchange *exchange)
{
    const char *path = exchange->path ? exchange->path : "";
    const unsigned status = status_of(exchange);
    char message[MAX_PATH_BYTES];

    snprintf(message, sizeof(message), "%.16s %.*s %u", exchange->method,
             (int)gsv_utf8_valid_length(path, strnlen(path, MESSAGE_PATH_BYTES)), path, status);
    gsv_buffer_format(line, ",\"level\":\"%s\"", status >= 500 ? "error" : "info");
    put_member(line, "message", message);
}

static void put_line(struct gsv_buffer *line, const struct gsv_exchange *exchange)
{
    const struct gsv_request_usage *usage = &exchange->usage;
    const uint64_t us = (gsv_now_ns() - exchange->begun_ns) / 1000;

    put_time(line);
    if (exchange->server->options.json_log)
        put_message(line, exchange);
    put_member(line, "id", exchange->id);
    put_trace(line, exchange);
    put_client(line, exchange->client);
    put_member(line, "key", exchange->key_name);
    put_member(line, "method", exchange->method);
    put_member(line, "path", exchange->path);
    if (exchange->served)
        put_member(line, "model", exchange->served->name);
    gsv_buffer_format(line, ",\"status\":%u,\"bytes\":%zu,\"us\":%llu", status_of(exchange),
                      exchange->n_reply_bytes, (unsigned long long)us);
    if (usage->n_tokens)
        gsv_buffer_format(
            line,
            ",\"tokens\":%zu,\"truncated\":%zu,\"tokenize_us\":%llu,\"queue_us\":%llu"
            ",\"compute_us\":%llu",
            usage->n_tokens, usage->n_truncated, (unsigned long long)usage->tokenize_us,
            (unsigned long long)usage->queue_us, (unsigned long long)usage->compute_us);
    put_member(line, "agent", gsv_header(exchange, "User-Agent"));
    gsv_buffer_text(line, "}\n");
}

/* Called with the lock held. Never blocks. */
static bool write_line(struct gsv_access_log *log, const char *bytes, size_t size)
{
    struct pollfd ready = { .fd = log->fd, .events = POLLOUT };
    ssize_t n;

    if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
        return false;
    n = write(log->fd, bytes, size);
    if (n > 0)
        log->is_torn = (size_t)n < size;
    return n == (ssize_t)size;
}

void gsv_access_log_write(struct gsv_access_log *log, const struct gsv_exchange *exchange)
{
    struct gsv_buffer line = { .maximum = 8192 };
    bool written = false;

    if (!exchange->begun)
        return;
    gsv_buffer_text(&line, "\n"); /* skipped unless the previous line is torn */
    put_line(&line, exchange);
    pthread_mutex_lock(&log->lock);
    if (!line.failed && log->is_torn)
        written = write_line(log, line.bytes, line.size);
    else if (!line.failed)
        written = write_line(log, line.bytes + 1, line.size - 1);
    pthread_mutex_unlock(&log->lock);
    if (!written)
        atomic_fetch_add(&log->n_lost, 1ull);
    gsv_buffer_reset(&line);
}
