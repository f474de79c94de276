/*
 * api_keys.h - who may ask: API keys, and how many requests each may send.
 *
 * Only SHA-256 digests are kept, so a key is in no dump, log or message; a key given is compared
 * with all of them in the same time whether it fits or not. Keys of a file are read again when the
 * server is reloaded: the new set takes the old one's place whole, or not at all.
 */
#ifndef GSV_HTTP_API_KEYS_H
#define GSV_HTTP_API_KEYS_H

#include "lib/http/protocol/exchange.h"

#include <pthread.h>

enum { GSV_DIGEST_BYTES = 32 };

struct gsv_key {
    unsigned char digest[GSV_DIGEST_BYTES];
    char name[9];       /* the digest's first digits: tells keys apart in logs */
    double n_left;      /* requests it may send now */
    uint64_t filled_ns; /* when n_left was right */
};

struct gsv_keys {
    pthread_mutex_t lock; /* over all that follows */
    struct gsv_key *keys; /* [n]: those given first, then those of the file */
    size_t n, n_given;
    char *file;         /* or NULL */
    double rate, burst; /* requests a second; 0: as many as it likes */
};

gpuserve_status gsv_keys_open(struct gsv_keys *keys, const gpuserve_http_options *options,
                              gpuserve_error *error);
void gsv_keys_close(struct gsv_keys *keys);
/* Read the file again. What fails leaves the keys as they were. */
gpuserve_status gsv_keys_reload(struct gsv_keys *keys, gpuserve_error *error);

/* Which of the keys has this digest; n: none. In a time that is the same for all digests. */
size_t gsv_keys_find(const struct gsv_key *keys, size_t n,
                     const unsigned char digest[GSV_DIGEST_BYTES]);

/* The request's key is one of ours, or none is needed, and it may send one more. False after
 * gsv_refuse. */
bool gsv_keys_admit(struct gsv_keys *keys, struct gsv_exchange *exchange);

/* cors.c: answers for browsers that show pages of other origins. True: the request was only a
 * question (a preflight), and is answered. */
bool gsv_cors_begin(struct gsv_exchange *exchange);

#endif
