/*
 * worker_threads.h - a thread pool for long steps: parsing a large body, writing a large reply.
 *
 * The event loop thread answers small requests itself, because a hand-over costs more than they do.
 * A long step would delay all other clients. So its connection is suspended and a worker thread
 * runs it.
 *
 * Backpressure: steps that produce long replies have their own queue. It stops while unread replies
 * exceed max_unread_bytes; otherwise some hundred clients that do not read would fill the memory
 * before they are detected. If the readers are many but too fast to be closed, one such step runs
 * every GSV_BACKPRESSURE_MS.
 */
#ifndef GSV_HTTP_WORKER_THREADS_H
#define GSV_HTTP_WORKER_THREADS_H

#include <gpuserve/types.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GSV_BACKPRESSURE_MS = 100 };

struct gsv_exchange;

struct gsv_worker_threads_queue {
    struct gsv_exchange *first, *last;
};

struct gsv_worker_threads {
    pthread_mutex_t lock;
    pthread_cond_t some; /* signalled when a queue has an exchange that may run, or at stop */
    struct gsv_worker_threads_queue queue, long_queue;
    uint64_t max_unread_bytes;
    uint64_t backpressure_ns;    /* when the last step of long_queue was started */
    _Atomic size_t unread_bytes; /* as reported by the event loop */
    _Atomic size_t made_bytes;   /* of replies not yet queued by the event loop */
    _Atomic bool postponed;      /* the head of long_queue waits for readers */
    pthread_t *threads;          /* [n_threads] */
    uint32_t n_threads;
    bool closed;
};

gpuserve_status gsv_worker_threads_start(struct gsv_worker_threads *workers, uint32_t n_threads,
                                         uint64_t max_unread_bytes, gpuserve_error *error);
/* Joins the threads; nothing may be added after this. Reports of unread bytes stay allowed */
void gsv_worker_threads_stop(struct gsv_worker_threads *workers);
/* until this call, which frees the pool. */
void gsv_worker_threads_reset(struct gsv_worker_threads *workers);

/* Runs gsv_dispatch_offload() on a worker thread. The connection is suspended or about to be. */
void gsv_worker_threads_add(struct gsv_worker_threads *workers, struct gsv_exchange *exchange);

/* Adds a new reply to made_bytes; */
void gsv_worker_threads_made(struct gsv_worker_threads *workers, struct gsv_exchange *exchange);
/* removes it when the event loop has queued it or the exchange ends. */
void gsv_worker_threads_taken_over(struct gsv_worker_threads *workers,
                                   struct gsv_exchange *exchange);

#endif
