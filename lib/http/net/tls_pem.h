/*
 * tls_pem.h - what the files tls*.c share to read PEM.
 */
#ifndef GSV_HTTP_TLS_PEM_H
#define GSV_HTTP_TLS_PEM_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct bio_st;
struct ssl_ctx_st;

/* ------------------------------------------------------------------------------- tls_pem.c */

/* Why something failed, in OpenSSL's words; its list of errors is emptied. */
const char *gsv_tls_reason(void);
/* PEM readers ask for a passphrase here: there is nobody who could give one. */
int gsv_pem_refuse_passphrase(char *to, int size, int writing, void *asked);
/* Whether the last attempt to read found no more of the kind; then OpenSSL's errors are emptied. */
bool gsv_pem_is_at_end(void);

/* --------------------------------------------------------------------------- tls_client_auth.c */

/* Let only clients in that show a certificate by one of these CAs. */
gpuserve_status gsv_tls_use_authorities(struct ssl_ctx_st *context, struct bio_st *pem,
                                        const char *path, gpuserve_error *error);
/* Of these CAs: the certificates that they have revoked. */
gpuserve_status gsv_tls_use_lists(struct ssl_ctx_st *context, struct bio_st *pem, const char *path,
                                  gpuserve_error *error);

#endif
