/*
 * load_queue.h - a queue of slow operations: model loads and unloads, or checks of all models.
 *
 *   handler --add--> task (entry, kind, waiters) --> thread: gsv_models_load, _unload, _try
 *                                                                        --> waiters
 *
 * The server has one queue with one thread for loads, and another for checks. Request coalescing: a
 * request joins the last task of its model if the kind is equal, running or not. So equal requests
 * share one load, and the order of a model's loads and unloads is kept. A task that has not started
 * is dropped when its last waiter leaves; a running one completes. The first task starts the
 * thread. A waiter is an exchange whose connection is suspended or about to be.
 */
#ifndef GSV_HTTP_LOAD_QUEUE_H
#define GSV_HTTP_LOAD_QUEUE_H

#include <gpuserve/types.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { GSV_MAX_LOAD_TASKS = 64 };

struct gsv_entry;
struct gsv_exchange;
struct gsv_load_task;
struct gsv_models;

/* A check has no entry. */
enum gsv_load_kind { GSV_LOAD, GSV_UNLOAD, GSV_CHECK };

struct gsv_load_queue {
    pthread_mutex_t lock;   /* protects the fields below except the counters, and every waiter's
                               work.load and work.next_waiter */
    pthread_cond_t changed; /* a task was added, or the queue was closed */
    struct gsv_load_task *first; /* FIFO; the first task may be running */
    size_t n;
    struct gsv_models *models;
    pthread_t thread;
    bool is_started, is_closed;
    _Atomic unsigned long long n_loads, n_joined, n_cancelled; /* started; coalesced; dropped */
};

void gsv_load_queue_init(struct gsv_load_queue *queue, struct gsv_models *models);

/* Adds a waiter. A check appends its report to the reply and sets the `bool` at exchange->state.
 * GPUSERVE_OK: the work will complete, possibly before the return. GPUSERVE_E_BUSY: the queue is
 * full. GPUSERVE_E_CANCELLED: the queue is closed. */
gpuserve_status gsv_load_queue_add(struct gsv_load_queue *queue, struct gsv_exchange *exchange,
                                   struct gsv_entry *entry, enum gsv_load_kind kind,
                                   gpuserve_error *error);

/* The client disconnected: if the exchange is a waiter, completes its work with
 * GPUSERVE_E_CANCELLED. Call on a thread on which the exchange cannot end meanwhile. */
void gsv_load_queue_leave(struct gsv_load_queue *queue, struct gsv_exchange *exchange);

/* Drops all tasks except a running one, completes every waiter with GPUSERVE_E_CANCELLED, and
 * rejects new ones. */
void gsv_load_queue_close(struct gsv_load_queue *queue);

/* After gsv_load_queue_close(): joins the thread. */
void gsv_load_queue_join(struct gsv_load_queue *queue);

/* After gsv_load_queue_join(), when no client is left that could call gsv_load_queue_leave(). */
void gsv_load_queue_destroy(struct gsv_load_queue *queue);

#endif
