/*
 * worker.h - the worker threads of a model, which tokenize, run batches and complete requests.
 */
#ifndef GSV_RUNTIME_WORKER_H
#define GSV_RUNTIME_WORKER_H

#include "lib/model/model.h"
#include "lib/runtime/scheduler/batcher.h"

#include <gpuserve/gpuserve.h>
#include <pthread.h>

struct gsv_batch;
struct gsv_model;
struct gsv_slot;
struct gsv_worker;

struct gsv_workers {
    struct gsv_worker *all; /* [n_threads] */
    struct gsv_slot *slots; /* [n]: used by any worker, see below */
    int32_t n;
    int32_t n_threads; /* at least n */
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

/*
 * Resources to run one batch: a struct gsv_batch with an execution context and
 * buffers.
 *
 * A model has at least as many worker threads as slots; on a GPU it has more, which tokenize. The
 * thread that dequeued a batch owns its slot until gsv_slot_run() returns. Running a batch
 * allocates no memory.
 */

struct gsv_model;

struct gsv_slot {
    struct gsv_model *model;
    struct gsv_exec *work;
    struct gsv_batch batch;
    int32_t *ids, *type_ids, *positions; /* [max_tokens] */
    int32_t *cu_seqlens;                 /* [max_sequences + 1] */
    int32_t *key_counts;                 /* [max_sequences] */
    int32_t *order, *adapters; /* [max_sequences] of each text of a run: its part, its adapter */
    /* Of late interaction, else NULL: see struct gsv_late_batch. */
    struct gsv_late_query *late_queries;      /* [max_sequences] */
    struct gpuserve_max_sim_text *late_texts; /* [max_sequences] */
    int32_t *late_rows;                       /* [max_tokens] */
    float *output;                            /* gsv_plan_output_floats() */
};

static inline struct gsv_slot *gsv_slot_of(struct gsv_batch *batch)
{
    return (struct gsv_slot *)(void *)((char *)batch - offsetof(struct gsv_slot, batch));
}

/* gsv_slot_reset() must follow on failure, too. */
gpuserve_status gsv_slot_init(struct gsv_slot *slot, struct gsv_model *model, int32_t replica,
                              gpuserve_error *error);
void gsv_slot_reset(struct gsv_slot *slot);

/* Run the batch that the batcher filled. Returns the requests that ended as a list by
 * next_to_complete. The slot is free for other threads on return. */
gpuserve_request *gsv_slot_run(struct gsv_slot *slot);

#endif
