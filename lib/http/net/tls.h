/*
 * tls.h - TLS between a client and the guard: certificates that may change while the server runs,
 * and one session a connection.
 *
 * A session keeps the certificate it began with, so a change touches no connection there is. All
 * of a session is the guard's thread's; certificates may be exchanged from any thread.
 */
#ifndef GSV_HTTP_TLS_H
#define GSV_HTTP_TLS_H

#include <gpuserve/http.h>

#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct ssl_st;
struct ssl_ctx_st;

/* A file as it was last looked at. */
struct gsv_file_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct gsv_file_stamps {
    struct gsv_file_stamp certificate, key, client_ca, client_crl;
};

struct gsv_tls {
    char *certificate_file, *key_file; /* NULL: the server speaks plain HTTP */
    char *client_ca_file;              /* NULL: clients are not asked for certificates */
    char *client_crl_file;             /* NULL: nor for lists of revoked ones */
    pthread_mutex_t lock;              /* over what follows */
    struct ssl_ctx_st *context;
    struct gsv_file_stamps tried, seen; /* the files of the last attempt; of the last look */
    /* Our own end of a connection to ourselves, and the server's; own_size is 0 while there is
     * none.
     */
    struct sockaddr_storage own, own_peer;
    socklen_t own_size;
    _Atomic long long not_after; /* the certificate's end, in seconds since 1970 */
    _Atomic unsigned long long n_failed_handshakes;
};

/* ------------------------------------------------------------------------------- tls.c */

static inline bool gsv_tls_is_on(const struct gsv_tls *tls)
{
    return tls->certificate_file != NULL;
}

/* The lock is initialized before. Nothing to do without a certificate. */
gpuserve_status gsv_tls_open(struct gsv_tls *tls, const gpuserve_http_options *options,
                             gpuserve_error *error);
void gsv_tls_close(struct gsv_tls *tls);
/* Read the files again. What fails leaves the certificate as it was. */
gpuserve_status gsv_tls_reload(struct gsv_tls *tls, gpuserve_error *error);
/* Whether the files have changed, and have stayed the same since the last call: two files cannot be
 * replaced in one step, so between the two nothing is read. */
bool gsv_tls_has_changed(struct gsv_tls *tls);

/* ----------------------------------------------------------------------- tls_session.c */

/* A server's side on a socket that does not block; NULL: out of memory. */
struct ssl_st *gsv_tls_session(struct gsv_tls *tls, int fd);
/* The server's side of this connected socket shall ask for no certificate; -1: of none any more. */
void gsv_tls_expect_own(struct gsv_tls *tls, int fd);
void gsv_tls_session_free(struct ssl_st *session); /* accepts NULL */

/* What all calls on a session return beside a number of bytes. */
enum { GSV_TLS_END = 0, GSV_TLS_WANTS_IN = -1, GSV_TLS_WANTS_OUT = -2, GSV_TLS_FAILED = -3 };

enum { GSV_TLS_REASON_BYTES = 160 };

/* 1: done. With GSV_TLS_FAILED `reason` says why, in OpenSSL's words. */
int gsv_tls_handshake(struct ssl_st *session, char reason[GSV_TLS_REASON_BYTES]);
/* GSV_TLS_END: the client has said that nothing more comes, or has closed its side. */
ssize_t gsv_tls_read(struct ssl_st *session, char *to, size_t size);
/* Offered again after GSV_TLS_WANTS_*, the bytes must be the same, wherever they lie. */
ssize_t gsv_tls_write(struct ssl_st *session, const char *bytes, size_t size);
/* Bytes that were received, and that epoll does not tell of. */
bool gsv_tls_has_more(const struct ssl_st *session);
/* Tells the client that nothing more comes, as far as the socket takes it at once. */
void gsv_tls_end(struct ssl_st *session);

#endif
