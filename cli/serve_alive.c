/*
 * serve_alive.c - a request of our own to our own server, over the way that clients take: only
 * after its answer the watchdog hears that we live.
 */
#include "serve_notify.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static const char question[] = "GET /livez HTTP/1.1\r\nHost: watchdog\r\nConnection: close\r\n\r\n";
static const char answer[] = "HTTP/1.1 200 ";

enum way { PLAIN, BY_TLS, BY_CERTIFICATE };

/* Whether the server has told the client of a certificate that it lacks: in TLS 1.2 instead of the
 * handshake's end, in 1.3 after it. */
static bool is_refused_a_certificate(SSL *session)
{
    size_t n = 0;
    int reason;
    char byte;

    if (!session || (SSL_connect(session) == 1 && SSL_read_ex(session, &byte, 1, &n) == 1))
        return false;
    reason = ERR_GET_REASON(ERR_peek_error());
    return reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED ||
           reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE;
}

/* Where clients show certificates we have none: that the server misses it is its answer. */
static bool ask_for_refusal(int fd)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *session = context ? SSL_new(context) : NULL;
    bool alive;

    ERR_clear_error();
    alive = session && SSL_set_fd(session, fd) == 1 && is_refused_a_certificate(session);
    SSL_free(session);
    SSL_CTX_free(context);
    ERR_clear_error();
    return alive;
}

/* Nothing secret passes and the port is our own, so whose certificate it shows is no matter. */
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

static bool ask_plainly(int fd)
{
    char got[sizeof(answer)] = "";

    return send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) == sizeof(question) - 1 &&
           recv(fd, got, sizeof(answer) - 1, MSG_WAITALL) == sizeof(answer) - 1 &&
           memcmp(got, answer, sizeof(answer) - 1) == 0;
}

/* The socket is given as long as a beat of the watchdog lasts. */
static bool ask(int family, const struct sockaddr *to, socklen_t size, enum way way,
                uint64_t limit_us)
{
    static bool (*const ways[])(int fd) = { ask_plainly, ask_by_tls, ask_for_refusal };
    const struct timeval limit = { (time_t)(limit_us / 1000000), (long)(limit_us % 1000000) };
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    alive = connect(fd, to, size) == 0 && ways[way](fd);
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
    return ask(AF_UNIX, (const struct sockaddr *)&to, sizeof(to), PLAIN, limit_us);
}

/* "http://127.0.0.1:8080", "https://[::1]:8080" */
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

bool cli_is_alive(const char *address, bool wants_certificates, uint64_t limit_us)
{
    const enum way way = strncmp(address, "https:", 6) != 0 ? PLAIN
                         : wants_certificates               ? BY_CERTIFICATE
                                                            : BY_TLS;
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
    alive = ask(found->ai_family, found->ai_addr, found->ai_addrlen, way, limit_us);
    freeaddrinfo(found);
    return alive;
}
