/*
 * footprint.c - reports the memory a model needs, without loading its weights.
 *
 * The load plan is read and sized exactly as for a load, then dropped.
 */
#include "lib/base/structs.h"
#include "lib/runtime/context.h"

GPUSERVE_API gpuserve_status gpuserve_model_footprint(gpuserve_context *context, const char *model,
                                                      const gpuserve_model_options *given,
                                                      gpuserve_footprint *footprint,
                                                      gpuserve_error *error)
{
    gpuserve_model_options options;
    struct gsv_plan plan;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(footprint, sizeof(*footprint), "gpuserve_footprint", error);
    if (st == GPUSERVE_OK)
        st = gsv_read_model_options(&options, given, error);
    if (st == GPUSERVE_OK)
        st = gsv_plan_read(&plan, context, model, &options, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_plan_size(&plan, context, &options, error);
    if (st == GPUSERVE_OK) {
        footprint->fits = gsv_plan_fits(&plan, &plan.room);
        footprint->weights_bytes = plan.memory.weights;
        footprint->workspace_bytes = plan.memory.workspace;
        footprint->stream_bytes = plan.memory.stream;
        footprint->host_bytes = plan.memory.host;
        footprint->total_bytes = plan.total_bytes;
        footprint->available_bytes =
            plan.room.all < plan.room.device ? plan.room.all : plan.room.device;
        footprint->n_streams = (uint32_t)plan.n_workers + plan.has_wide;
        footprint->max_batch_tokens = (uint32_t)gsv_plan_largest_batch(&plan, &plan.room);
    }
    gsv_plan_reset(&plan);
    return st;
}
