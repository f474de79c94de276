/*
 * server_state.h - the state of one running server, for every layer of lib/http.
 *
 * Ownership: gpuserve_http_start() creates it, gpuserve_http_stop() frees it. `options` is
 * read-only after the start. The sub-objects have their own locks; the fields after `lock` are
 * protected by it. The parts of higher layers are pointers to types that these layers define, so
 * that includes never go up; server.c allocates them with this struct.
 */
#ifndef GSV_HTTP_SERVER_STATE_H
#define GSV_HTTP_SERVER_STATE_H

#include "lib/http/net/event_loop.h"
#include "lib/http/net/tls.h"

#include <gpuserve/http.h>

#include <microhttpd.h>
#include <sys/un.h>

struct gsv_access_log;
struct gsv_batch_jobs;
struct gsv_exchange;
struct gsv_idle;
struct gsv_keys;
struct gsv_load_queue;
struct gsv_models;
struct gsv_traces;
struct gsv_worker_threads;

struct gpuserve_http {
    gpuserve_http_options options; /* complete: defaults are filled in */
    char address[128], host[64];
    struct sockaddr_un unix_address; /* sun_path is empty when listening on a port */
    dev_t unix_device; /* identifies the socket file, which is removed only if unchanged */
    ino_t unix_inode;
    int listener;
    struct MHD_Daemon *daemon;
    struct gsv_event_loop event_loop;
    struct gsv_tls tls;
    /* Owned by higher layers. */
    struct gsv_worker_threads *workers;
    struct gsv_models *models;
    struct gsv_load_queue *loads, *checks;
    struct gsv_idle *idle_models;
    struct gsv_keys *keys;
    struct gsv_access_log *access_log;
    struct gsv_batch_jobs *batches; /* NULL: no batch_dir */
    struct gsv_traces *traces;      /* NULL: no endpoint */

    bool has_keys;  /* at the start: requests need an API key */
    char **origins; /* [n_origins] allowed for CORS */
    size_t n_origins;
    char **allowed_hosts; /* [n_allowed_hosts] */
    size_t n_allowed_hosts;
    char *predict_route, *health_route; /* further paths of /vertex and /health, or NULL */
    uint32_t dialects;                  /* set of gsv_route_dialects() */
    char *openapi;                      /* [openapi_size] document of these dialects; NULL: all */
    size_t openapi_size;
    char own_name[256]; /* host name of this machine */
    bool is_loopback;   /* the listening address is a loopback address */
    uint64_t started_ns;
    uint64_t seed; /* random; part of request ids */
    _Atomic unsigned long long n_requests, n_reloads, n_failed_reloads;
    pthread_mutex_t reloading; /* serializes reloads */
    pthread_mutex_t asking;    /* serializes self-checks */

    _Atomic bool draining;
    pthread_mutex_t lock; /* protects the fields below, and `work.request` of every exchange */
    pthread_cond_t idle;  /* signalled when exchanges, n_working or clients drop to 0, and when the
                             listener closes */
    struct gsv_exchange *exchanges;
    size_t n_exchanges;
    uint64_t crowded_ns;          /* when n_exchanges was last above 1 */
    size_t n_working;             /* exchanges whose connection is suspended or about to be */
    bool stopping;                /* no new work may start */
    struct gsv_client **expected; /* [n_expected] indexed by libmicrohttpd's socket: clients whose
                                     connection it has not started */
    size_t n_expected;
};

void gsv_http_log(const struct gpuserve_http *server, int32_t level, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* listen.c: creates the listening socket and fills server->address. */
gpuserve_status gsv_http_listen(struct gpuserve_http *server, gpuserve_error *error);
/* Checks that the options' address is valid and may be listened on. */
gpuserve_status gsv_http_check_address(const struct gpuserve_http *server, gpuserve_error *error);
void gsv_http_close_listener(struct gpuserve_http *server);

/* listen_unix.c: the same for a unix socket path. */
gpuserve_status gsv_http_listen_unix(struct gpuserve_http *server, const char *path,
                                     gpuserve_error *error);
void gsv_http_remove_socket(const struct gpuserve_http *server);

/* Implemented one layer above. */

/* mhd.c: registers `client` as the owner of the socket that libmicrohttpd is about to
 * get. False: out of memory. */
bool gsv_connection_expect(struct gpuserve_http *server, int fd, struct gsv_client *client);
/* web_ui.c: makes server->openapi for a server that leaves out dialects. */
gpuserve_status gsv_http_make_document(struct gpuserve_http *server, gpuserve_error *error);
/* worker_threads.c: reports the unread reply bytes. Called on every turn of the event loop, which
 * also ends backpressure. */
void gsv_http_tell_unread(struct gpuserve_http *server, size_t n_bytes);

#endif
