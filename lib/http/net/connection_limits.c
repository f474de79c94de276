/*
 * connection_limits.c - how many connections a server holds (--max-connections), and how many of
 * one address (--max-address-connections).
 *
 * Over max_connections the client that idles longest is evicted. If all have unanswered requests,
 * the new connection is a reserved one and may send health checks only. The lock `loop` is held.
 * Limits of time are in timeouts.c, limits of a request in protocol/request.c.
 */
#include "lib/http/net/event_loop.h"
#include "lib/http/net/server_state.h"

#include <netinet/in.h>
#include <string.h>

enum { RESERVED_CONNECTIONS = 32 }; /* for health checks when all other connections are taken */

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

size_t gsv_connections_of_address(const struct gsv_event_loop *event_loop,
                                  const struct sockaddr_storage *address)
{
    size_t n = 0;

    for (const struct gsv_client *c = event_loop->clients; c; c = c->next)
        n += same_host(&c->address, address);
    return n;
}

struct gsv_client *gsv_connections_idle(const struct gsv_event_loop *event_loop, bool with_reserved)
{
    struct gsv_client *found = NULL;

    for (struct gsv_client *c = event_loop->clients; c; c = c->next) {
        if (atomic_load(&c->n_open) == 0 && !c->ended && !c->linger_ns &&
            (with_reserved || !c->probation) && (!found || c->since_ns < found->since_ns))
            found = c;
    }
    return found;
}

/* Clients that count against max_connections: not ended, not reserved. */
static size_t count_regular(const struct gsv_event_loop *event_loop)
{
    size_t n = 0;

    for (const struct gsv_client *c = event_loop->clients; c; c = c->next)
        n += !c->ended && !c->probation;
    return n;
}

bool gsv_connections_make_capacity(struct gsv_event_loop *event_loop)
{
    const size_t limit = event_loop->server->options.max_connections;
    struct gsv_client *victim;

    if (atomic_load(&event_loop->n_clients) < limit || count_regular(event_loop) < limit)
        return true;
    victim = gsv_connections_idle(event_loop, false);
    if (!victim)
        return false;
    gsv_client_close(victim);
    return true;
}

bool gsv_connections_make_reserved(struct gsv_event_loop *event_loop)
{
    const size_t limit = event_loop->server->options.max_connections;
    struct gsv_client *victim;

    if (atomic_load(&event_loop->n_clients) < limit + RESERVED_CONNECTIONS)
        return true;
    victim = gsv_connections_idle(event_loop, true);
    if (!victim)
        return false;
    gsv_client_close(victim);
    return true;
}
