/*
 * tls_client_auth.c - client certificates (mutual TLS): trusted CAs and revocation lists (CRLs).
 *
 * With revocation lists, each CA must have a list that is in force. OpenSSL rejects every
 * certificate whose CA has none. When a list expires later, the clients of its CA are rejected
 * until a newer list is loaded.
 */
#include "lib/base/error.h"
#include "lib/http/net/tls.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <time.h>

enum { MAX_DEPTH = 16, MAX_AUTHORITIES = 256, MAX_LISTS = 256 };
enum { MAX_SHOWN_BYTES = 32 << 10 }; /* of a client's certificate chain */
enum { NAME_BYTES = 200, TIME_BYTES = 32 };

/* ----------------------------------------------------------------------------------------- CAs */

/* Adds one CA that may sign client certificates. */
static gpuserve_status use_authority(SSL_CTX *context, X509 *certificate, int n, const char *path,
                                     gpuserve_error *error)
{
    if (n == MAX_AUTHORITIES)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: more than %d certificates", path, n);
    if (X509_check_ca(certificate) == 0)
        return gsv_hint(
            error,
            gsv_fail(
                error, GPUSERVE_E_INVALID,
                "%s: certificate %d is not a CA certificate: it cannot sign client certificates",
                path, n + 1),
            "put the CA certificates that sign client certificates in this file, not the client "
            "certificates");
    /* The certificate was parsed, and a duplicate is allowed: only memory can be short. */
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) != 1 ||
        SSL_CTX_add_client_CA(context, certificate) != 1)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: certificate %d: %s", path, n + 1,
                        gsv_tls_reason());
    return GPUSERVE_OK;
}

/* Without tickets each connection presents its certificate; a ticket could outlive it. An
 * intermediate CA is trusted without its root. */
static void ask_for_certificates(SSL_CTX *context)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(context, MAX_DEPTH);
    SSL_CTX_set_max_cert_list(context, MAX_SHOWN_BYTES);
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context, 0);
}

gpuserve_status gsv_tls_use_authorities(SSL_CTX *context, BIO *pem, const char *path,
                                        gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    bool asked = false;
    X509 *certificate;
    int n = 0;

    for (; st == GPUSERVE_OK &&
           (certificate = PEM_read_bio_X509(pem, NULL, gsv_pem_refuse_passphrase, &asked));
         n++) {
        st = use_authority(context, certificate, n, path, error);
        X509_free(certificate);
    }
    if (st != GPUSERVE_OK)
        return st;
    if (!gsv_pem_is_at_end())
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: certificate %d: %s", path, n + 1,
                        gsv_tls_reason());
    if (n == 0)
        return gsv_hint(
            error, gsv_fail(error, GPUSERVE_E_INVALID, "%s has no certificate in PEM format", path),
            "a certificate begins with -----BEGIN CERTIFICATE-----; the file needs one for each "
            "accepted client CA");
    ask_for_certificates(context);
    return GPUSERVE_OK;
}

/* ----------------------------------------------------------------------------- revocation lists */

/* Looks up the trusted CA in the loaded lists of its own issuer: X509_V_OK, revoked, or list
 * expired. use_list() has accepted only lists that one of the configured CAs signed. */
static int ask_above(X509_STORE_CTX *store, X509 *authority)
{
    STACK_OF(X509_CRL) *lists = X509_STORE_CTX_get1_crls(store, X509_get_issuer_name(authority));
    int error = X509_V_OK;

    for (int i = 0; i < sk_X509_CRL_num(lists) && error == X509_V_OK; i++) {
        X509_CRL *list = sk_X509_CRL_value(lists, i);
        const ASN1_TIME *end = X509_CRL_get0_nextUpdate(list);
        X509_REVOKED *entry;

        if (X509_CRL_get0_by_cert(list, &entry, authority) == 1)
            error = X509_V_ERR_CERT_REVOKED;
        else if (end && X509_cmp_current_time(end) <= 0)
            error = X509_V_ERR_CRL_HAS_EXPIRED;
    }
    sk_X509_CRL_pop_free(lists, X509_CRL_free);
    return error;
}

/* Verify callback. A chain may end at a trusted intermediate CA (PARTIAL_CHAIN). OpenSSL then
 * cannot check that CA's revocation, because its issuer is not in the chain. This callback checks
 * it. */
static int check_trusted(int good, X509_STORE_CTX *store)
{
    const int depth = X509_STORE_CTX_get_error_depth(store);
    const int error = X509_STORE_CTX_get_error(store);
    X509 *authority = X509_STORE_CTX_get_current_cert(store);

    if (depth == 0 || depth != sk_X509_num(X509_STORE_CTX_get0_chain(store)) - 1 || !authority ||
        (X509_get_extension_flags(authority) & EXFLAG_SS))
        return good;
    if (!good && error != X509_V_ERR_UNABLE_TO_GET_CRL &&
        error != X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER && error != X509_V_ERR_CRL_SIGNATURE_FAILURE)
        return 0;
    X509_STORE_CTX_set_error(store, ask_above(store, authority));
    return X509_STORE_CTX_get_error(store) == X509_V_OK;
}

/* Index of the CA that signed the list; -1: none. */
static int authority_of(STACK_OF(X509) * authorities, X509_CRL *list)
{
    for (int i = 0; i < sk_X509_num(authorities); i++) {
        X509 *authority = sk_X509_value(authorities, i);

        if (X509_NAME_cmp(X509_get_subject_name(authority), X509_CRL_get_issuer(list)) == 0 &&
            X509_CRL_verify(list, X509_get0_pubkey(authority)) == 1)
            return i;
    }
    return -1;
}

static const char *text_of_time(const ASN1_TIME *time, char text[TIME_BYTES])
{
    struct tm parts;

    if (ASN1_TIME_to_tm(time, &parts) != 1 ||
        strftime(text, TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        return "has an unreadable time";
    return text;
}

/* Writes why the list is not in force, to follow its number and name. False: it is in force. */
static bool is_out_of_time(const X509_CRL *list, char *what, size_t size)
{
    const ASN1_TIME *begin = X509_CRL_get0_lastUpdate(list), *end = X509_CRL_get0_nextUpdate(list);
    char text[TIME_BYTES];

    if (!begin || X509_cmp_current_time(begin) >= 0)
        snprintf(what, size, "is valid only from %s",
                 begin ? text_of_time(begin, text) : "no time");
    else if (end && X509_cmp_current_time(end) <= 0)
        snprintf(what, size, "expired at %s", text_of_time(end, text));
    else
        return false;
    return true;
}

/* False: *error holds the reason. */
static bool use_list(SSL_CTX *context, X509_CRL *list, int n, STACK_OF(X509) * authorities,
                     bool *has_list, const char *path, gpuserve_error *error)
{
    char name[NAME_BYTES], what[2 * TIME_BYTES];
    const int which = authority_of(authorities, list);

    X509_NAME_oneline(X509_CRL_get_issuer(list), name, sizeof(name));
    if (n == MAX_LISTS)
        gsv_fail(error, GPUSERVE_E_INVALID, "%s: more than %d lists", path, n);
    else if (which < 0)
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: list %d (%s) is not signed by a CA of --tls-client-ca", path, n + 1, name);
    else if (!(X509_get_key_usage(sk_X509_value(authorities, which)) & KU_CRL_SIGN))
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: list %d (%s): the CA's certificate does not permit signing lists (cRLSign)",
                 path, n + 1, name);
    else if (is_out_of_time(list, what, sizeof(what)))
        gsv_hint(
            error,
            gsv_fail(error, GPUSERVE_E_INVALID, "%s: list %d (%s) %s", path, n + 1, name, what),
            "replace it with the CA's newest list: the server rejects all clients of a CA without "
            "a valid list");
    else if (X509_STORE_add_crl(SSL_CTX_get_cert_store(context), list) != 1)
        gsv_fail(error, GPUSERVE_E_INVALID, "%s: list %d (%s): %s", path, n + 1, name,
                 gsv_tls_reason());
    else
        return has_list[which] = true;
    return false;
}

static gpuserve_status miss_none(STACK_OF(X509) * authorities, const bool *has_list,
                                 const char *path, gpuserve_error *error)
{
    char name[NAME_BYTES];

    for (int i = 0; i < sk_X509_num(authorities); i++) {
        if (has_list[i])
            continue;
        X509_NAME_oneline(X509_get_subject_name(sk_X509_value(authorities, i)), name, sizeof(name));
        return gsv_hint(
            error, gsv_fail(error, GPUSERVE_E_INVALID, "%s has no list of the CA %s", path, name),
            "each CA of --tls-client-ca needs a list; it may be empty");
    }
    return GPUSERVE_OK;
}

static gpuserve_status read_lists(SSL_CTX *context, BIO *pem, STACK_OF(X509) * authorities,
                                  const char *path, gpuserve_error *error)
{
    bool has_list[MAX_AUTHORITIES] = { false }, asked = false, good = true;
    X509_CRL *list;
    int n = 0;

    for (; good && (list = PEM_read_bio_X509_CRL(pem, NULL, gsv_pem_refuse_passphrase, &asked));
         n++) {
        good = use_list(context, list, n, authorities, has_list, path, error);
        X509_CRL_free(list);
    }
    if (!good)
        return GPUSERVE_E_INVALID;
    if (!gsv_pem_is_at_end())
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: list %d: %s", path, n + 1,
                        gsv_tls_reason());
    if (n == 0)
        return gsv_hint(
            error,
            gsv_fail(error, GPUSERVE_E_INVALID, "%s has no revocation list in PEM format", path),
            "a list begins with -----BEGIN X509 CRL-----; `openssl crl -inform DER` converts a DER "
            "list");
    return miss_none(authorities, has_list, path, error);
}

gpuserve_status gsv_tls_use_lists(SSL_CTX *context, BIO *pem, const char *path,
                                  gpuserve_error *error)
{
    STACK_OF(X509) *authorities = X509_STORE_get1_all_certs(SSL_CTX_get_cert_store(context));
    gpuserve_status st;

    if (!authorities)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %s", path);
    st = read_lists(context, pem, authorities, path, error);
    sk_X509_pop_free(authorities, X509_free);
    if (st != GPUSERVE_OK)
        return st;
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context),
                                X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    SSL_CTX_set_verify(context, SSL_CTX_get_verify_mode(context), check_trusted);
    return GPUSERVE_OK;
}
