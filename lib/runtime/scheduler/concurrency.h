/*
 * concurrency.h - limits the threads of a context that compute at a time to its number of cores,
 * for any number of models.
 *
 * Each model on the CPU has its own worker threads. A worker acquires a core before it runs a batch
 * or tokenizes a chunk, so busy models share the machine without oversubscription.
 *
 * Algorithm: fair queueing between models by used core time. A free core goes to the waiter whose
 * model has used least. An idle model starts level with the others, so it cannot save up time.
 *
 * A batch on the wide stream, whose operations all of its model's threads share, occupies one core
 * for each of these threads. It starts only while so many are free, and no other thread gets them
 * meanwhile.
 */
#ifndef GSV_RUNTIME_CONCURRENCY_H
#define GSV_RUNTIME_CONCURRENCY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Core time used by a model. Under the lock of the cores. */
struct gsv_core_share {
    uint64_t used_ns; /* core time */
    int32_t n_inside; /* threads that hold a core or wait for one */
};

struct gsv_core_waiter;

struct gsv_cores {
    pthread_mutex_t lock;
    int32_t n;
    int32_t n_busy;    /* a wide batch counts as one for each thread */
    uint64_t level_ns; /* virtual time: highest used_ns of a share when a waiter of it got a core */
    struct gsv_core_waiter *waiters;
};

void gsv_cores_init(struct gsv_cores *cores, int32_t n);
void gsv_cores_reset(struct gsv_cores *cores);

/* Wait for a core. gsv_cores_leave() returns the `n` cores held (more than 1 after a widen) and
 * charges `used_ns` for each. */
void gsv_cores_enter(struct gsv_cores *cores, struct gsv_core_share *share);
/* The same without waiting: false if no core is free. */
bool gsv_cores_try_enter(struct gsv_cores *cores, struct gsv_core_share *share);
/* The same, and false if any other thread holds a core. */
bool gsv_cores_try_enter_first(struct gsv_cores *cores, struct gsv_core_share *share);
void gsv_cores_leave(struct gsv_cores *cores, struct gsv_core_share *share, int32_t n,
                     uint64_t used_ns);

/* Exchange one held core for `n`, if so many are free; narrow goes back to one. */
bool gsv_cores_widen(struct gsv_cores *cores, int32_t n);
void gsv_cores_narrow(struct gsv_cores *cores, int32_t n);

#endif
