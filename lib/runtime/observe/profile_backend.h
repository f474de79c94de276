/*
 * profile_backend.h - a backend around another one that times every operation, or leaves some out.
 *
 *   net, work --operations--> gsv_profiler's table --the same operations--> the real backend
 *
 * Only gpuserve_model_profile() puts it there: an ordinary model calls its backend directly, so
 * profiling costs nothing when it is off. On a host backend an operation is done when its call
 * returns, so the times are those of the operations. On a device it is only under way: there a
 * stage is left out of whole batches, and what the batch takes less is its time.
 *
 * One thread at a time runs batches through it; loading may use several.
 */
#ifndef GSV_RUNTIME_PROFILE_BACKEND_H
#define GSV_RUNTIME_PROFILE_BACKEND_H

#include <gpuserve/sys/backend.h>

#include <pthread.h>
#include <stdbool.h>

/* The parts of a batch, in their order. */
enum gsv_profile_stage {
    GSV_PROFILE_UPLOAD, /* batch_begin */
    GSV_PROFILE_EMBED,  /* sum of the tables, LayerNorm */
    GSV_PROFILE_QKV,    /* product */
    GSV_PROFILE_ATTENTION,
    GSV_PROFILE_OUTPUT,   /* product */
    GSV_PROFILE_NORM,     /* residual, LayerNorm after attention */
    GSV_PROFILE_EXPAND,   /* first feed-forward product and its activation */
    GSV_PROFILE_CONTRACT, /* second one */
    GSV_PROFILE_FFN_NORM, /* residual, LayerNorm after the feed-forward */
    GSV_PROFILE_POOL,
    GSV_PROFILE_HEAD,     /* Dense modules, classifier, normalization, scores */
    GSV_PROFILE_DOWNLOAD, /* batch_end and the wait */
    GSV_PROFILE_STAGES
};

struct gsv_profile_event {
    enum gsv_profile_stage stage;
    int32_t layer; /* -1 outside the layers */
    uint64_t begin_ns, end_ns;
    double flops;                 /* of products and attention, else 0 */
    int32_t rows, columns, inner; /* of products */
};

#define GSV_PROFILE_EVENTS 4096 /* in a batch */
#define GSV_PROFILE_LINEARS 4096

struct gsv_profiler {
    struct gpuserve_backend table; /* what the net is given */
    const struct gpuserve_backend *inner;

    /* What to leave out: operations of this stage, in this layer (-1: in all). */
    bool leaves_out;
    enum gsv_profile_stage left_out;
    int32_t left_out_layer;

    struct gsv_profile_event events[GSV_PROFILE_EVENTS]; /* of the last batch */
    size_t n_events;

    /* Where in the model the next operation is. */
    int32_t layer, n_linears_since_attention, n_norms_in_layer;
    bool is_pooled;
    double attended; /* sum of the squares of the lengths */

    pthread_mutex_t lock; /* for what follows */
    struct {
        const struct gpuserve_linear *linear;
        int32_t n, k;
    } linears[GSV_PROFILE_LINEARS];
    size_t n_linears;
};

void gsv_profiler_init(struct gsv_profiler *profiler, const struct gpuserve_backend *inner);
void gsv_profiler_reset(struct gsv_profiler *profiler);

/* Open a device of the inner backend for use with profiler->table, whose device_close ends it. */
gpuserve_status gsv_profiler_open(struct gsv_profiler *profiler, struct gpuserve_device **device,
                                  int32_t index, gpuserve_error *error);

#endif
