/*
 * concurrency.h - which threads of a context may compute now: as many as it has cores, whatever the
 * number of models.
 *
 * Each model on the CPU has workers of its own, which sleep while there is nothing to do. Before
 * one takes a batch or tokenizes a chunk it takes a core, so that several busy models share the
 * machine instead of crowding it. The model that has used least comes first; one that was idle
 * starts level with the others, so that nobody saves up time.
 *
 * A batch on the wide stream, whose operations all threads share, takes all cores at once: it
 * begins when nobody else computes, and meanwhile nobody else begins.
 */
#ifndef GSV_RUNTIME_CONCURRENCY_H
#define GSV_RUNTIME_CONCURRENCY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What a model has used. Under the lock of the cores. */
struct gsv_core_share {
    uint64_t used_ns; /* time of cores */
    int32_t n_inside; /* threads that have a core or wait for one */
};

struct gsv_core_waiter;

struct gsv_cores {
    pthread_mutex_t lock;
    int32_t n;
    int32_t n_busy;    /* `n` while a wide batch runs */
    uint64_t level_ns; /* what the share had used that was served last */
    struct gsv_core_waiter *waiters;
};

void gsv_cores_init(struct gsv_cores *cores, int32_t n);
void gsv_cores_reset(struct gsv_cores *cores);

/* Wait for a core; give it back, or the `n` it became, after so long. */
void gsv_cores_enter(struct gsv_cores *cores, struct gsv_core_share *share);
/* The same without waiting: false when none is free. */
bool gsv_cores_try_enter(struct gsv_cores *cores, struct gsv_core_share *share);
/* The same, and false when another computes. */
bool gsv_cores_try_enter_first(struct gsv_cores *cores, struct gsv_core_share *share);
void gsv_cores_leave(struct gsv_cores *cores, struct gsv_core_share *share, int32_t n,
                     uint64_t used_ns);

/* The holder of a core gets `n` in its place, if so many are free; and goes back to one. */
bool gsv_cores_widen(struct gsv_cores *cores, int32_t n);
void gsv_cores_narrow(struct gsv_cores *cores, int32_t n);

#endif
