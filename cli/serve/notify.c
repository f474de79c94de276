/*
 * notify.c - reports the server's state to systemd: ready, reloading, stopping, heartbeat.
 *
 * The protocol is one datagram of lines to the Unix socket in NOTIFY_SOCKET. Without the variable,
 * i.e. outside systemd, nothing is sent. Heartbeats are sent at half of WATCHDOG_USEC.
 */
#include "cli/serve/serve.h"

#include <errno.h>
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
    if (path[0] == '@') /* abstract socket name */
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
