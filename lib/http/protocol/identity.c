/*
 * identity.c - the client number for stochastic fairness queueing in the library.
 *
 * It is a hash of the API key's name or of the address. The server's random seed prevents a client
 * from choosing an address that shares a number with another client.
 */
#include "lib/http/protocol/access.h"

#include "lib/http/net/server_state.h"

#include <netinet/in.h>
#include <string.h>

enum { IPV6_PREFIX_BYTES = 8, MAPPED_BYTES = 12 };

/* FNV-1a with the seed instead of the offset basis. */
static uint64_t hash(uint64_t seed, char kind, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t value = (seed ^ (unsigned char)kind) * UINT64_C(0x100000001b3);

    for (size_t i = 0; i < size; i++)
        value = (value ^ at[i]) * UINT64_C(0x100000001b3);
    return value ? value : 1;
}

uint64_t gsv_identity_of(const char *key_name, const struct sockaddr_storage *address,
                         uint64_t seed)
{
    if (key_name[0])
        return hash(seed, 'k', key_name, strlen(key_name));
    if (address->ss_family == AF_INET)
        return hash(seed, '4', &((const struct sockaddr_in *)address)->sin_addr, 4);
    if (address->ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(v6))
            return hash(seed, '4', v6->s6_addr + MAPPED_BYTES, 4);
        return hash(seed, '6', v6, IPV6_PREFIX_BYTES);
    }
    return hash(seed, 'u', "", 0);
}

uint64_t gsv_client_identity(const struct gsv_exchange *exchange)
{
    static const struct sockaddr_storage none;

    return gsv_identity_of(exchange->key_name,
                           exchange->client ? &exchange->client->address : &none,
                           exchange->server->seed);
}
