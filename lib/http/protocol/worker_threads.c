/*
 * worker_threads.c - the thread pool: two FIFO queues under one lock, and backpressure.
 *
 * `queue` holds short replies, `long_queue` steps that write long ones. next() serves the earlier
 * of the two heads, and long_queue only while unread and new replies fit max_unread_bytes, or every
 * GSV_BACKPRESSURE_MS.
 */
#include "lib/http/protocol/worker_threads.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- queues */

static void put(struct gsv_worker_threads_queue *queue, struct gsv_exchange *exchange)
{
    exchange->queued = NULL;
    if (queue->first)
        queue->last->queued = exchange;
    else
        queue->first = exchange;
    queue->last = exchange;
}

static struct gsv_exchange *first_of(struct gsv_worker_threads_queue *queue)
{
    struct gsv_exchange *exchange = queue->first;

    if (exchange)
        queue->first = exchange->queued;
    return exchange;
}

static bool has_capacity(struct gsv_worker_threads *workers)
{
    const size_t unread = atomic_load(&workers->unread_bytes) + atomic_load(&workers->made_bytes);

    return workers->closed || unread <= workers->max_unread_bytes ||
           gsv_now_ns() - workers->backpressure_ns > GSV_BACKPRESSURE_MS * UINT64_C(1000000);
}

/* The earlier queue head that may run, or NULL. Called with the lock held. */
static struct gsv_exchange *next(struct gsv_worker_threads *workers)
{
    const struct gsv_exchange *prompt = workers->queue.first, *slow = workers->long_queue.first;
    const bool may = slow && has_capacity(workers);

    atomic_store(&workers->postponed, slow && !may);
    if (!may || (prompt && prompt->received_ns <= slow->received_ns))
        return first_of(&workers->queue);
    workers->backpressure_ns = gsv_now_ns();
    return first_of(&workers->long_queue);
}

static struct gsv_exchange *take(struct gsv_worker_threads *workers)
{
    struct gsv_exchange *exchange;

    pthread_mutex_lock(&workers->lock);
    while ((exchange = next(workers)) == NULL && !workers->closed)
        pthread_cond_wait(&workers->some, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
    return exchange;
}

/* ------------------------------------------------------------------------------------- threads */

static void *run(void *user)
{
    struct gsv_worker_threads *workers = user;
    struct gsv_exchange *exchange;

    pthread_setname_np(pthread_self(), "gpuserve-worker");
    while ((exchange = take(workers)) != NULL)
        gsv_dispatch_offload(exchange);
    return NULL;
}

gpuserve_status gsv_worker_threads_start(struct gsv_worker_threads *workers, uint32_t n_threads,
                                         uint64_t max_unread_bytes, gpuserve_error *error)
{
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->some, NULL);
    workers->max_unread_bytes = max_unread_bytes;
    workers->threads = gsv_alloc_array(n_threads, sizeof(*workers->threads));
    if (!workers->threads)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %u threads", n_threads);
    while (workers->n_threads < n_threads) {
        const int failed =
            pthread_create(&workers->threads[workers->n_threads], NULL, run, workers);

        if (failed)
            return gsv_fail(error, GPUSERVE_E_IO, "the HTTP server did not start: thread %u: %s",
                            workers->n_threads, strerror(failed));
        workers->n_threads++;
    }
    return GPUSERVE_OK;
}

void gsv_worker_threads_stop(struct gsv_worker_threads *workers)
{
    if (!workers->threads)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->closed = true;
    pthread_cond_broadcast(&workers->some);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < workers->n_threads; i++)
        pthread_join(workers->threads[i], NULL);
    workers->n_threads = 0;
}

void gsv_worker_threads_reset(struct gsv_worker_threads *workers)
{
    if (!workers->threads)
        return;
    pthread_cond_destroy(&workers->some);
    pthread_mutex_destroy(&workers->lock);
    free(workers->threads);
    *workers = (struct gsv_worker_threads){ 0 };
}

/* ------------------------------------------------------------------------------------ exchanges */

/* The result of a job is offloaded only if its reply is long. */
static bool makes_long_reply(const struct gsv_exchange *exchange)
{
    return exchange->work.waiting || (exchange->route && exchange->route->flags & GSV_LONG_REPLY);
}

void gsv_worker_threads_add(struct gsv_worker_threads *workers, struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&workers->lock);
    put(makes_long_reply(exchange) ? &workers->long_queue : &workers->queue, exchange);
    pthread_cond_signal(&workers->some);
    pthread_mutex_unlock(&workers->lock);
}

void gsv_worker_threads_made(struct gsv_worker_threads *workers, struct gsv_exchange *exchange)
{
    exchange->n_made_bytes = exchange->reply.size;
    atomic_fetch_add(&workers->made_bytes, exchange->n_made_bytes);
}

void gsv_worker_threads_taken_over(struct gsv_worker_threads *workers,
                                   struct gsv_exchange *exchange)
{
    atomic_fetch_sub(&workers->made_bytes, exchange->n_made_bytes);
    exchange->n_made_bytes = 0;
}

void gsv_http_tell_unread(struct gpuserve_http *server, size_t n_bytes)
{
    struct gsv_worker_threads *workers = server->workers;

    atomic_store(&workers->unread_bytes, n_bytes);
    if (!atomic_load(&workers->postponed))
        return;
    pthread_mutex_lock(&workers->lock);
    if (has_capacity(workers))
        pthread_cond_broadcast(&workers->some);
    pthread_mutex_unlock(&workers->lock);
}
