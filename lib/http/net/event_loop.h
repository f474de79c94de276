/*
 * event_loop.h - between clients and libmicrohttpd: nothing reaches that which framing.c has not
 * passed, and nobody is slow at the others' cost.
 *
 *   client socket <-> guard <-> socketpair <-> libmicrohttpd
 *
 * One thread at a time, with epoll, is all of this: it moves the bytes and runs libmicrohttpd,
 * which has no thread of its own. There are two threads for it: when nothing else is being
 * computed, the one that took a small request computes it too and writes the reply, while the other
 * waits for events in its place. So a request that comes alone changes threads nowhere on its way.
 *
 * libmicrohttpd's only time limit is one of inactivity, which a byte every few seconds outlives.
 * Here each header and each body has an absolute deadline and a body a least rate, in both
 * directions; one address has a limited number of connections; when all are taken the one that
 * waits longest is ended for a new one; and a few beyond all limits answer health checks. A
 * connection costs libmicrohttpd nothing before its first header has passed. A client that goes
 * away has its work cancelled.
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

/* One end of a connection, as epoll knows it. */
struct gsv_end {
    struct gsv_client *client;
    int fd; /* -1: closed, or not opened yet */
    uint32_t events;
    bool eof; /* nothing more comes from there */
};

struct gsv_client {
    struct gsv_event_loop *event_loop;
    struct gsv_client *next, *before;
    struct gsv_client *next_answered;
    bool is_answered;        /* in the list of those with a reply to read from libmicrohttpd */
    _Atomic int n_owners;    /* the guard, and libmicrohttpd once it has the connection */
    _Atomic int n_open;      /* requests passed on and not completed */
    struct gsv_end net, mhd; /* the client; libmicrohttpd */
    struct sockaddr_storage address;
    socklen_t address_size;

    struct gsv_framing framing;
    char *in; /* [GSV_HEADER_BYTES] from the client; NULL while empty */
    size_t in_begin, in_passed, in_end;
    char *out; /* for the client, what it did not take at once */
    size_t out_begin, out_end;

    uint64_t since_ns;    /* when the present wait began: for a first byte, a header, a body */
    uint64_t body_bytes;  /* since then */
    uint64_t stalled_ns;  /* since when the client takes less than it could; 0: it does not */
    uint64_t taken_bytes; /* since then */
    size_t held_bytes;    /* of a reply that libmicrohttpd has not written wholly */
    uint64_t linger_ns;   /* a refusal was sent: read and drop until then; 0: no */
    bool probation;       /* beyond max_connections: health checks only */
    bool waiting;         /* between two requests, no byte of the next is there */
    bool in_body;         /* of a request whose header was passed on */
    bool mhd_off; /* libmicrohttpd has closed; the rest of its bytes are read when there is room */
    bool ended;   /* of the guard's list: to be closed */
    bool is_last; /* a request was answered before its body, and that ends the connection */

    struct ssl_st *tls; /* NULL: bytes as they are */
    bool ready;         /* for HTTP: the handshake is over, or none is needed */
    bool tls_failed;    /* nothing more may be sent over it */
    bool reading_wants_out;

    /* Under the server's lock. */
    struct gsv_exchange *exchange;
    bool gone; /* the client has closed its side: work is in vain */
};

struct gsv_event_loop {
    struct gpuserve_http *server;
    pthread_t threads[GSV_EVENT_LOOP_THREADS];
    uint32_t n_threads;
    pthread_mutex_t loop;  /* over clients and libmicrohttpd: held by the guard's thread, whichever
                              it is, but for waiting and computing */
    pthread_cond_t follow; /* nobody waits for events, or this is the end */
    bool attended;         /* a thread waits for events, or handles them */
    bool is_done;          /* libmicrohttpd has nothing to do at once */
    uint32_t n_running;    /* threads */
    uint64_t last_tick_ns; /* when times were looked at last */
    struct gsv_exchange *lead; /* to be computed by the thread that holds the loop, once it is out
                                  of libmicrohttpd's calls */
    bool is_leading;           /* a thread computes */
    int epoll, wake;           /* eventfd */
    struct gsv_client *clients;
    size_t held_bytes; /* of all of them */
    _Atomic size_t n_clients;
    _Atomic bool draining, stopping;
    _Atomic uint64_t draining_ns; /* since when */
    _Atomic bool deaf;            /* the listener is closed: who came before is counted */
    uint64_t certificate_ns;      /* when the files of TLS were looked at last */
    char *scratch;                /* [GSV_SCRATCH_BYTES] one part on its way */
    struct gsv_client *answered;

    pthread_mutex_t lock;
    struct gsv_exchange *resumed; /* under the lock: connections to be resumed */
};

gpuserve_status gsv_event_loop_start(struct gsv_event_loop *event_loop,
                                     struct gpuserve_http *server, gpuserve_error *error);
/* Take no new connections; those without an unanswered request are closed. */
void gsv_event_loop_drain(struct gsv_event_loop *event_loop);
/* Close all, end the threads. */
void gsv_event_loop_stop(struct gsv_event_loop *event_loop);

/* From any thread: resume the exchange's connection. The exchange may be gone on return. */
void gsv_event_loop_resume(struct gsv_event_loop *event_loop, struct gsv_exchange *exchange);
/* On its own thread: libmicrohttpd has written a reply for this client. */
void gsv_event_loop_answered(struct gsv_client *client);

/* mhd_bridge.c */
void gsv_event_loop_wake(struct gsv_event_loop *event_loop);
/* Whether the thread that has the loop may compute a small job itself: the other one is there to
 * wait for events. */
bool gsv_event_loop_may_run_inline(const struct gsv_event_loop *event_loop);
/* With the loop: compute what it shall, without it meanwhile, and pass the reply on. */
void gsv_event_loop_run_inline(struct gsv_event_loop *event_loop);
/* On the guard's thread: let libmicrohttpd take what is there for it. False: it has more to do at
 * once. */
bool gsv_event_loop_run_mhd(struct gsv_event_loop *event_loop);

/* One owner less; the last one frees it. */
void gsv_client_release(struct gsv_client *client);

/* connection_io.c: what the guard's thread does with one client. */
void gsv_client_event(struct gsv_client *client, struct gsv_end *end, uint32_t events);
void gsv_client_check_time(struct gsv_client *client, uint64_t now_ns);
/* timeouts.c: when replies that nobody takes fill too much memory, end the slowest takers. */
void gsv_clients_relieve(struct gsv_event_loop *event_loop, uint64_t now_ns);
/* A reply of so many bytes waits for this client, or, with 0, none any more. */
void gsv_client_hold(struct gsv_client *client, size_t bytes);
/* `limit`: what was exceeded, in `unit` and with its flag; 0: there is none. The texts outlive it.
 */
void gsv_client_refuse(struct gsv_client *client, unsigned status, const char *reason,
                       uint64_t limit, const char *unit);
void gsv_client_close(struct gsv_client *client);
/* While draining: close it if no request of it is unanswered and none has begun. */
void gsv_client_drain(struct gsv_client *client);

#endif
