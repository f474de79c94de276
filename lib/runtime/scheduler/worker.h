/*
 * worker.h - the worker threads of a model, which tokenize, run batches and complete requests.
 */
#ifndef GSV_RUNTIME_WORKER_H
#define GSV_RUNTIME_WORKER_H

#include "lib/model/model.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>

struct gsv_batch;
struct gsv_model;
struct gsv_slot;
struct gsv_worker;

struct gsv_workers {
    struct gsv_worker *all; /* [n] */
    struct gsv_slot *slots; /* [n]: used by any worker, see execution_slot.h */
    int32_t n;
    int32_t n_started;
    struct gsv_exec *wide; /* execution context of wide batches, one at a time (batch_formation.c);
                              may be NULL */
};

/* Start a thread with all signals blocked and a small stack. Returns 0, or pthread_create's
 * error. */
int gsv_start_thread(pthread_t *thread, void *(*work)(void *), void *argument);

/* Run a batch of gsv_batcher_begin_inline() in the calling thread and complete the ended
 * requests. */
void gsv_run_inline(struct gsv_batch *batch);

/* Create the execution slots and start the threads. */
gpuserve_status gsv_workers_start(struct gsv_workers *workers, struct gsv_model *model,
                                  gpuserve_error *error);

/* Join the threads, which the batcher has told to stop, and free everything. */
void gsv_workers_stop(struct gsv_workers *workers);

#endif
