/*
 * log.c - message lines on standard error.
 *
 * By default a line is written with stdio and may block. The server switches to non-blocking mode:
 * a stuck reader of standard error, such as a log collector, must not block the server's threads.
 * In this mode a line that cannot be written at once is dropped, and counted. The number of dropped
 * lines is reported before the next line that can be written.
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
#include <unistd.h>

static atomic_bool never_waits;
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

static void tell_left_out(void)
{
    char line[128];

    snprintf(line, sizeof(line), "gpuserve: warning: %zu log lines were dropped\n", n_left_out);
    if (write_now(line, strlen(line)))
        n_left_out = 0;
}

static void print_now(const char *head, const char *format, va_list arguments)
{
    char line[PIPE_BUF];
    const size_t capacity = sizeof(line) - 1; /* space for the newline */
    const int at = snprintf(line, capacity, "%s", head);
    const int n = vsnprintf(line + at, capacity - (size_t)at, format, arguments);
    size_t size = (size_t)at + (n > 0 ? (size_t)n : 0);

    if (size > capacity - 1)
        size = capacity - 1;
    line[size++] = '\n';
    pthread_mutex_lock(&lock);
    if (n_left_out > 0)
        tell_left_out();
    n_left_out += n_left_out > 0 || !write_now(line, size);
    pthread_mutex_unlock(&lock);
}

/* Prints one line atomically with respect to other threads. */
static void print_line(const char *head, const char *format, va_list arguments)
{
    if (atomic_load(&never_waits)) {
        print_now(head, format, arguments);
        return;
    }
    flockfile(stderr);
    fputs(head, stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
}

int cli_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line("gpuserve: ", format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line("gpuserve: ", format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

void cli_warn(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line("gpuserve: ", format, arguments);
    va_end(arguments);
}

void cli_hint(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line("  hint: ", format, arguments);
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
