/*
 * identity.h - the number that names a client to the library's queue (gpuserve_job.client).
 */
#ifndef GSV_HTTP_IDENTITY_H
#define GSV_HTTP_IDENTITY_H

#include "lib/http/protocol/exchange.h"

#include <sys/socket.h>

/* By the API key, else by the address: an IPv4 address, mapped or not, or the first 64 bits of an
 * IPv6 address. All clients of a unix socket are one. Never 0. */
uint64_t gsv_client_identity(const struct gsv_exchange *exchange);

/* The same of a key's name ("": none), an address and a seed. */
uint64_t gsv_identity_of(const char *key_name, const struct sockaddr_storage *address,
                         uint64_t seed);

#endif
