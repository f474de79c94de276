/*
 * connection_socket.c - TLS handshake, reads and writes of one client's socket, plain or TLS.
 *
 * All reads and writes of the client's socket go through these functions. TLS results are mapped to
 * those of recv() and send(), with errno EAGAIN or EPROTO. Runs on the event loop thread.
 */
#include "lib/base/clock.h"
#include "lib/http/net/connection.h"

#include "lib/http/net/server_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* --------------------------------------------------------------------------------- handshake */

enum { TLS_HANDSHAKE = 0x16 }; /* first byte of a TLS ClientHello record */

/* Counts the failure and logs one line with its reason; the client is at fault. */
static void fail_handshake(struct gsv_client *client, const char *reason)
{
    struct gpuserve_http *server = client->event_loop->server;
    char host[INET6_ADDRSTRLEN] = "?";

    atomic_fetch_add(&server->tls.n_failed_handshakes, 1ull);
    inet_ntop(client->address.ss_family,
              client->address.ss_family == AF_INET
                  ? (const void *)&((struct sockaddr_in *)&client->address)->sin_addr
                  : (const void *)&((struct sockaddr_in6 *)&client->address)->sin6_addr,
              host, sizeof(host));
    gsv_http_log(server, GPUSERVE_LOG_INFO, "%s: TLS handshake failed: %s", host, reason);
    client->tls_failed = true;
    gsv_client_close(client);
}

/* Creates a session when the first byte is a TLS handshake record, so a silent connection allocates
 * nothing. False: no byte yet, or the client is refused or closed. */
static bool begin_session(struct gsv_client *client)
{
    unsigned char first = 0;
    const ssize_t n = recv(client->net.fd, &first, 1, MSG_PEEK);

    if (gsv_must_wait(n))
        return false;
    if (n <= 0) {
        gsv_client_close(client);
        return false;
    }
    if (first != TLS_HANDSHAKE) {
        atomic_fetch_add(&client->event_loop->server->tls.n_failed_handshakes, 1ull);
        client->ready = true; /* the rejection is sent in plain text */
        gsv_client_refuse(client, 400, "this port requires TLS: use https://", 0, "");
        return false;
    }
    client->tls = gsv_tls_session(&client->event_loop->server->tls, client->net.fd);
    if (!client->tls)
        gsv_client_close(client);
    return client->tls != NULL;
}

bool gsv_client_make_ready(struct gsv_client *client)
{
    char reason[GSV_TLS_REASON_BYTES];

    if (!client->tls && !begin_session(client))
        return false;
    switch (gsv_tls_handshake(client->tls, reason)) {
    case GSV_TLS_WANTS_IN:
        gsv_client_watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
        return false;
    case GSV_TLS_WANTS_OUT:
        gsv_client_watch(client, &client->net, EPOLLOUT);
        return false;
    case 1:
        client->ready = true;
        client->since_ns = gsv_now_ns();
        gsv_client_watch(client, &client->net, EPOLLIN | EPOLLRDHUP);
        return true;
    default:
        fail_handshake(client, reason);
        return false;
    }
}

/* ------------------------------------------------------------------------------ read and write */

/* Maps a session result to that of recv() and send(). */
static ssize_t result_of(struct gsv_client *client, ssize_t n)
{
    if (n >= 0)
        return n;
    client->tls_failed |= n == GSV_TLS_FAILED;
    errno = n == GSV_TLS_FAILED ? EPROTO : EAGAIN;
    return -1;
}

ssize_t gsv_client_read(struct gsv_client *client, char *to, size_t size)
{
    ssize_t n;

    if (!client->tls)
        return recv(client->net.fd, to, size, 0);
    n = gsv_tls_read(client->tls, to, size);
    if (n == GSV_TLS_WANTS_OUT) { /* TLS itself must write, for example on a key update */
        client->reading_wants_out = true;
        gsv_client_watch(client, &client->net, client->net.events | EPOLLOUT);
    }
    return result_of(client, n);
}

ssize_t gsv_client_write(struct gsv_client *client, const char *bytes, size_t size)
{
    if (!client->tls)
        return send(client->net.fd, bytes, size, MSG_NOSIGNAL);
    return result_of(client, gsv_tls_write(client->tls, bytes, size));
}

bool gsv_client_has_more(const struct gsv_client *client)
{
    return client->tls && client->ready && gsv_tls_has_more(client->tls);
}

void gsv_client_end_output(struct gsv_client *client)
{
    if (client->tls && client->ready && !client->tls_failed)
        gsv_tls_end(client->tls);
    shutdown(client->net.fd, SHUT_WR);
}
