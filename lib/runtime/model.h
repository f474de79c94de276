/*
 * model.h - one model as it was loaded: what its parts share. Immutable but for the queue and the
 * pool of encoders.
 *
 *   gsv_model_plan --> gsv_model_load --> gsv_model_warm --> requests --> gsv_model_free
 *                           ^---------- gsv_model_unload <----'
 *
 * A caller holds a gpuserve_model, which lends one of these to each request (handle.h). A swap
 * puts another in its place; the requests that began with this one end with it.
 */
#ifndef GSV_RUNTIME_MODEL_H
#define GSV_RUNTIME_MODEL_H

#include "lib/runtime/scheduler/batcher.h"
#include "lib/runtime/memory/budget.h"
#include "lib/runtime/scheduler/cache.h"
#include "lib/runtime/context.h"
#include "lib/runtime/scheduler/tokenize_chunk.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/scheduler/worker.h"

struct gsv_lost;

/* All weights on one device. The replicas of a model share its queue: a worker runs batches on the
 * one it belongs to. */
struct gsv_replica {
    struct gpuserve_device *device;
    struct gsv_net *net;
};

struct gsv_model {
    gpuserve_context *context; /* shared */
    char *name;                /* its handle's */
    struct gsv_plan plan;
    struct gsv_replica *replicas; /* [plan.n_replicas]; without device memory while parked, without
                                     anything when lost */
    atomic_uint_fast64_t
        lost_replicas;           /* bit i: the device of replica i is lost, others are left */
    void *offloaded;             /* the weights in host memory, or NULL */
    struct gsv_batcher *batcher; /* shared with requests */
    struct gsv_encoders encoders;
    struct gsv_cache *cache; /* NULL: none */
    struct gsv_workers workers;
    struct gsv_memory_reservation reservation; /* of the context's and the device's budget */
    struct gsv_model_metrics metrics;          /* in the context's list while `is_counted` */
    bool is_counted;
    char fingerprint[33];
    char files[33]; /* the fingerprint without what it has of the device: see fingerprint.h */
    struct gsv_int8_facts int8; /* of an int8 model, from its first loading */
    struct gsv_lost *lost;      /* its handle's; NULL: nobody is told of a lost device */
    size_t n_pins;              /* calls that look at it now; under the lock of its handle */
    size_t n_users;             /* of them those that submit a request to it */
};

/* Read what the directory says and choose the device; no weights are read. `name` is for messages
 * and metrics. */
gpuserve_status gsv_model_plan(struct gsv_model **model, gpuserve_context *context,
                               const char *name, const char *path,
                               const gpuserve_model_options *options, gpuserve_error *error);

/* Take the budget, waiting for it till `until_ns` at most (0: as the policy says), read the
 * weights, start the queue and its workers. `options` for the progress, may be NULL. After a
 * failure the model is unloaded, or still parked. */
gpuserve_status gsv_model_load(struct gsv_model *model, struct gsv_completions *completions,
                               const gpuserve_model_options *options, uint64_t until_ns,
                               gpuserve_error *error);

/* Wait until its requests have completed, then give back all but the plan. Accepts one that is
 * half loaded, parked or not loaded. */
void gsv_model_unload(struct gsv_model *model);

/* The same, but keep the weights of a GPU in host memory, from where they come back without reading
 * and packing; where that cannot be had, and on a CPU, they are dropped. */
void gsv_model_offload(struct gsv_model *model);

/* Whether a replica's device is not lost, as far as is known. */
bool gsv_model_has_replica(const struct gsv_model *model, size_t which);

/* Do without a replica from now on; false when that was known, or it is the last: a model without
 * any has no weights, and is lost as a whole. */
bool gsv_model_remove_replica(struct gsv_model *model, size_t which);

/* Wait until its requests have completed, then give everything back. Accepts NULL, a pointer to
 * NULL and a half-built model. */
void gsv_model_free(struct gsv_model **model);

/* Something of the model failed with GPUSERVE_E_DEVICE: a replica whose device is lost is taken
 * out; if there is no other, what the policy says begins. From any thread that keeps the model's
 * queue alive. */
void gsv_lost_note(struct gsv_model *model);

#endif
