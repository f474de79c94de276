/*
 * execution_slot.h - what it takes to run one batch: a stream and buffers around a struct
 * gsv_batch.
 *
 * A model has as many as it has workers. Whoever was given a batch by the batcher has its seat, and
 * nobody else, until gsv_slot_run() returns. Nothing is allocated while it runs.
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

/* On failure, too, gsv_slot_reset() ends it. */
gpuserve_status gsv_slot_init(struct gsv_slot *slot, struct gsv_model *model, int32_t replica,
                              gpuserve_error *error);
void gsv_slot_reset(struct gsv_slot *slot);

/* Run the batch that the batcher filled. Returns the requests that are over as a list by
 * next_to_complete; the seat is another's from then on. */
gpuserve_request *gsv_slot_run(struct gsv_slot *slot);

#endif
