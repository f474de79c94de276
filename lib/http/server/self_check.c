/*
 * self_check.c - GET /livez over the server's own socket, for a watchdog.
 *
 * The request takes the same path as a client's. With client certificates on, the self-check has
 * none: the server recognizes its connection by both socket addresses, which are unique while it is
 * open. Calls are serialized by `asking`.
 */
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char question[] = "GET /livez HTTP/1.1\r\nHost: watchdog\r\nConnection: close\r\n\r\n";
static const char answer[] = "HTTP/1.1 200 ";

/* The certificate is not verified: the port is the server's own and no secret is sent. */
static bool ask_by_tls(int fd)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *session = context ? SSL_new(context) : NULL;
    char got[sizeof(answer)] = "";
    size_t n = 0, part = 1;
    bool alive = session && SSL_set_fd(session, fd) == 1 && SSL_connect(session) == 1 &&
                 SSL_write(session, question, sizeof(question) - 1) == sizeof(question) - 1;

    while (alive && n < sizeof(answer) - 1 && part > 0) {
        if (SSL_read_ex(session, got + n, sizeof(answer) - 1 - n, &part) != 1)
            part = 0;
        n += part;
    }
    SSL_free(session);
    SSL_CTX_free(context);
    return alive && memcmp(got, answer, sizeof(answer) - 1) == 0;
}

/* OpenSSL's socket writes raise SIGPIPE if the server closes. The calling thread must not receive
 * it: block it, and consume one that became pending here. */
static bool ask_by_tls_quietly(int fd)
{
    const struct timespec at_once = { 0, 0 };
    sigset_t pipe, pending, before;
    bool alive, was_pending;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    sigpending(&pending);
    was_pending = sigismember(&pending, SIGPIPE);
    alive = ask_by_tls(fd);
    if (!was_pending && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return alive;
}

static bool ask_plainly(int fd)
{
    char got[sizeof(answer)] = "";

    return send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) == sizeof(question) - 1 &&
           recv(fd, got, sizeof(answer) - 1, MSG_WAITALL) == sizeof(answer) - 1 &&
           memcmp(got, answer, sizeof(answer) - 1) == 0;
}

/* `timeout_ms` applies to each socket operation. errno holds the reason of a failure. */
static bool ask(struct gpuserve_http *server, const struct sockaddr *to, socklen_t size,
                uint32_t timeout_ms)
{
    const struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    errno = 0;
    alive = connect(fd, to, size) == 0;
    if (alive && gsv_tls_is_on(&server->tls)) {
        gsv_tls_expect_own(&server->tls, fd);
        alive = ask_by_tls_quietly(fd);
        gsv_tls_expect_own(&server->tls, -1);
    } else if (alive) {
        alive = ask_plainly(fd);
    }
    close(fd);
    return alive;
}

static bool ask_port(struct gpuserve_http *server, uint32_t timeout_ms)
{
    const struct addrinfo wanted = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                     .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    char port[16];
    bool alive;

    snprintf(port, sizeof(port), "%u", server->options.port);
    if (getaddrinfo(server->options.host, port, &wanted, &found) != 0)
        return false;
    alive = ask(server, found->ai_addr, found->ai_addrlen, timeout_ms);
    freeaddrinfo(found);
    return alive;
}

GPUSERVE_API gpuserve_status gpuserve_http_alive(gpuserve_http *server, uint32_t timeout_ms,
                                                 gpuserve_error *error)
{
    const struct sockaddr_un *path;
    bool alive;
    int why;

    if (!server || timeout_ms == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        server ? "`timeout_ms` is 0" : "`server` is NULL");
    path = &server->unix_address;
    pthread_mutex_lock(&server->asking);
    alive = path->sun_path[0]
                ? ask(server, (const struct sockaddr *)path, sizeof(*path), timeout_ms)
                : ask_port(server, timeout_ms);
    why = errno;
    pthread_mutex_unlock(&server->asking);
    if (alive)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_IO, "%s does not answer GET /livez within %u ms: %s",
                    server->address, timeout_ms,
                    why == 0 || why == EAGAIN ? "no answer or a status other than 200"
                                              : strerror(why));
}
