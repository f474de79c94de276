/*
 * profile.h - measures a model stage by stage, for gpuserve_model_profile().
 *
 *   plan -> net through a gsv_profiler -> rounds of the same batch -> medians -> JSON
 */
#ifndef GSV_RUNTIME_PROFILE_H
#define GSV_RUNTIME_PROFILE_H

#include "lib/runtime/core/context.h"
#include "lib/runtime/memory/budget.h"
#include "lib/runtime/observe/profile_backend.h"
#include "lib/runtime/plan/load_plan.h"

#define GSV_PROFILE_MAX_LAYERS 256

/* Products of one shape and stage, summed over all layers. */
struct gsv_profile_product {
    enum gsv_profile_stage stage;
    int32_t rows, columns, inner, calls;
    double ns, flops; /* per batch */
};
#define GSV_PROFILE_PRODUCTS 16

struct gsv_profile {
    gpuserve_context *context; /* borrowed */
    const char *path;
    gpuserve_profile_options options; /* defaults filled in */
    struct gsv_plan plan;
    struct gsv_memory_reservation reservation;
    const struct gsv_exec_options *shape; /* of the batch: plan.wide or plan.narrow */
    bool by_difference;

    struct gsv_profiler *profiler;
    struct gpuserve_device *device;
    struct gsv_net *net;
    struct gsv_exec *work;

    /* The measured batch. */
    char *text; /* default text, the same for each item, if the caller gave none */
    struct gpuserve_host_batch batch;
    int32_t *ids, *type_ids, *positions, *cu_seqlens;
    float *output;

    /* Medians over the rounds, per batch, in nanoseconds. */
    double tokenize_ns, pack_ns, batch_ns;
    double stage_ns[GSV_PROFILE_STAGES];
    int32_t stage_calls[GSV_PROFILE_STAGES];
    double stage_flops[GSV_PROFILE_STAGES];
    double layer_ns[GSV_PROFILE_MAX_LAYERS];
    int32_t n_layers;
    struct gsv_profile_product products[GSV_PROFILE_PRODUCTS];
    size_t n_products;
    double peak_flops; /* operations per second of large square products; 0: not measured */

    /* The last complete round, for the trace. */
    uint64_t tokenize_begin, tokenize_end, pack_end, batch_end;
    struct gsv_profile_event *events; /* [n_events] */
    size_t n_events;
};

/* Whether the stage's time is measured: copies cannot be left out of a batch. */
static inline bool gsv_profile_has(const struct gsv_profile *profile, enum gsv_profile_stage stage)
{
    return !profile->by_difference ||
           (stage != GSV_PROFILE_UPLOAD && stage != GSV_PROFILE_DOWNLOAD);
}

/* Peak rate of square products in the plan's dtype on its device, in operations per second. */
gpuserve_status gsv_profile_peak(struct gsv_profile *profile, gpuserve_error *error);

/* Writes the figures as JSON, with the trace if requested. */
gpuserve_status gsv_profile_write(const struct gsv_profile *profile, gpuserve_text_fn write,
                                  void *user, gpuserve_error *error);

#endif
