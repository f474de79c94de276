/*
 * execution_slot.h - what it takes to run one batch: a stream and buffers around a struct
 * gsv_batch.
 *
 * A model has as many as it has workers. Whoever was given a batch by the batcher has its seat, and
 * nobody else, until gsv_seat_run() returns. Nothing is allocated while it runs.
 */
#ifndef GSV_RUNTIME_EXECUTION_SLOT_H
#define GSV_RUNTIME_EXECUTION_SLOT_H

#include "lib/model/model.h"
#include "lib/runtime/scheduler/batcher.h"

struct gsv_model;

struct gsv_seat {
    struct gsv_model *model;
    struct gsv_work *work;
    struct gsv_batch batch;
    int32_t *ids, *type_ids, *positions; /* [max_tokens] */
    int32_t *cu_seqlens;                 /* [max_sequences + 1] */
    float *output;                       /* gsv_plan_output_floats() */
};

static inline struct gsv_seat *gsv_seat_of(struct gsv_batch *batch)
{
    return (struct gsv_seat *)(void *)((char *)batch - offsetof(struct gsv_seat, batch));
}

/* On failure, too, gsv_seat_reset() ends it. */
gpuserve_status gsv_seat_init(struct gsv_seat *seat, struct gsv_model *model, int32_t replica,
                              gpuserve_error *error);
void gsv_seat_reset(struct gsv_seat *seat);

/* Run the batch that the batcher filled. Returns the requests that are over as a list by
 * next_to_complete; the seat is another's from then on. */
gpuserve_request *gsv_seat_run(struct gsv_seat *seat);

#endif
