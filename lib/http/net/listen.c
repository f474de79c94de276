/*
 * listen.c - the listening TCP socket: address check, bind, listen.
 *
 * An address that other machines can reach needs an API key, client certificates or `insecure`.
 * listen_unix.c does the same for a unix socket. Runs at start; event_loop.c accepts.
 */
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static gpuserve_status bind_to(struct gpuserve_http *server, const struct addrinfo *to,
                               gpuserve_error *error)
{
    const int yes = 1;
    const gpuserve_http_options *options = &server->options;

    server->listener = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listener < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "socket: %s", strerror(errno));
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    /* Accepted connections inherit it: the last segment of a reply must not wait (Nagle). */
    setsockopt(server->listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (bind(server->listener, to->ai_addr, to->ai_addrlen) == 0 &&
        listen(server->listener, BACKLOG) == 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_IO, "%s port %u: %s", options->host, options->port, strerror(errno));
    return errno == EADDRINUSE ? gsv_hint(error, GPUSERVE_E_IO,
                                          "another program uses the port: `ss -ltnp 'sport = :%u'` "
                                          "shows it; choose another port, or 0 for a free port",
                                          options->port)
                               : GPUSERVE_E_IO;
}

static void write_address(struct gpuserve_http *server)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    const char *host = server->options.host;
    const char *scheme = gsv_tls_is_on(&server->tls) ? "https" : "http";
    unsigned port;

    if (getsockname(server->listener, (struct sockaddr *)&bound, &size) != 0)
        return;
    port = bound.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&bound)->sin_port)
                                      : ntohs(((struct sockaddr_in6 *)&bound)->sin6_port);
    server->options.port = port;
    snprintf(server->address, sizeof(server->address),
             bound.ss_family == AF_INET6 ? "%s://[%s]:%u" : "%s://%s:%u", scheme, host, port);
}

/* Resolves the option's address; the caller frees it with freeaddrinfo(). Fails if the address
 * would be open to other machines without authentication. */
static gpuserve_status resolve(const struct gpuserve_http *server, struct addrinfo **found,
                               gpuserve_error *error)
{
    const struct addrinfo wanted = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                     .ai_socktype = SOCK_STREAM };
    const gpuserve_http_options *options = &server->options;
    char port[16];

    *found = NULL;
    if (options->port > 65535)
        return gsv_fail(error, GPUSERVE_E_INVALID, "port %u: the limit is 65535", options->port);
    snprintf(port, sizeof(port), "%u", options->port);
    if (getaddrinfo(options->host, port, &wanted, found) != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "\"%s\" is not an IP address such as 127.0.0.1 or ::1", options->host);
    if (is_loopback((*found)->ai_addr) || options->insecure || server->has_keys ||
        server->tls.client_ca_file)
        return GPUSERVE_OK;
    freeaddrinfo(*found);
    *found = NULL;
    return gsv_hint(
        error,
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "other machines can reach %s, and the server has no authentication",
                 options->host),
        "require an API key (--api-key-file) or a client certificate (--tls-client-ca), listen on "
        "127.0.0.1 behind a proxy, or allow this with --insecure");
}

gpuserve_status gsv_http_check_address(const struct gpuserve_http *server, gpuserve_error *error)
{
    struct addrinfo *found = NULL;
    gpuserve_status st;

    if (server->options.unix_path)
        return GPUSERVE_OK;
    st = resolve(server, &found, error);
    if (found)
        freeaddrinfo(found);
    return st;
}

gpuserve_status gsv_http_listen(struct gpuserve_http *server, gpuserve_error *error)
{
    struct addrinfo *found = NULL;
    gpuserve_status st;

    if (server->options.unix_path)
        return gsv_http_listen_unix(server, server->options.unix_path, error);
    st = resolve(server, &found, error);
    if (st != GPUSERVE_OK)
        return st;
    server->is_loopback = is_loopback(found->ai_addr);
    st = bind_to(server, found, error);
    freeaddrinfo(found);
    if (st == GPUSERVE_OK)
        write_address(server);
    return st;
}

void gsv_http_close_listener(struct gpuserve_http *server)
{
    if (server->listener < 0)
        return;
    close(server->listener);
    server->listener = -1;
    if (server->unix_address.sun_path[0])
        gsv_http_remove_socket(server);
}
