/*
 * worker_threads.h - threads for what takes long: parsing a large body, writing a large reply.
 *
 * The guard's thread reads and writes for all clients, and answers small requests itself: each
 * hand-over costs more than they do. A large one would keep all others waiting, so its connection
 * is suspended and a thread of the crew takes the step.
 *
 * Steps that make a long reply stay in a queue of their own while those that nobody has read yet
 * fill max_unread_bytes: some hundred clients that ask and do not read would fill the memory faster
 * than they can be found out. Should these readers be many and not slow enough to be ended, one
 * step goes on each GSV_BACKPRESSURE_MS.
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
    pthread_cond_t some; /* there is an exchange to take, or no more will come */
    struct gsv_worker_threads_queue queue, long_queue;
    uint64_t max_unread_bytes;
    uint64_t backpressure_ns;    /* when a step of the long queue was taken last */
    _Atomic size_t unread_bytes; /* as the guard has told */
    _Atomic size_t made_bytes;   /* of replies that the guard has not taken over yet */
    _Atomic bool postponed;      /* something is in the long queue that waits for readers */
    pthread_t *threads;          /* [n_threads] */
    uint32_t n_threads;
    bool closed;
};

gpuserve_status gsv_worker_threads_start(struct gsv_worker_threads *workers, uint32_t n_threads,
                                         uint64_t max_unread_bytes, gpuserve_error *error);
/* End the threads: nothing may be given any more. What the guard tells is still heard, */
void gsv_worker_threads_stop(struct gsv_worker_threads *workers);
/* until here. */
void gsv_worker_threads_reset(struct gsv_worker_threads *workers);

/* gsv_dispatch_offload() on a thread of the crew. Its connection is suspended, or about to be. */
void gsv_worker_threads_add(struct gsv_worker_threads *workers, struct gsv_exchange *exchange);

/* How many bytes of replies wait for readers; told from time to time, which also ends patience. */
void gsv_worker_threads_tell_unread(struct gsv_worker_threads *workers, size_t n_bytes);
/* The reply that a thread of the crew has just made counts, */
void gsv_worker_threads_made(struct gsv_worker_threads *workers, struct gsv_exchange *exchange);
/* until the guard has it, or nobody will read it. */
void gsv_worker_threads_taken_over(struct gsv_worker_threads *workers,
                                   struct gsv_exchange *exchange);

#endif
