/*
 * access.h - who may call: the client of a request, its origin and host, its API key.
 */
#ifndef GSV_HTTP_ACCESS_H
#define GSV_HTTP_ACCESS_H

#include "lib/http/protocol/exchange.h"

#include <pthread.h>
#include <sys/socket.h>

/* The client number for the library's fair queueing (gpuserve_job.client). */

/* Hash of the API key, else of the address: an IPv4 address (mapped or not) or the /64 prefix of an
 * IPv6 address. All clients of a unix socket share one number. Never 0. */
uint64_t gsv_client_identity(const struct gsv_exchange *exchange);

/* The same from a key name ("": none), an address and a seed. */
uint64_t gsv_identity_of(const char *key_name, const struct sockaddr_storage *address,
                         uint64_t seed);

/*
 * Cross-site protection of a server without API keys.
 *
 * Host check: against DNS rebinding, where a foreign name resolves to this server. It applies to a
 * server on the loopback address, and to any other one with `allowed_hosts`.
 * Origin check: against requests that a page of another origin sends. It applies to every server
 * without keys. Routes of health and of the page's static files are exempt from both.
 */

/* Validates and copies `allowed_hosts`. */
gpuserve_status gsv_hosts_open(struct gpuserve_http *server, gpuserve_error *error);
void gsv_hosts_close(struct gpuserve_http *server);

/* False after gsv_refuse: the request comes from another site or names another host. */
bool gsv_origin_admit(struct gsv_exchange *exchange);

/* origin.c: true if pages of this origin may send requests. `anyone`: the list contains "*". */
bool gsv_cors_allows(const struct gpuserve_http *server, const char *origin, bool *anyone);

/*
 * API key authentication and a rate limit for each key (token bucket).
 *
 * Only SHA-256 digests are stored, so no dump, log or message contains a key. Lookup is constant
 * time. A reload of the key file replaces the set as a whole or not at all.
 */

enum { GSV_DIGEST_BYTES = 32 };

struct gsv_key {
    unsigned char digest[GSV_DIGEST_BYTES];
    char name[9];       /* first hexadecimal digits of the digest; identifies the key in logs */
    double n_left;      /* tokens in the bucket: requests allowed now */
    uint64_t filled_ns; /* when n_left was last updated */
};

struct gsv_keys {
    pthread_mutex_t lock; /* protects the fields below */
    struct gsv_key *keys; /* [n]: those of the options first, then those of the file */
    size_t n, n_given;
    char *file;         /* or NULL */
    double rate, burst; /* requests/s and bucket size; rate 0: unlimited */
};

gpuserve_status gsv_keys_open(struct gsv_keys *keys, const gpuserve_http_options *options,
                              gpuserve_error *error);
void gsv_keys_close(struct gsv_keys *keys);
/* Reads the file again. On failure the keys stay unchanged. */
gpuserve_status gsv_keys_reload(struct gsv_keys *keys, gpuserve_error *error);

/* Index of the key with this digest; n: none. Takes the same time for all digests. */
size_t gsv_keys_find(const struct gsv_key *keys, size_t n,
                     const unsigned char digest[GSV_DIGEST_BYTES]);

/* True if no key is needed, or the request's key is known and within its rate. False after
 * gsv_refuse. */
bool gsv_keys_admit(struct gsv_keys *keys, struct gsv_exchange *exchange);

/* origin.c: adds CORS headers. True: the request was a preflight and is answered. */
bool gsv_cors_begin(struct gsv_exchange *exchange);

#endif
