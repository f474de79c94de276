/*
 * concurrency.c - fair queueing for the cores of a context (counting semaphore with virtual time).
 *
 * A free core is handed directly to the waiter with the least used core time (no thundering herd):
 * the order holds, and exactly one thread wakes. Waiters with equal time are served in order of
 * arrival.
 */
#include "lib/runtime/scheduler/concurrency.h"

#include <stddef.h>

struct gsv_core_waiter {
    struct gsv_core_waiter *next; /* arrived later */
    struct gsv_core_share *share;
    pthread_cond_t granted;
    bool has_core;
};

void gsv_cores_init(struct gsv_cores *cores, int32_t n)
{
    *cores = (struct gsv_cores){ .n = n };
    pthread_mutex_init(&cores->lock, NULL);
}

void gsv_cores_reset(struct gsv_cores *cores)
{
    pthread_mutex_destroy(&cores->lock);
}

/* Hand the free cores to the waiters with the least used time; the lock is held. */
static void hand_out(struct gsv_cores *cores)
{
    while (cores->n_busy < cores->n && cores->waiters) {
        struct gsv_core_waiter **first = &cores->waiters, *waiter;

        for (struct gsv_core_waiter **link = first; *link; link = &(*link)->next) {
            if ((*link)->share->used_ns < (*first)->share->used_ns)
                first = link;
        }
        waiter = *first;
        *first = waiter->next;
        cores->n_busy++;
        if (waiter->share->used_ns > cores->level_ns)
            cores->level_ns = waiter->share->used_ns;
        waiter->has_core = true;
        pthread_cond_signal(&waiter->granted);
    }
}

/* An idle share starts level with the others; the lock is held. */
static void come_in(struct gsv_cores *cores, struct gsv_core_share *share)
{
    if (share->n_inside++ == 0 && share->used_ns < cores->level_ns)
        share->used_ns = cores->level_ns;
}

/* Enter only if at most `max_busy` cores are busy. */
static bool try_enter(struct gsv_cores *cores, struct gsv_core_share *share, int32_t max_busy)
{
    bool is_free;

    pthread_mutex_lock(&cores->lock);
    is_free = cores->n_busy <= max_busy; /* then no thread waits */
    if (is_free) {
        come_in(cores, share);
        cores->n_busy++;
    }
    pthread_mutex_unlock(&cores->lock);
    return is_free;
}

bool gsv_cores_try_enter(struct gsv_cores *cores, struct gsv_core_share *share)
{
    return try_enter(cores, share, cores->n - 1);
}

bool gsv_cores_try_enter_first(struct gsv_cores *cores, struct gsv_core_share *share)
{
    return try_enter(cores, share, 0);
}

void gsv_cores_enter(struct gsv_cores *cores, struct gsv_core_share *share)
{
    struct gsv_core_waiter self = { .share = share }, **last = &cores->waiters;

    pthread_mutex_lock(&cores->lock);
    come_in(cores, share);
    if (cores->n_busy < cores->n) {
        cores->n_busy++;
        pthread_mutex_unlock(&cores->lock);
        return;
    }
    pthread_cond_init(&self.granted, NULL);
    while (*last)
        last = &(*last)->next;
    *last = &self;
    while (!self.has_core)
        pthread_cond_wait(&self.granted, &cores->lock);
    pthread_mutex_unlock(&cores->lock);
    pthread_cond_destroy(&self.granted);
}

void gsv_cores_leave(struct gsv_cores *cores, struct gsv_core_share *share, int32_t n,
                     uint64_t used_ns)
{
    pthread_mutex_lock(&cores->lock);
    share->used_ns += used_ns * (uint64_t)n;
    share->n_inside--;
    cores->n_busy -= n;
    hand_out(cores);
    pthread_mutex_unlock(&cores->lock);
}

bool gsv_cores_widen(struct gsv_cores *cores, int32_t n)
{
    bool is_free;

    pthread_mutex_lock(&cores->lock);
    is_free = cores->n_busy + n - 1 <= cores->n;
    if (is_free)
        cores->n_busy += n - 1;
    pthread_mutex_unlock(&cores->lock);
    return is_free;
}

void gsv_cores_narrow(struct gsv_cores *cores, int32_t n)
{
    pthread_mutex_lock(&cores->lock);
    cores->n_busy -= n - 1;
    hand_out(cores);
    pthread_mutex_unlock(&cores->lock);
}
