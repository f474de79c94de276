/*
 * server.h - a running server: its options, its models, its exchanges.
 */
#ifndef GSV_HTTP_SERVER_H
#define GSV_HTTP_SERVER_H

#include "lib/http/server/access_log.h"
#include "lib/http/protocol/worker_threads.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/net/event_loop.h"
#include "lib/http/protocol/api_keys.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/inference/model_registry.h"
#include "lib/http/net/tls.h"

#include <sys/un.h>

struct gpuserve_http {
    gpuserve_http_options options; /* complete: no field is left at "the default" */
    char address[128], host[64];
    struct sockaddr_un unix_address; /* sun_path is empty when it listens on a port */
    dev_t unix_device; /* of the socket's file, which is removed if it is still ours */
    ino_t unix_inode;
    int listener;
    struct MHD_Daemon *daemon;
    struct gsv_event_loop event_loop;
    struct gsv_worker_threads workers;
    struct gsv_models models;
    struct gsv_load_queue loads, checks;
    struct gsv_keys keys;
    struct gsv_access_log access_log;
    struct gsv_tls tls;
    char **origins; /* [n_origins] whose pages may ask */
    size_t n_origins;
    char **allowed_hosts; /* [n_allowed_hosts] */
    size_t n_allowed_hosts;
    char own_name[256]; /* of this machine */
    bool is_loopback;   /* the address that it listens on */
    uint64_t started_ns;
    uint64_t seed; /* of request names */
    _Atomic unsigned long long n_requests, n_reloads, n_failed_reloads;
    pthread_mutex_t reloading; /* one at a time */
    pthread_mutex_t asking;    /* itself: one at a time */

    _Atomic bool draining;
    pthread_mutex_t lock; /* over what follows, and the `request` of every exchange's work */
    pthread_cond_t idle;  /* a count has become 0 */
    struct gsv_exchange *exchanges;
    size_t n_exchanges;
    uint64_t crowded_ns;          /* when there was more than one last */
    size_t n_working;             /* exchanges whose connection is, or is about to be, suspended */
    bool stopping;                /* no work may begin */
    struct gsv_client **expected; /* [n_expected] by the number of libmicrohttpd's socket: clients
                                     whose connection it has not begun yet */
    size_t n_expected;
};

/* Nanoseconds of the monotonic clock. */
uint64_t gsv_http_now(void);

void gsv_http_log(const struct gpuserve_http *server, int32_t level, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Not draining, the default model is there and would compute what comes now, and no other model has
 * lost its device for good. False: `why` says why not. */
bool gsv_http_ready(struct gpuserve_http *server, gpuserve_error *why);

/* listen.c: a socket bound and listening; fills server->address. */
gpuserve_status gsv_http_listen(struct gpuserve_http *server, gpuserve_error *error);
/* Whether the options' address is one, and may be listened on. */
gpuserve_status gsv_http_check_address(const struct gpuserve_http *server, gpuserve_error *error);
void gsv_http_close_listener(struct gpuserve_http *server);

/* listen_unix.c: the same for a path. */
gpuserve_status gsv_http_listen_unix(struct gpuserve_http *server, const char *path,
                                     gpuserve_error *error);
void gsv_http_remove_socket(const struct gpuserve_http *server);

/* mhd_callbacks.c: libmicrohttpd's callbacks; `user` is the server. */
void *gsv_on_request_line(void *user, const char *target, struct MHD_Connection *connection);
enum MHD_Result gsv_on_request(void *user, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_size, void **context);
void gsv_on_connection(void *user, struct MHD_Connection *connection, void **context,
                       enum MHD_ConnectionNotificationCode what);
/* The socket that libmicrohttpd is about to get belongs to `client`. False: out of memory. */
bool gsv_connection_expect(struct gpuserve_http *server, int fd, struct gsv_client *client);
void gsv_on_completed(void *user, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode why);

#endif
