/*
 * model.h - an open model: what its parts share. Immutable but for the queue, the pool of
 * encoders and the descriptor of completions.
 */
#ifndef GSV_RUNTIME_MODEL_H
#define GSV_RUNTIME_MODEL_H

#include "lib/runtime/batcher.h"
#include "lib/runtime/context.h"
#include "lib/runtime/encode.h"
#include "lib/runtime/plan.h"
#include "lib/runtime/worker.h"

struct gpuserve_model {
    gpuserve_context *context; /* shared */
    struct gsv_plan plan;
    struct gpuserve_device *device;
    struct gsv_net *net;
    struct gsv_batcher *batcher; /* shared with requests */
    struct gsv_encoders encoders;
    struct gsv_workers workers;
    uint64_t reserved_bytes;          /* of the context's budget */
    struct gsv_model_metrics metrics; /* in the context's list while `is_counted` */
    bool is_counted;
    char fingerprint[33];
};

/* Not NULL and not forked. */
gpuserve_status gsv_model_check(const gpuserve_model *model, gpuserve_error *error);

#endif
