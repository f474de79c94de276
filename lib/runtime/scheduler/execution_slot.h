/*
 * execution_slot.h - resources to run one batch: a struct gsv_batch with an execution context and
 * buffers.
 *
 * A model has as many slots as worker threads. The thread that dequeued a batch owns its slot until
 * gsv_slot_run() returns. Running a batch allocates no memory.
 */
#ifndef GSV_RUNTIME_EXECUTION_SLOT_H
#define GSV_RUNTIME_EXECUTION_SLOT_H

#include "lib/model/model.h"
#include "lib/runtime/scheduler/batcher.h"

struct gsv_model;

struct gsv_slot {
    struct gsv_model *model;
    struct gsv_exec *work;
    struct gsv_batch batch;
    int32_t *ids, *type_ids, *positions; /* [max_tokens] */
    int32_t *cu_seqlens;                 /* [max_sequences + 1] */
    float *output;                       /* gsv_plan_output_floats() */
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
