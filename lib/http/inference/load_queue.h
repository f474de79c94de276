/*
 * load_queue.h - what clients ask for that takes long and is no job: loads and unloads of models,
 * and checks of all models. One queue with one thread for loads, another one for checks.
 *
 *   handler --add--> task (entry, kind, waiters) --> thread: gsv_models_load, _unload, _try -->
 * waiters
 *
 * A request joins the last task of its model if that is of the same kind, running or not: equal
 * requests share one load, and the order of a model's loads and unloads stays. A task that has not
 * begun is dropped when its last waiter leaves; a running one ends by itself. The thread starts
 * with the first task. A waiter is an exchange whose connection is, or is about to be, suspended.
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
    pthread_mutex_t lock;        /* over what follows but the counters, and every waiter's
                                    work.load and work.next_waiter */
    pthread_cond_t changed;      /* a task was added, or the queue was closed */
    struct gsv_load_task *first; /* in order; the first may be running */
    size_t n;
    struct gsv_models *models;
    pthread_t thread;
    bool is_started, is_closed;
    _Atomic unsigned long long n_loads, n_joined, n_cancelled; /* begun; requests; tasks dropped */
};

void gsv_load_queue_init(struct gsv_load_queue *queue, struct gsv_models *models);

/* Add a waiter. A check appends its report to the reply and sets the `bool` at exchange->state.
 * GPUSERVE_OK: its work will complete, maybe before this returns. GPUSERVE_E_BUSY: too
 * many tasks wait. GPUSERVE_E_CANCELLED: the queue is closed. */
gpuserve_status gsv_load_queue_add(struct gsv_load_queue *queue, struct gsv_exchange *exchange,
                                   struct gsv_entry *entry, enum gsv_load_kind kind,
                                   gpuserve_error *error);

/* The exchange's client has left: if it is a waiter its work completes with GPUSERVE_E_CANCELLED.
 * On a thread on which the exchange cannot end meanwhile. */
void gsv_load_queue_leave(struct gsv_load_queue *queue, struct gsv_exchange *exchange);

/* Drop all tasks but a running one, complete every waiter's work with GPUSERVE_E_CANCELLED, accept
 * no more. */
void gsv_load_queue_close(struct gsv_load_queue *queue);

/* After gsv_load_queue_close(): wait for the thread. */
void gsv_load_queue_join(struct gsv_load_queue *queue);

/* After gsv_load_queue_join(), when there is no client more that could leave. */
void gsv_load_queue_destroy(struct gsv_load_queue *queue);

#endif
