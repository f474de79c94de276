/*
 * tls.c - server certificate, key, client CAs and revocation lists: read, check, reload.
 *
 * load() builds a complete SSL_CTX from the files and swaps it in under `lock`. Open sessions keep
 * the old one by reference. On failure the old context stays.
 *
 * TLS 1.2 and 1.3 by OpenSSL, with forward secrecy and authenticated ciphers only. No
 * renegotiation, no compression, no early data. Sessions resume by tickets, so the server stores
 * nothing about a disconnected client. With client certificates sessions are not resumed.
 */
#include "lib/http/net/tls.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 20, MAX_LIST_BYTES = 16 << 20, MAX_CHAIN = 16 };

static const char ciphers_of_1_2[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

/* ---------------------------------------------------------------------------------------- files */

static void look_at(const char *path, struct gsv_file_stamp *stamp)
{
    struct stat st;

    *stamp = (struct gsv_file_stamp){ 0 };
    if (stat(path, &st) != 0)
        return;
    stamp->device = st.st_dev;
    stamp->inode = st.st_ino;
    stamp->size = st.st_size;
    stamp->changed = st.st_mtim;
}

static struct gsv_file_stamps look(const struct gsv_tls *tls)
{
    struct gsv_file_stamps stamps = { 0 };

    look_at(tls->certificate_file, &stamps.certificate);
    look_at(tls->key_file, &stamps.key);
    if (tls->client_ca_file)
        look_at(tls->client_ca_file, &stamps.client_ca);
    if (tls->client_crl_file)
        look_at(tls->client_crl_file, &stamps.client_crl);
    return stamps;
}

static bool same_stamp(const struct gsv_file_stamp *a, const struct gsv_file_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static bool same_stamps(const struct gsv_file_stamps *a, const struct gsv_file_stamps *b)
{
    return same_stamp(&a->certificate, &b->certificate) && same_stamp(&a->key, &b->key) &&
           same_stamp(&a->client_ca, &b->client_ca) && same_stamp(&a->client_crl, &b->client_crl);
}

/* Reads the file into *bytes, [*size]; the caller wipes and frees it. */
static gpuserve_status read_file(const char *path, size_t max_size, char **bytes, size_t *size,
                                 gpuserve_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a FIFO */
    struct stat st;
    ssize_t n = 1;

    if (fd < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    *size = 0;
    *bytes = malloc(max_size + 1);
    if (!*bytes) {
        close(fd);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %s", path);
    }
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        n = -1;
    }
    while (n > 0 && *size <= max_size) {
        n = read(fd, *bytes + *size, max_size + 1 - *size);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            *size += (size_t)n;
    }
    if (n < 0)
        gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    close(fd);
    if (n < 0)
        return GPUSERVE_E_IO;
    return *size <= max_size ? GPUSERVE_OK
                             : gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                                        "%s: the file exceeds %zu bytes", path, max_size);
}

/* ---------------------------------------------------------------------------------- certificate */

static gpuserve_status use_chain(SSL_CTX *context, BIO *pem, const char *path,
                                 gpuserve_error *error)
{
    bool asked = false;
    X509 *certificate = PEM_read_bio_X509_AUX(pem, NULL, gsv_pem_refuse_passphrase, &asked);
    int n = 0, good = certificate ? SSL_CTX_use_certificate(context, certificate) : 0;

    if (!certificate)
        return gsv_hint(error,
                        gsv_fail(error, GPUSERVE_E_INVALID,
                                 "%s has no certificate in PEM format: %s", path, gsv_tls_reason()),
                        "a certificate begins with -----BEGIN CERTIFICATE-----; put the server's "
                        "certificate first, then the intermediate ones");
    X509_free(certificate);
    if (good != 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: %s", path, gsv_tls_reason());
    for (; (certificate = PEM_read_bio_X509(pem, NULL, gsv_pem_refuse_passphrase, &asked)); n++) {
        if (n == MAX_CHAIN || SSL_CTX_add0_chain_cert(context, certificate) != 1) {
            X509_free(certificate);
            return gsv_fail(error, GPUSERVE_E_INVALID, "%s: certificate %d: %s", path, n + 2,
                            n == MAX_CHAIN ? "too many" : gsv_tls_reason());
        }
    }
    return gsv_pem_is_at_end() ? GPUSERVE_OK
                               : gsv_fail(error, GPUSERVE_E_INVALID, "%s: certificate %d: %s", path,
                                          n + 2, gsv_tls_reason());
}

static gpuserve_status use_key(SSL_CTX *context, BIO *pem, const char *path,
                               const char *certificate_path, gpuserve_error *error)
{
    bool asked = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, gsv_pem_refuse_passphrase, &asked);
    gpuserve_status st = GPUSERVE_OK;

    if (asked)
        st = gsv_hint(error,
                      gsv_fail(error, GPUSERVE_E_INVALID,
                               "%s: the key is encrypted; a passphrase is not supported", path),
                      "`openssl pkey -in %s -out FILE` decrypts it; make the file readable only "
                      "for the server's user",
                      path);
    else if (!key)
        st = gsv_hint(error,
                      gsv_fail(error, GPUSERVE_E_INVALID, "%s has no private key in PEM format: %s",
                               path, gsv_tls_reason()),
                      "a private key begins with -----BEGIN PRIVATE KEY-----");
    else if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1)
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "the key in %s does not match the first certificate in %s", path,
                      certificate_path);
    else if (SSL_CTX_use_PrivateKey(context, key) != 1) /* it matches: only memory is short */
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: %s", path, gsv_tls_reason());
    EVP_PKEY_free(key);
    ERR_clear_error();
    return st;
}

static gpuserve_status use_authorities(SSL_CTX *context, BIO *pem, const struct gsv_tls *tls,
                                       gpuserve_error *error)
{
    return gsv_tls_use_authorities(context, pem, tls->client_ca_file, error);
}

static gpuserve_status use_lists(SSL_CTX *context, BIO *pem, const struct gsv_tls *tls,
                                 gpuserve_error *error)
{
    return gsv_tls_use_lists(context, pem, tls->client_crl_file, error);
}

typedef gpuserve_status (*use_fn)(SSL_CTX *context, BIO *pem, const struct gsv_tls *tls,
                                  gpuserve_error *error);

static gpuserve_status use_certificate_file(SSL_CTX *context, BIO *pem, const struct gsv_tls *tls,
                                            gpuserve_error *error)
{
    return use_chain(context, pem, tls->certificate_file, error);
}

static gpuserve_status use_key_file(SSL_CTX *context, BIO *pem, const struct gsv_tls *tls,
                                    gpuserve_error *error)
{
    return use_key(context, pem, tls->key_file, tls->certificate_file, error);
}

static gpuserve_status use_file(SSL_CTX *context, const struct gsv_tls *tls, const char *path,
                                size_t max_size, use_fn use, gpuserve_error *error)
{
    char *bytes = NULL;
    size_t size = 0;
    gpuserve_status st = read_file(path, max_size, &bytes, &size, error);
    BIO *pem = st == GPUSERVE_OK ? BIO_new_mem_buf(bytes, (int)size) : NULL;

    if (st == GPUSERVE_OK)
        st = pem ? use(context, pem, tls, error)
                 : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %s", path);
    BIO_free(pem);
    if (bytes)
        OPENSSL_cleanse(bytes, size);
    free(bytes);
    return st;
}

/* -------------------------------------------------------------------------------------- context */

/* ALPN: selects http/1.1. A client that offers only other protocols gets an alert. */
static int choose_protocol(SSL *session, const unsigned char **out, unsigned char *out_size,
                           const unsigned char *offered, unsigned size, void *user)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;

    (void)session;
    (void)user;
    if (SSL_select_next_proto(&chosen, out_size, ours, sizeof(ours) - 1, offered, size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *create_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    if (!context)
        return NULL;
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context, ciphers_of_1_2) != 1) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* Idle connections hold no buffers. */
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return context;
}

static long long seconds_of(const ASN1_TIME *time)
{
    struct tm parts;

    return ASN1_TIME_to_tm(time, &parts) == 1 ? (long long)timegm(&parts) : 0;
}

static gpuserve_status load(struct gsv_tls *tls, gpuserve_error *error)
{
    const struct gsv_file_stamps stamps =
        look(tls); /* before reading: a later change is noticed next time */
    SSL_CTX *context, *before;
    gpuserve_status st;

    ERR_clear_error();
    context = create_context();
    if (!context)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "TLS cannot be set up: %s",
                        gsv_tls_reason());
    st = use_file(context, tls, tls->certificate_file, MAX_FILE_BYTES, use_certificate_file, error);
    if (st == GPUSERVE_OK)
        st = use_file(context, tls, tls->key_file, MAX_FILE_BYTES, use_key_file, error);
    if (st == GPUSERVE_OK && tls->client_ca_file)
        st = use_file(context, tls, tls->client_ca_file, MAX_FILE_BYTES, use_authorities, error);
    if (st == GPUSERVE_OK && tls->client_crl_file)
        st = use_file(context, tls, tls->client_crl_file, MAX_LIST_BYTES, use_lists, error);
    pthread_mutex_lock(&tls->lock);
    tls->tried = tls->seen = stamps;
    before = tls->context;
    if (st == GPUSERVE_OK) {
        atomic_store(&tls->not_after,
                     seconds_of(X509_get0_notAfter(SSL_CTX_get0_certificate(context))));
        tls->context = context;
        context = before; /* sessions hold a reference */
    }
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(context);
    return st;
}

gpuserve_status gsv_tls_open(struct gsv_tls *tls, const gpuserve_http_options *options,
                             gpuserve_error *error)
{
    const char *certificate = options->tls_certificate_file;
    const char *key = options->tls_key_file ? options->tls_key_file : certificate;
    const char *client_ca = options->tls_client_ca_file;
    const char *client_crl = options->tls_client_crl_file;

    if (!certificate && client_ca)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "client certificates (--tls-client-ca) need TLS (--tls-cert)");
    if (client_crl && !client_ca)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "revocation lists (--tls-client-crl) need client CAs (--tls-client-ca)");
    if (!certificate && key)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "a TLS key (--tls-key) needs a certificate (--tls-cert)");
    if (!certificate)
        return GPUSERVE_OK;
    if (options->unix_path)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "a unix socket (--unix) does not support TLS (--tls-cert): its data does "
                        "not leave the machine");
    tls->certificate_file = gsv_copy_text(certificate, strlen(certificate));
    tls->key_file = gsv_copy_text(key, strlen(key));
    if (client_ca)
        tls->client_ca_file = gsv_copy_text(client_ca, strlen(client_ca));
    if (client_crl)
        tls->client_crl_file = gsv_copy_text(client_crl, strlen(client_crl));
    if (!tls->certificate_file || !tls->key_file || !tls->client_ca_file != !client_ca ||
        !tls->client_crl_file != !client_crl)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a file's name");
    return load(tls, error);
}

void gsv_tls_close(struct gsv_tls *tls)
{
    SSL_CTX_free(tls->context);
    free(tls->certificate_file);
    free(tls->key_file);
    free(tls->client_ca_file);
    free(tls->client_crl_file);
    tls->context = NULL;
    tls->certificate_file = tls->key_file = NULL;
    tls->client_ca_file = tls->client_crl_file = NULL;
}

gpuserve_status gsv_tls_reload(struct gsv_tls *tls, gpuserve_error *error)
{
    return gsv_tls_is_on(tls) ? load(tls, error) : GPUSERVE_OK;
}

bool gsv_tls_has_changed(struct gsv_tls *tls)
{
    const struct gsv_file_stamps now = look(tls);
    bool changed;

    pthread_mutex_lock(&tls->lock);
    changed = !same_stamps(&now, &tls->tried) && same_stamps(&now, &tls->seen);
    tls->seen = now;
    pthread_mutex_unlock(&tls->lock);
    return changed;
}
