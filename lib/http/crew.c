/*
 * crew.c - see crew.h.
 */
#include "lib/http/crew.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/http/advance.h"
#include "lib/http/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct gsv_exchange *take(struct gsv_crew *crew)
{
    struct gsv_exchange *exchange;

    pthread_mutex_lock(&crew->lock);
    while (!crew->first && !crew->closed)
        pthread_cond_wait(&crew->some, &crew->lock);
    exchange = crew->first;
    if (exchange)
        crew->first = exchange->queued;
    pthread_mutex_unlock(&crew->lock);
    return exchange;
}

static void *run(void *user)
{
    struct gsv_crew *crew = user;
    struct gsv_exchange *exchange;

    while ((exchange = take(crew)) != NULL)
        gsv_advance_aside(exchange);
    return NULL;
}

gpuserve_status gsv_crew_start(struct gsv_crew *crew, uint32_t n_threads, gpuserve_error *error)
{
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->some, NULL);
    crew->threads = gsv_alloc_array(n_threads, sizeof(*crew->threads));
    if (!crew->threads)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %u threads", n_threads);
    while (crew->n_threads < n_threads) {
        const int failed = pthread_create(&crew->threads[crew->n_threads], NULL, run, crew);

        if (failed)
            return gsv_fail(error, GPUSERVE_E_IO, "the HTTP server did not start: thread %u: %s",
                            crew->n_threads, strerror(failed));
        pthread_setname_np(crew->threads[crew->n_threads], "gpuserve-crew");
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
    pthread_cond_destroy(&crew->some);
    pthread_mutex_destroy(&crew->lock);
    free(crew->threads);
    *crew = (struct gsv_crew){ 0 };
}

void gsv_crew_give(struct gsv_crew *crew, struct gsv_exchange *exchange)
{
    exchange->queued = NULL;
    pthread_mutex_lock(&crew->lock);
    if (crew->first)
        crew->last->queued = exchange;
    else
        crew->first = exchange;
    crew->last = exchange;
    pthread_cond_signal(&crew->some);
    pthread_mutex_unlock(&crew->lock);
}
