/*
 * tls_pem.h - PEM helpers and the client certificate functions that tls.c calls.
 *
 * Threading: OpenSSL's error queue belongs to the calling thread.
 */
#ifndef GSV_HTTP_TLS_PEM_H
#define GSV_HTTP_TLS_PEM_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct bio_st;
struct ssl_ctx_st;

/* ------------------------------------------------------------------------------- tls_pem.c */

/* OpenSSL's reason of the first failure in the error queue; empties the queue. */
const char *gsv_tls_reason(void);
/* Passphrase callback for PEM readers: sets *asked and fails, because a server has no terminal. */
int gsv_pem_refuse_passphrase(char *to, int size, int writing, void *asked);
/* True if the last PEM read failed because no more objects follow; then empties the error queue. */
bool gsv_pem_is_at_end(void);

/* --------------------------------------------------------------------------- tls_client_auth.c */

/* Requires client certificates that one of these CAs has signed. */
gpuserve_status gsv_tls_use_authorities(struct ssl_ctx_st *context, struct bio_st *pem,
                                        const char *path, gpuserve_error *error);
/* Adds the revocation lists of these CAs. */
gpuserve_status gsv_tls_use_lists(struct ssl_ctx_st *context, struct bio_st *pem, const char *path,
                                  gpuserve_error *error);

#endif
