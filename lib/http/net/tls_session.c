/*
 * tls_session.c - TLS of one connection over its non-blocking socket.
 *
 * Each call maps OpenSSL's result to a byte count or GSV_TLS_* and empties the error queue. The
 * thread of a session blocks SIGPIPE: OpenSSL's socket writes raise it when the other side has
 * disconnected.
 */
#include "lib/http/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Reads both addresses of a socket. False: not available. */
static bool read_ends(int fd, struct sockaddr_storage *own, struct sockaddr_storage *peer,
                      socklen_t *size)
{
    socklen_t peer_size = sizeof(*peer);

    *own = *peer = (struct sockaddr_storage){ 0 };
    *size = sizeof(*own);
    return getsockname(fd, (struct sockaddr *)own, size) == 0 &&
           getpeername(fd, (struct sockaddr *)peer, &peer_size) == 0 && peer_size == *size;
}

void gsv_tls_expect_own(struct gsv_tls *tls, int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t size;
    const bool is_there = read_ends(fd, &own, &peer, &size);

    pthread_mutex_lock(&tls->lock);
    tls->own_size = is_there ? size : 0;
    tls->own = own;
    tls->own_peer = peer;
    pthread_mutex_unlock(&tls->lock);
}

/* True if the client is this server's own self-check. Called with the lock held. */
static bool is_own(const struct gsv_tls *tls, int fd)
{
    struct sockaddr_storage ours, theirs;
    socklen_t size;

    return tls->own_size > 0 && read_ends(fd, &ours, &theirs, &size) && size == tls->own_size &&
           memcmp(&ours, &tls->own_peer, size) == 0 && memcmp(&theirs, &tls->own, size) == 0;
}

struct ssl_st *gsv_tls_session(struct gsv_tls *tls, int fd)
{
    SSL *session;

    pthread_mutex_lock(&tls->lock);
    session = SSL_new(tls->context);
    if (session && is_own(tls, fd))
        SSL_set_verify(session, SSL_VERIFY_NONE, NULL);
    pthread_mutex_unlock(&tls->lock);
    if (session && SSL_set_fd(session, fd) != 1) {
        SSL_free(session);
        session = NULL;
    }
    if (session)
        SSL_set_accept_state(session);
    ERR_clear_error();
    return session;
}

void gsv_tls_session_free(struct ssl_st *session)
{
    SSL_free(session);
}

void gsv_tls_block_sigpipe(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Maps the result of a call that did not succeed. */
static int outcome(SSL *session, int result)
{
    switch (SSL_get_error(session, result)) {
    case SSL_ERROR_WANT_READ:
        return GSV_TLS_WANTS_IN;
    case SSL_ERROR_WANT_WRITE:
        return GSV_TLS_WANTS_OUT;
    case SSL_ERROR_ZERO_RETURN:
        return GSV_TLS_END;
    default:
        return GSV_TLS_FAILED;
    }
}

/* Includes the verification error of a certificate. */
static void tell_reason(const SSL *session, char reason[GSV_TLS_REASON_BYTES])
{
    const unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    const long verified = SSL_get_verify_result(session);

    snprintf(reason, GSV_TLS_REASON_BYTES, "%s%s%s",
             text                     ? text
             : SSL_is_server(session) ? "the client closed the connection"
                                      : "the server closed the connection",
             verified == X509_V_OK ? "" : ": ",
             verified == X509_V_OK ? "" : X509_verify_cert_error_string(verified));
}

int gsv_tls_handshake(struct ssl_st *session, char reason[GSV_TLS_REASON_BYTES])
{
    int result;

    ERR_clear_error();
    result = SSL_do_handshake(session);
    if (result == 1)
        return 1;
    result = outcome(session, result);
    if (result == GSV_TLS_END)
        result = GSV_TLS_FAILED;
    if (result == GSV_TLS_FAILED)
        tell_reason(session, reason);
    ERR_clear_error();
    return result;
}

ssize_t gsv_tls_read(struct ssl_st *session, char *to, size_t size)
{
    size_t n = 0;
    int result;

    ERR_clear_error();
    result = SSL_read_ex(session, to, size, &n);
    if (result == 1)
        return (ssize_t)n;
    result = outcome(session, result);
    ERR_clear_error();
    return result;
}

ssize_t gsv_tls_write(struct ssl_st *session, const char *bytes, size_t size)
{
    size_t n = 0;
    int result;

    ERR_clear_error();
    result = SSL_write_ex(session, bytes, size, &n);
    if (result == 1)
        return (ssize_t)n;
    result = outcome(session, result);
    ERR_clear_error();
    return result == GSV_TLS_END ? GSV_TLS_FAILED : result;
}

bool gsv_tls_has_more(const struct ssl_st *session)
{
    return SSL_pending(session) > 0;
}

void gsv_tls_end(struct ssl_st *session)
{
    ERR_clear_error();
    SSL_shutdown(session);
    ERR_clear_error();
}

/*
 * PEM helpers over OpenSSL's error queue, which belongs to the calling thread.
 *
 * The functions that report a reason or the end of a file empty the queue, so that old errors do
 * not show up in later calls.
 */

const char *gsv_tls_reason(void)
{
    const unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return text ? text : "unknown error";
}

int gsv_pem_refuse_passphrase(char *to, int size, int writing, void *asked)
{
    (void)to;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

bool gsv_pem_is_at_end(void)
{
    const unsigned long code = ERR_peek_last_error();
    const bool at_end =
        ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;

    if (at_end)
        ERR_clear_error();
    return at_end;
}
