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

#include <gpuserve/sys/backend.h>

#include <pthread.h>
#include <stdbool.h>

/* The stages of a batch, in execution order. */
enum gsv_profile_stage {
    GSV_PROFILE_UPLOAD, /* batch_begin */
    GSV_PROFILE_EMBED,  /* sum of the embedding tables, LayerNorm */
    GSV_PROFILE_QKV,    /* product */
    GSV_PROFILE_ATTENTION,
    GSV_PROFILE_OUTPUT,   /* product */
    GSV_PROFILE_NORM,     /* residual, LayerNorm after attention */
    GSV_PROFILE_EXPAND,   /* first feed-forward product and its activation */
    GSV_PROFILE_CONTRACT, /* second feed-forward product */
    GSV_PROFILE_FFN_NORM, /* residual, LayerNorm after the feed-forward */
    GSV_PROFILE_POOL,
    GSV_PROFILE_HEAD,     /* Dense modules, classifier, normalization, scores */
    GSV_PROFILE_DOWNLOAD, /* batch_end and stream_wait */
    GSV_PROFILE_STAGES
};

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

    /* Operations to leave out: those of this stage in this layer (-1: in all layers). */
    bool leaves_out;
    enum gsv_profile_stage left_out;
    int32_t left_out_layer;

    struct gsv_profile_event events[GSV_PROFILE_EVENTS]; /* of the last batch */
    size_t n_events;

    /* Position of the next operation in the model. */
    int32_t layer, n_linears_since_attention, n_norms_in_layer;
    bool is_pooled;
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

/* Opens a device of the inner backend for profiler->table; its device_close() closes it. */
gpuserve_status gsv_profiler_open(struct gsv_profiler *profiler, struct gpuserve_device **device,
                                  int32_t index, gpuserve_error *error);

#endif
