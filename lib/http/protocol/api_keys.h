/*
 * api_keys.h - API key authentication and a rate limit for each key (token bucket).
 *
 * Only SHA-256 digests are stored, so no dump, log or message contains a key. Lookup is constant
 * time. A reload of the key file replaces the set as a whole or not at all.
 */
#ifndef GSV_HTTP_API_KEYS_H
#define GSV_HTTP_API_KEYS_H

#include "lib/http/protocol/exchange.h"

#include <pthread.h>

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

/* cors.c: adds CORS headers. True: the request was a preflight and is answered. */
bool gsv_cors_begin(struct gsv_exchange *exchange);

#endif
