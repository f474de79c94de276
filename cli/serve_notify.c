/*
 * serve_notify.c - telling systemd how the server is: ready, reloading, stopping, alive.
 *
 * The protocol is one datagram of lines to the socket that NOTIFY_SOCKET names. Without it, as
 * anywhere but under systemd, nothing is sent. The watchdog is only told of life after the server
 * has answered a request of ours, over the way that clients take.
 */
#include "serve_notify.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void cli_notify(const char *state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t size = path ? strlen(path) : 0;
    int fd;

    if (size < 2 || size >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, size);
    if (path[0] == '@') /* a name without a file */
        address.sun_path[0] = 0;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) < 0)
        cli_warn("NOTIFY_SOCKET %s: %s", path, strerror(errno));
    close(fd);
}

void cli_notify_reloading(void)
{
    char state[64];
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    cli_notify(state);
}

uint64_t cli_watchdog_us(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");

    if (!text || !getenv("NOTIFY_SOCKET") || (process && atol(process) != (long)getpid()))
        return 0;
    return strtoull(text, NULL, 10) / 2;
}

/* The socket is given as long as a beat of the watchdog lasts. */
static bool ask(int family, const struct sockaddr *to, socklen_t size, uint64_t limit_us)
{
    static const char question[] =
        "GET /livez HTTP/1.1\r\nHost: watchdog\r\nConnection: close\r\n\r\n";
    static const char answer[] = "HTTP/1.1 200 ";
    const struct timeval limit = { (time_t)(limit_us / 1000000), (long)(limit_us % 1000000) };
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char got[sizeof(answer)] = "";
    bool alive;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    alive = connect(fd, to, size) == 0 &&
            send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) == sizeof(question) - 1 &&
            recv(fd, got, sizeof(answer) - 1, MSG_WAITALL) == sizeof(answer) - 1 &&
            memcmp(got, answer, sizeof(answer) - 1) == 0;
    close(fd);
    return alive;
}

static bool ask_path(const char *path, uint64_t limit_us)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const size_t size = strlen(path);

    if (size >= sizeof(to.sun_path))
        return false;
    memcpy(to.sun_path, path, size);
    return ask(AF_UNIX, (const struct sockaddr *)&to, sizeof(to), limit_us);
}

/* "http://127.0.0.1:8080", "http://[::1]:8080" */
static bool split(const char *address, char host[64], const char **port)
{
    const char *begin = strstr(address, "://"), *colon = strrchr(address, ':');
    size_t size;

    if (!begin || !colon || colon <= begin + 3)
        return false;
    begin += 3;
    size = (size_t)(colon - begin);
    if (*begin == '[') {
        begin++;
        size -= 2;
    }
    if (size >= 64)
        return false;
    memcpy(host, begin, size);
    host[size] = 0;
    *port = colon + 1;
    return true;
}

bool cli_is_alive(const char *address, uint64_t limit_us)
{
    const struct addrinfo wanted = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                     .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    const char *port;
    bool alive;
    char host[64];

    if (strncmp(address, "unix:", 5) == 0)
        return ask_path(address + 5, limit_us);
    if (!split(address, host, &port) || getaddrinfo(host, port, &wanted, &found) != 0)
        return false;
    alive = ask(found->ai_family, found->ai_addr, found->ai_addrlen, limit_us);
    freeaddrinfo(found);
    return alive;
}
