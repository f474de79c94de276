/*
 * worker.h - the threads of a model, which tokenize, run and complete what the batcher hands out.
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
    struct gsv_slot *slots; /* [n]: used by any of them, see execution_slot.h */
    int32_t n;
    int32_t n_started;
    struct gsv_exec *wide; /* used by one at a time: see batcher.h; may be NULL */
};

/* Start a thread of ours: all signals blocked, a small stack. 0, or the error of pthread_create. */
int gsv_start_thread(pthread_t *thread, void *(*work)(void *), void *argument);

/* Run a batch of gsv_batcher_begin_inline() in the calling thread and complete what is over. */
void gsv_run_inline(struct gsv_batch *batch);

/* Make the streams and start the threads. */
gpuserve_status gsv_workers_start(struct gsv_workers *workers, struct gsv_model *model,
                                  gpuserve_error *error);

/* Wait for the threads, which the batcher has told to stop, and free everything. */
void gsv_workers_stop(struct gsv_workers *workers);

#endif
