/*
 * serve_alive.c - a request of our own to our own server, over the way that clients take: only
 * after its answer the watchdog hears that we live.
 */
#include "serve_notify.h"

#include <openssl/ssl.h>

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static const char question[] = "GET /livez HTTP/1.1\r\nHost: watchdog\r\nConnection: close\r\n\r\n";
static const char answer[] = "HTTP/1.1 200 ";

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
static bool ask(int family, const struct sockaddr *to, socklen_t size, bool by_tls,
                uint64_t limit_us)
{
    const struct timeval limit = { (time_t)(limit_us / 1000000), (long)(limit_us % 1000000) };
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    alive = connect(fd, to, size) == 0 && (by_tls ? ask_by_tls(fd) : ask_plainly(fd));
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
    return ask(AF_UNIX, (const struct sockaddr *)&to, sizeof(to), false, limit_us);
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
    alive = ask(found->ai_family, found->ai_addr, found->ai_addrlen,
                strncmp(address, "https:", 6) == 0, limit_us);
    freeaddrinfo(found);
    return alive;
}
