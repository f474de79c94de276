/*
 * tls_outgoing.c - TLS of connections that the server opens: export of traces to a collector.
 *
 * TLS 1.2 and 1.3 by OpenSSL. The certificate of the other side must be valid, signed by a trusted
 * CA and issued for the host; there is no option to leave this out.
 */
#include "lib/base/error.h"
#include "lib/http/net/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

static gpuserve_status trust(SSL_CTX *context, const char *authorities_file, gpuserve_error *error)
{
    if (!authorities_file)
        return SSL_CTX_set_default_verify_paths(context) == 1
                   ? GPUSERVE_OK
                   : gsv_fail(error, GPUSERVE_E_IO, "the CA certificates of the system: %s",
                              gsv_tls_reason());
    if (SSL_CTX_load_verify_file(context, authorities_file) == 1)
        return GPUSERVE_OK;
    return gsv_hint(error,
                    gsv_fail(error, GPUSERVE_E_INVALID, "the CA certificates %s: %s",
                             authorities_file, gsv_tls_reason()),
                    "give a readable PEM file of the CA certificates that sign the certificate of "
                    "the other side");
}

gpuserve_status gsv_tls_outgoing_open(struct ssl_ctx_st **out, const char *authorities_file,
                                      gpuserve_error *error)
{
    SSL_CTX *context;
    gpuserve_status st;

    ERR_clear_error();
    context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(context);
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "TLS cannot be set up: %s",
                        gsv_tls_reason());
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    st = trust(context, authorities_file, error);
    ERR_clear_error();
    if (st == GPUSERVE_OK)
        *out = context;
    else
        SSL_CTX_free(context);
    return st;
}

void gsv_tls_outgoing_close(struct ssl_ctx_st **context)
{
    SSL_CTX_free(*context);
    *context = NULL;
}

/* The certificate must be of this address, or of this name, which the other side is told. */
static bool expect_host(SSL *session, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host) == 1;
    return SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1;
}

struct ssl_st *gsv_tls_outgoing_session(struct ssl_ctx_st *context, int fd, const char *host)
{
    SSL *session = SSL_new(context);

    if (session && (SSL_set_fd(session, fd) != 1 || !expect_host(session, host))) {
        SSL_free(session);
        session = NULL;
    }
    if (session)
        SSL_set_connect_state(session);
    ERR_clear_error();
    return session;
}
