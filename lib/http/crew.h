/*
 * crew.h - threads for what takes long: parsing a large body, writing a large reply.
 *
 * The guard's thread reads and writes for all clients, and answers small requests itself: each
 * hand-over costs more than they do. A large one would keep all others waiting, so its connection
 * is suspended and a thread of the crew takes the step. When the guard's thread is busy most of the
 * time, small ones go that way too.
 */
#ifndef GSV_HTTP_CREW_H
#define GSV_HTTP_CREW_H

#include <gpuserve/types.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gsv_exchange;

struct gsv_crew {
    pthread_mutex_t lock;
    pthread_cond_t some; /* there is an exchange, or no more will come */
    struct gsv_exchange *first, *last;
    pthread_t *threads; /* [n_threads] */
    uint32_t n_threads;
    bool closed;
};

gpuserve_status gsv_crew_start(struct gsv_crew *crew, uint32_t n_threads, gpuserve_error *error);
/* Nothing may be given any more. */
void gsv_crew_stop(struct gsv_crew *crew);

/* gsv_advance_aside() on a thread of the crew. Its connection is suspended, or about to be. */
void gsv_crew_give(struct gsv_crew *crew, struct gsv_exchange *exchange);

#endif
