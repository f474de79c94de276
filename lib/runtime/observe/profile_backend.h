/*
 * profile_backend.h - a backend wrapper that times every operation, or leaves some out.
 *
 *   net, work --operations--> table of gsv_profiler --the same operations--> the real backend
 *
 * Only gpuserve_model_profile() installs it. Other models call their backend directly, so profiling
 * costs nothing when it is off. On the CPU an operation is finished when its call returns, so the
 * measured times are those of the operations. On an asynchronous device they are not. There a stage
 * is left out of whole batches, and its time is the difference.
 *
 * One thread at a time runs batches through it; loading may use several.
 */
#ifndef GSV_RUNTIME_PROFILE_BACKEND_H
#define GSV_RUNTIME_PROFILE_BACKEND_H

#include "lib/model/model.h"

#include <gpuserve/sys/backend.h>

#include <pthread.h>
#include <stdbool.h>

/* The stages of a batch, in execution order: the phases of lib/model between two transfers. */
enum gsv_profile_stage {
    GSV_PROFILE_UPLOAD, /* batch_begin */
    GSV_PROFILE_FIRST_PHASE,
    GSV_PROFILE_DOWNLOAD = GSV_PROFILE_FIRST_PHASE + GSV_PHASES, /* batch_end and stream_wait */
    GSV_PROFILE_STAGES
};

static inline enum gsv_profile_stage gsv_profile_stage_of(enum gsv_phase phase)
{
    return (enum gsv_profile_stage)(GSV_PROFILE_FIRST_PHASE + (int)phase);
}

struct gsv_profile_event {
    enum gsv_profile_stage stage;
    int32_t layer; /* -1 outside the layers */
    uint64_t begin_ns, end_ns;
    double flops;                 /* of products and attention; 0 otherwise */
    int32_t rows, columns, inner; /* of products */
};

#define GSV_PROFILE_EVENTS 4096 /* per batch */
#define GSV_PROFILE_LINEARS 4096

struct gsv_profiler {
    struct gpuserve_backend table; /* the backend table given to the net */
    const struct gpuserve_backend *inner;

    /* Operations to leave out: those of this stage (GSV_PROFILE_STAGES: of all stages) in this
     * layer (-1: in all layers). */
    bool leaves_out;
    enum gsv_profile_stage left_out;
    int32_t left_out_layer;

    struct gsv_profile_event events[GSV_PROFILE_EVENTS]; /* of the last batch */
    size_t n_events;

    enum gsv_profile_stage stage; /* of the next operation */
    int32_t layer;
    double attended; /* sum of the squared sequence lengths */

    pthread_mutex_t lock; /* protects the fields below */
    struct {
        const struct gpuserve_linear *linear;
        int32_t n, k;
    } linears[GSV_PROFILE_LINEARS];
    size_t n_linears;
};

void gsv_profiler_init(struct gsv_profiler *profiler, const struct gpuserve_backend *inner);
void gsv_profiler_reset(struct gsv_profiler *profiler);

/* Tells the profiler the phases of a net; for struct gsv_net_options. */
struct gsv_phase_observer gsv_profiler_observer(struct gsv_profiler *profiler);

/* Opens a device of the inner backend for profiler->table; its device_close() closes it. */
gpuserve_status gsv_profiler_open(struct gsv_profiler *profiler, struct gpuserve_device **device,
                                  int32_t index, gpuserve_error *error);

#endif
