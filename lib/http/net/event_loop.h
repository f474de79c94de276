/*
 * event_loop.h - the event loop: moves bytes between clients and libmicrohttpd, enforces limits.
 *
 *   client socket <-> event loop <-> socketpair <-> libmicrohttpd
 *
 * Invariant: libmicrohttpd receives only bytes that framing.c has accepted.
 *
 * Threading: a leader and a follower. The thread that holds `loop` moves the bytes and also runs
 * libmicrohttpd, which has no thread of its own. If no other job is being computed, the leader
 * computes a small request inline and writes the reply. The follower handles what arrives meanwhile
 * and sleeps otherwise. A request that arrives alone never changes threads and wakes none.
 *
 * Limits: libmicrohttpd has only an inactivity timeout, which one byte every few seconds defeats.
 * The event loop gives each header and body an absolute deadline, and each body and reply a minimum
 * rate. It limits the connections of one address. When all connections are taken, a new one evicts
 * the one that has been idle longest. A small reserve beyond the limit serves health checks only.
 * A connection costs libmicrohttpd nothing until its first header is accepted. When a client
 * disconnects, its work is cancelled.
 */
#ifndef GSV_HTTP_EVENT_LOOP_H
#define GSV_HTTP_EVENT_LOOP_H

#include "lib/http/net/framing.h"

#include <gpuserve/types.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { GSV_SCRATCH_BYTES = 64 * 1024, GSV_EVENT_LOOP_THREADS = 2 };

struct gpuserve_http;
struct gsv_exchange;
struct gsv_event_loop;

/* One end of a connection; epoll's user data. */
struct gsv_end {
    struct gsv_client *client;
    int fd; /* -1: closed or not yet open */
    uint32_t events;
    bool eof; /* no more input */
};

struct gsv_client {
    struct gsv_event_loop *event_loop;
    struct gsv_client *next, *before;
    struct gsv_client *next_answered;
    bool is_answered;        /* in the event loop's list of clients that have a reply to read from
                                libmicrohttpd */
    _Atomic int n_owners;    /* the event loop, and libmicrohttpd while it has the connection */
    _Atomic int n_open;      /* requests passed to libmicrohttpd and not completed */
    struct gsv_end net, mhd; /* socket of the client; socket to libmicrohttpd */
    struct sockaddr_storage address;
    socklen_t address_size;

    struct gsv_framing framing;
    char *in; /* [GSV_HEADER_BYTES] from the client; NULL while empty */
    size_t in_begin, in_passed, in_end;
    char *out; /* bytes that the client has not accepted yet */
    size_t out_begin, out_end;

    uint64_t since_ns;    /* start of the current wait: for a first byte, a header or a body */
    uint64_t body_bytes;  /* since since_ns */
    uint64_t stalled_ns;  /* when the client's output buffer filled; 0: it is empty */
    uint64_t taken_bytes; /* since stalled_ns */
    size_t held_bytes;    /* of a reply that libmicrohttpd has not fully written */
    size_t request_bytes; /* of a request whose streamed reply is not complete */
    uint64_t linger_ns;   /* a rejection was sent: read and drop input until this time; 0: no */
    bool probation;       /* over max_connections: may send health checks only */
    bool waiting;         /* idle between two requests: no byte of the next one has arrived */
    bool in_body;         /* the header was passed on, the body is not complete */
    bool mhd_off; /* libmicrohttpd has closed; its last bytes are read when `out` is empty */
    bool ended;   /* closed; sweep() removes it from the event loop's list */
    bool is_last; /* a request was answered before its body; that reply ends the connection */

    struct ssl_st *tls; /* NULL: plain TCP */
    bool ready;         /* handshake complete, or not needed */
    bool tls_failed;    /* the session must send no more */
    bool reading_wants_out;

    /* Protected by the server's lock. */
    struct gsv_exchange *exchange;
    bool gone; /* the client closed its side: its work is useless */
};

struct gsv_event_loop {
    struct gpuserve_http *server;
    pthread_t threads[GSV_EVENT_LOOP_THREADS];
    uint32_t n_threads;
    pthread_mutex_t loop; /* protects clients and libmicrohttpd; the leader holds it except while
                             waiting and computing */
    bool is_done;         /* libmicrohttpd has no immediate work */
    bool is_tick;         /* timeouts are to be checked */
    struct gsv_exchange *lead; /* to be computed inline by the leader, after libmicrohttpd's calls
                                  return */
    bool is_leading;           /* the leader computes inline */
    int epoll;
    int follower;    /* an epoll set of `epoll` alone; see gsv_event_loop_watch() */
    int wake, timer; /* an eventfd; a timerfd for timeouts */
    struct gsv_client *clients;
    bool has_ended;    /* one of them has, and is to be removed */
    size_t held_bytes; /* sum over all clients */
    _Atomic size_t n_clients;
    _Atomic bool draining, stopping;
    _Atomic uint64_t draining_ns; /* start of draining */
    _Atomic bool deaf;            /* the listener is closed: every client is in n_clients */
    uint64_t certificate_ns;      /* when the TLS files were last checked */
    char *scratch;                /* [GSV_SCRATCH_BYTES] one chunk in transfer */
    struct gsv_client *answered;

    pthread_mutex_t lock;
    struct gsv_exchange *resumed; /* protected by `lock`: connections to be resumed */
};

gpuserve_status gsv_event_loop_start(struct gsv_event_loop *event_loop,
                                     struct gpuserve_http *server, gpuserve_error *error);
/* Stops accepting connections and closes those without an unanswered request. */
void gsv_event_loop_drain(struct gsv_event_loop *event_loop);
/* Closes all connections and joins the threads. */
void gsv_event_loop_stop(struct gsv_event_loop *event_loop);

/* From any thread: resumes the exchange's connection. The exchange may be freed on return. */
void gsv_event_loop_resume(struct gsv_event_loop *event_loop, struct gsv_exchange *exchange);
/* On the event loop thread: libmicrohttpd has written a reply for this client. */
void gsv_event_loop_answered(struct gsv_client *client);

/* mhd.c */
void gsv_event_loop_wake(struct gsv_event_loop *event_loop);
/* True if the thread that holds `loop` is the leader, which may compute a small job inline. */
bool gsv_event_loop_may_run_inline(const struct gsv_event_loop *event_loop);
/* Sets the events of `epoll` that wake the follower: EPOLLIN | EPOLLONESHOT: the next one; EPOLLIN:
 * any; 0: none. */
void gsv_event_loop_watch(struct gsv_event_loop *event_loop, uint32_t events);
/* Called with `loop` held. Releases it while computing `lead`, then passes the reply on. */
void gsv_event_loop_run_inline(struct gsv_event_loop *event_loop);
/* On the event loop thread: runs libmicrohttpd for ready input. False: it has more immediate work.
 */
bool gsv_event_loop_run_mhd(struct gsv_event_loop *event_loop);

/* Drops one reference; the last one frees the client. */
void gsv_client_release(struct gsv_client *client);

/* connection.c: handles the events of one client. */
void gsv_client_event(struct gsv_client *client, struct gsv_end *end, uint32_t events);
/* Records the size of the reply that waits for this client; 0: none. */
void gsv_client_hold(struct gsv_client *client, size_t bytes);
/* timeouts.c: applies the time limits of one client. */
void gsv_client_check_time(struct gsv_client *client, uint64_t now_ns);
/* Backpressure by eviction: while unread replies exceed max_unread_bytes, closes the slowest
 * readers. */
void gsv_clients_relieve(struct gsv_event_loop *event_loop, uint64_t now_ns);
/* `limit`: the exceeded limit, `unit`: its unit and flag; limit 0: none. The strings must outlive
 * the client. */
void gsv_client_refuse(struct gsv_client *client, unsigned status, const char *reason,
                       uint64_t limit, const char *unit);
void gsv_client_close(struct gsv_client *client);
/* While draining: closes the client if it has no unanswered request and none has begun. */
void gsv_client_drain(struct gsv_client *client);

/* connection_limits.c: the number of connections of a client's address. */
size_t gsv_connections_of_address(const struct gsv_event_loop *event_loop,
                                  const struct sockaddr_storage *address);
/* The client idle longest without an unanswered request, or NULL. Includes reserved connections
 * only if `with_reserved`, that is when descriptors are short. */
struct gsv_client *gsv_connections_idle(const struct gsv_event_loop *event_loop,
                                        bool with_reserved);
/* Makes capacity for one client, evicting an idle one if needed. False: only a health check may
 * pass. */
bool gsv_connections_make_capacity(struct gsv_event_loop *event_loop);
/* Makes capacity for a reserved connection, which serves health checks. */
bool gsv_connections_make_reserved(struct gsv_event_loop *event_loop);

#endif
