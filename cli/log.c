/*
 * log.c - message lines on standard error.
 *
 * By default a line is written with stdio and may block. The server switches to non-blocking mode:
 * a stuck reader of standard error, such as a log collector, must not block the server's threads.
 * In this mode a line that cannot be written at once is dropped, and counted. The number of dropped
 * lines is reported before the next line that can be written.
 *
 * In JSON form a line is one object with time, level and message, valid whatever bytes a message
 * holds: control characters are escaped, invalid UTF-8 is replaced by U+FFFD, and a message that is
 * too long for a line of PIPE_BUF bytes is cut between characters.
 *
 * Threading: any thread may print; lines of several threads are never mixed.
 */
#include "cli/cli.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char program_head[] = "gpuserve: ", hint_head[] = "  hint: ";
static const char *const level_names[] = { "", "error", "warning", "info", "debug" };

static atomic_bool never_waits, as_json;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t n_left_out; /* protected by `lock` */

void cli_never_wait_for_messages(void)
{
    atomic_store(&never_waits, true);
}

/* POSIX: a pipe that polls writable accepts PIPE_BUF bytes without blocking. */
static bool write_now(const char *line, size_t size)
{
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };

    return poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT &&
           write(STDERR_FILENO, line, size) == (ssize_t)size;
}

/* -------------------------------------------------------------------------------------- format */

/* Bytes of the character that begins at `text`; 0: no valid UTF-8 begins there. */
static size_t character_size(const char *text, size_t size)
{
    for (size_t n = 1; n <= 4 && n <= size; n++) {
        if (cli_is_utf8(text, n))
            return n;
    }
    return 0;
}

/* The character at `text` as it stands in a JSON string, in `to`; *size is its size in `text`. */
static size_t escape(char to[8], const char *text, size_t left, size_t *size)
{
    const unsigned char c = (unsigned char)*text;

    *size = 1;
    if (c < 0x20 || c == 0x7F)
        return (size_t)snprintf(to, 8, "\\u%04x", c);
    if (c == '"' || c == '\\')
        return (size_t)snprintf(to, 8, "\\%c", c);
    *size = character_size(text, left);
    if (*size == 0) {
        *size = 1;
        return (size_t)snprintf(to, 8, "\\ufffd");
    }
    memcpy(to, text, *size);
    return *size;
}

/* Writes the line with its newline and returns its size. */
static size_t format_json(char line[PIPE_BUF], time_t seconds, long ms, int32_t level,
                          const char *message)
{
    static const char end[] = "\"}\n";
    const size_t n = strlen(message), capacity = PIPE_BUF - (sizeof(end) - 1);
    struct tm utc;
    size_t at, used;

    gmtime_r(&seconds, &utc);
    at = strftime(line, PIPE_BUF, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &utc);
    at += (size_t)snprintf(line + at, PIPE_BUF - at, ".%03ldZ\",\"level\":\"%s\",\"message\":\"",
                           ms, level_names[level]);
    for (size_t i = 0; i < n; i += used) {
        char one[8];
        const size_t size = escape(one, message + i, n - i, &used);

        if (at + size > capacity)
            break;
        memcpy(line + at, one, size);
        at += size;
    }
    memcpy(line + at, end, sizeof(end) - 1);
    return at + sizeof(end) - 1;
}

/* Writes the line with its newline and returns its size. */
static size_t format_line(char line[PIPE_BUF], int32_t level, const char *head, const char *format,
                          va_list arguments)
{
    char message[PIPE_BUF];
    struct timespec now;
    size_t size;
    int n;

    if (atomic_load(&as_json)) {
        const int at = snprintf(message, sizeof(message), "%s", head == hint_head ? "hint: " : "");

        vsnprintf(message + at, sizeof(message) - (size_t)at, format, arguments);
        clock_gettime(CLOCK_REALTIME, &now);
        return format_json(line, now.tv_sec, now.tv_nsec / 1000000, level, message);
    }
    size = (size_t)snprintf(line, PIPE_BUF, "%s", head);
    n = vsnprintf(line + size, PIPE_BUF - size, format, arguments);
    size += n > 0 ? (size_t)n : 0;
    if (size > PIPE_BUF - 2)
        size = PIPE_BUF - 2; /* space for the newline */
    line[size++] = '\n';
    return size;
}

void cli_log_as_json(void)
{
    atomic_store(&as_json, true);
}

bool cli_log_is_json(void)
{
    return atomic_load(&as_json);
}

size_t cli_log_line_at(char line[PIPE_BUF], unsigned in_s, const char *message)
{
    if (atomic_load(&as_json))
        return format_json(line, time(NULL) + (time_t)in_s, 0, GPUSERVE_LOG_ERROR, message);
    return (size_t)snprintf(line, PIPE_BUF, "gpuserve: %s\n", message);
}

/* --------------------------------------------------------------------------------------- print */

static void tell_left_out(void)
{
    char line[PIPE_BUF], message[64];
    struct timespec now;
    size_t size;

    snprintf(message, sizeof(message), "%zu log lines were dropped", n_left_out);
    clock_gettime(CLOCK_REALTIME, &now);
    if (atomic_load(&as_json))
        size = format_json(line, now.tv_sec, now.tv_nsec / 1000000, GPUSERVE_LOG_WARNING, message);
    else
        size = (size_t)snprintf(line, sizeof(line), "gpuserve: warning: %s\n", message);
    if (write_now(line, size))
        n_left_out = 0;
}

static void print_now(int32_t level, const char *head, const char *format, va_list arguments)
{
    char line[PIPE_BUF];
    const size_t size = format_line(line, level, head, format, arguments);

    pthread_mutex_lock(&lock);
    if (n_left_out > 0)
        tell_left_out();
    n_left_out += n_left_out > 0 || !write_now(line, size);
    pthread_mutex_unlock(&lock);
}

/* Prints one line atomically with respect to other threads. */
static void print_line(int32_t level, const char *head, const char *format, va_list arguments)
{
    char line[PIPE_BUF];

    if (atomic_load(&never_waits)) {
        print_now(level, head, format, arguments);
        return;
    }
    if (atomic_load(&as_json)) {
        fwrite(line, format_line(line, level, head, format, arguments), 1, stderr);
        return;
    }
    flockfile(stderr);
    fputs(head, stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void cli_tell(int32_t level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(level, program_head, format, arguments);
    va_end(arguments);
}

void cli_log(void *user, int32_t level, const char *message)
{
    (void)user;
    if (level < GPUSERVE_LOG_ERROR || level > GPUSERVE_LOG_DEBUG)
        level = GPUSERVE_LOG_DEBUG;
    if (atomic_load(&as_json))
        cli_tell(level, "%s", message);
    else
        cli_tell(level, "%s: %s", level_names[level], message);
}

int cli_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(GPUSERVE_LOG_ERROR, program_head, format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(GPUSERVE_LOG_ERROR, program_head, format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

void cli_warn(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(GPUSERVE_LOG_WARNING, program_head, format, arguments);
    va_end(arguments);
}

void cli_hint(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(GPUSERVE_LOG_INFO, hint_head, format, arguments);
    va_end(arguments);
}

int cli_fail_with(const gpuserve_error *error, const char *where)
{
    const char *message =
        error->message[0] ? error->message : gpuserve_status_name((gpuserve_status)error->status);

    if (where)
        cli_fail("%s: %s", where, message);
    else
        cli_fail("%s", message);
    if (error->hint[0])
        cli_hint("%s", error->hint);
    return CLI_FAILED;
}
