/*
 * tls.h - TLS between a client and the event loop: a reloadable certificate, one session per
 * connection. Sessions to other servers.
 *
 * A session keeps the certificate it started with, so a reload does not affect open connections.
 * Sessions belong to one thread, that of the event loop or of an exporter, which blocks SIGPIPE.
 * gsv_tls_reload() may run on any thread.
 */
#ifndef GSV_HTTP_TLS_H
#define GSV_HTTP_TLS_H

#include <gpuserve/http.h>
#include <gpuserve/types.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct ssl_st;
struct ssl_ctx_st;

/* Identity of a file at the last check. */
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
    char *client_ca_file;              /* NULL: clients need no certificate */
    char *client_crl_file;             /* NULL: no revocation lists */
    pthread_mutex_t lock;              /* protects the fields below */
    struct ssl_ctx_st *context;
    struct gsv_file_stamps tried, seen; /* stamps at the last load; at the last check */
    /* The self-check's end of its own connection, and the server's end; own_size is 0 while no
     * self-check runs. */
    struct sockaddr_storage own, own_peer;
    socklen_t own_size;
    _Atomic long long not_after; /* end of the certificate's validity, in seconds since 1970 */
    _Atomic unsigned long long n_failed_handshakes;
};

/* ------------------------------------------------------------------------------- tls.c */

static inline bool gsv_tls_is_on(const struct gsv_tls *tls)
{
    return tls->certificate_file != NULL;
}

/* `lock` must be initialized. Without a certificate this does nothing. */
gpuserve_status gsv_tls_open(struct gsv_tls *tls, const gpuserve_http_options *options,
                             gpuserve_error *error);
void gsv_tls_close(struct gsv_tls *tls);
/* Reads the files again. On failure the certificate stays unchanged. */
gpuserve_status gsv_tls_reload(struct gsv_tls *tls, gpuserve_error *error);
/* True if the files changed since the last load and are stable since the last call. Two files
 * cannot be replaced atomically, so files that still change are not read. */
bool gsv_tls_has_changed(struct gsv_tls *tls);

/* ----------------------------------------------------------------------- tls_session.c */

/* Server side of a session on a non-blocking socket; NULL: out of memory. */
struct ssl_st *gsv_tls_session(struct gsv_tls *tls, int fd);
/* The session on the server's end of this connected socket requests no client certificate; -1:
 * clears this. */
void gsv_tls_expect_own(struct gsv_tls *tls, int fd);
void gsv_tls_session_free(struct ssl_st *session); /* accepts NULL */
/* A write to a closed connection then fails with EPIPE and does not end the process by SIGPIPE. */
void gsv_tls_block_sigpipe(void);

/* Results of all session calls besides a byte count. */
enum { GSV_TLS_END = 0, GSV_TLS_WANTS_IN = -1, GSV_TLS_WANTS_OUT = -2, GSV_TLS_FAILED = -3 };

enum { GSV_TLS_REASON_BYTES = 160 };

/* Returns 1 when complete. On GSV_TLS_FAILED `reason` holds OpenSSL's reason. */
int gsv_tls_handshake(struct ssl_st *session, char reason[GSV_TLS_REASON_BYTES]);
/* GSV_TLS_END: the client sent close_notify or closed its side. */
ssize_t gsv_tls_read(struct ssl_st *session, char *to, size_t size);
/* A retry after GSV_TLS_WANTS_* must pass the same bytes; their address may differ. */
ssize_t gsv_tls_write(struct ssl_st *session, const char *bytes, size_t size);
/* True if received bytes are buffered where epoll does not report them. */
bool gsv_tls_has_more(const struct ssl_st *session);
/* Sends close_notify if the socket accepts it at once. */
void gsv_tls_end(struct ssl_st *session);

/* ------------------------------------------------------------------------------ tls_outgoing.c */

/* A context for sessions to other servers. `authorities_file`: a PEM file of the CA certificates
 * that are trusted; NULL: those of OpenSSL's default paths. GPUSERVE_E_INVALID: it cannot be read.
 */
gpuserve_status gsv_tls_outgoing_open(struct ssl_ctx_st **context, const char *authorities_file,
                                      gpuserve_error *error);
void gsv_tls_outgoing_close(struct ssl_ctx_st **context); /* accepts a NULL context */
/* The client's side of a session on a non-blocking socket. The other side's certificate must be of
 * `host`, a name or an address. NULL: out of memory. */
struct ssl_st *gsv_tls_outgoing_session(struct ssl_ctx_st *context, int fd, const char *host);

/*
 * PEM helpers and the client certificate functions that tls.c calls.
 *
 * Threading: OpenSSL's error queue belongs to the calling thread.
 */

struct bio_st;
struct ssl_ctx_st;

/* ------------------------------------------------------------------------------- tls_session.c */

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
