/*
 * identity.h - the client number for the library's fair queueing (gpuserve_job.client).
 */
#ifndef GSV_HTTP_IDENTITY_H
#define GSV_HTTP_IDENTITY_H

#include "lib/http/protocol/exchange.h"

#include <sys/socket.h>

/* Hash of the API key, else of the address: an IPv4 address (mapped or not) or the /64 prefix of an
 * IPv6 address. All clients of a unix socket share one number. Never 0. */
uint64_t gsv_client_identity(const struct gsv_exchange *exchange);

/* The same from a key name ("": none), an address and a seed. */
uint64_t gsv_identity_of(const char *key_name, const struct sockaddr_storage *address,
                         uint64_t seed);

#endif
