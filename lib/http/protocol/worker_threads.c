/*
 * worker_threads.c - see worker_threads.h.
 */
#include "lib/http/protocol/worker_threads.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/http/protocol/dispatch.h"
#include "lib/http/protocol/route.h"
#include "lib/http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- queues */

static void put(struct gsv_crew_queue *queue, struct gsv_exchange *exchange)
{
    exchange->queued = NULL;
    if (queue->first)
        queue->last->queued = exchange;
    else
        queue->first = exchange;
    queue->last = exchange;
}

static struct gsv_exchange *first_of(struct gsv_crew_queue *queue)
{
    struct gsv_exchange *exchange = queue->first;

    if (exchange)
        queue->first = exchange->queued;
    return exchange;
}

static bool has_room(struct gsv_crew *crew)
{
    const size_t unread = atomic_load(&crew->unread_bytes) + atomic_load(&crew->made_bytes);

    return crew->closed || unread <= crew->max_unread_bytes ||
           gsv_http_now() - crew->patient_ns > GSV_PATIENCE_MS * UINT64_C(1000000);
}

/* Whichever came first of those that may go on, or NULL. The lock is held. */
static struct gsv_exchange *next(struct gsv_crew *crew)
{
    const struct gsv_exchange *prompt = crew->queue.first, *slow = crew->long_queue.first;
    const bool may = slow && has_room(crew);

    atomic_store(&crew->postponed, slow && !may);
    if (!may || (prompt && prompt->received_ns <= slow->received_ns))
        return first_of(&crew->queue);
    crew->patient_ns = gsv_http_now();
    return first_of(&crew->long_queue);
}

static struct gsv_exchange *take(struct gsv_crew *crew)
{
    struct gsv_exchange *exchange;

    pthread_mutex_lock(&crew->lock);
    while ((exchange = next(crew)) == NULL && !crew->closed)
        pthread_cond_wait(&crew->some, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    return exchange;
}

/* ------------------------------------------------------------------------------------- threads */

static void *run(void *user)
{
    struct gsv_crew *crew = user;
    struct gsv_exchange *exchange;

    pthread_setname_np(pthread_self(), "gpuserve-crew");
    while ((exchange = take(crew)) != NULL)
        gsv_advance_aside(exchange);
    return NULL;
}

gpuserve_status gsv_crew_start(struct gsv_crew *crew, uint32_t n_threads, uint64_t max_unread_bytes,
                               gpuserve_error *error)
{
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->some, NULL);
    crew->max_unread_bytes = max_unread_bytes;
    crew->threads = gsv_alloc_array(n_threads, sizeof(*crew->threads));
    if (!crew->threads)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %u threads", n_threads);
    while (crew->n_threads < n_threads) {
        const int failed = pthread_create(&crew->threads[crew->n_threads], NULL, run, crew);

        if (failed)
            return gsv_fail(error, GPUSERVE_E_IO, "the HTTP server did not start: thread %u: %s",
                            crew->n_threads, strerror(failed));
        crew->n_threads++;
    }
    return GPUSERVE_OK;
}

void gsv_crew_stop(struct gsv_crew *crew)
{
    if (!crew->threads)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->closed = true;
    pthread_cond_broadcast(&crew->some);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->n_threads; i++)
        pthread_join(crew->threads[i], NULL);
    crew->n_threads = 0;
}

void gsv_crew_reset(struct gsv_crew *crew)
{
    if (!crew->threads)
        return;
    pthread_cond_destroy(&crew->some);
    pthread_mutex_destroy(&crew->lock);
    free(crew->threads);
    *crew = (struct gsv_crew){ 0 };
}

/* ---------------------------------------------------------------------------------- exchanges */

/* What work has computed comes here only where writing it takes long. */
static bool makes_long_reply(const struct gsv_exchange *exchange)
{
    return exchange->work.waiting || (exchange->route && exchange->route->flags & GSV_LONG_REPLY);
}

void gsv_crew_give(struct gsv_crew *crew, struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&crew->lock);
    put(makes_long_reply(exchange) ? &crew->long_queue : &crew->queue, exchange);
    pthread_cond_signal(&crew->some);
    pthread_mutex_unlock(&crew->lock);
}

void gsv_crew_made(struct gsv_crew *crew, struct gsv_exchange *exchange)
{
    exchange->n_made_bytes = exchange->reply.size;
    atomic_fetch_add(&crew->made_bytes, exchange->n_made_bytes);
}

void gsv_crew_taken_over(struct gsv_crew *crew, struct gsv_exchange *exchange)
{
    atomic_fetch_sub(&crew->made_bytes, exchange->n_made_bytes);
    exchange->n_made_bytes = 0;
}

void gsv_crew_tell_unread(struct gsv_crew *crew, size_t n_bytes)
{
    atomic_store(&crew->unread_bytes, n_bytes);
    if (!atomic_load(&crew->postponed))
        return;
    pthread_mutex_lock(&crew->lock);
    if (has_room(crew))
        pthread_cond_broadcast(&crew->some);
    pthread_mutex_unlock(&crew->lock);
}
