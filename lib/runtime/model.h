/*
 * model.h - one loaded model and the state its parts share. Immutable except for the queue and the
 * pool of encoders.
 *
 *   gsv_model_plan --> gsv_model_load --> gsv_model_warm --> requests --> gsv_model_free
 *                           ^---------- gsv_model_unload <----'
 *
 * A caller holds a gpuserve_model handle, which pins one gsv_model for each request (handle.h). A
 * swap replaces the handle's model; requests that started on the old one finish on it.
 */
#ifndef GSV_RUNTIME_MODEL_H
#define GSV_RUNTIME_MODEL_H

#include "lib/runtime/core/context.h"
#include "lib/runtime/memory/budget.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/scheduler/batcher.h"
#include "lib/runtime/scheduler/result_cache.h"
#include "lib/runtime/scheduler/tokenize_chunk.h"
#include "lib/runtime/scheduler/worker.h"

struct gsv_entity_exec;
struct gsv_lost;

/* All weights, on one device or on those of a pipeline. The replicas of a model share its queue; an
 * execution slot runs its batches on one replica. */
struct gsv_replica {
    struct gpuserve_device **devices; /* [gsv_plan_stages()] */
    struct gsv_net *net;
};

/* The entity head on one replica; entity_runner.c. */
struct gsv_entity_runner {
    pthread_mutex_t lock;
    struct gsv_entity_exec *exec; /* NULL: not started, or the model has no such head */
    size_t replica;
};

struct gsv_model {
    gpuserve_context *context; /* shared */
    char *name;                /* the handle's name */
    struct gsv_plan plan;
    struct gsv_replica *replicas; /* [plan.n_replicas]; no device memory while offloaded, empty
                                     when lost */
    atomic_uint_fast64_t lost_replicas; /* bit i: replica i lost its device, others remain */
    void *offloaded;                    /* the weights in host memory, or NULL */
    struct gsv_batcher *batcher;        /* shared with requests */
    struct gsv_encoders encoders;
    struct gsv_cache *cache; /* NULL: none */
    struct gsv_workers workers;
    struct gsv_entity_runner entity;
    struct gsv_memory_reservation reservation; /* of the context's and the devices' budgets */
    struct gsv_model_metrics metrics;          /* in the context's list while `is_counted` */
    bool is_counted;
    char fingerprint[33];
    char files[33];             /* the fingerprint without its device part: see load_steps.h */
    struct gsv_int8_facts int8; /* of an int8 model, since its first load */
    struct gsv_lost *lost;      /* the handle's failover state; NULL: device loss is not reported */
    size_t n_pins;              /* calls that use it at present; under the lock of its handle */
    size_t n_users;             /* of these, calls that submit a request */
};

/* Read the directory's configuration and choose the device; reads no weights. `name` is for
 * messages and metrics. */
gpuserve_status gsv_model_plan(struct gsv_model **model, gpuserve_context *context,
                               const char *name, const char *path,
                               const gpuserve_model_options *options, gpuserve_error *error);

/* Reserve memory, waiting until `until_ns` at most (0: as the policy says), read the weights, start
 * the queue and its workers. `options` is for progress and may be NULL. On failure the model is
 * unloaded, or stays offloaded. */
gpuserve_status gsv_model_load(struct gsv_model *model, struct gsv_completions *completions,
                               const gpuserve_model_options *options, uint64_t until_ns,
                               gpuserve_error *error);

/* Wait until its requests have completed, then release everything except the plan. Accepts a model
 * that is half loaded, offloaded or not loaded. */
void gsv_model_unload(struct gsv_model *model);

/* The same, but keep the weights of a GPU in host memory, so that a reload skips reading and
 * packing. Drops the weights if host memory does not suffice, and on a CPU. */
void gsv_model_offload(struct gsv_model *model);

/* Whether a replica's device is not known to be lost. */
bool gsv_model_has_replica(const struct gsv_model *model, size_t which);

/* Remove a replica. False if it was removed before, or is the last: then the model is lost as a
 * whole. */
bool gsv_model_remove_replica(struct gsv_model *model, size_t which);

/* Wait until its requests have completed, then free everything. Accepts NULL, a pointer to NULL and
 * a half-built model. */
void gsv_model_free(struct gsv_model **model);

/* Report a failure with GPUSERVE_E_DEVICE. Removes each replica whose device is lost; if none is
 * left, starts the failover policy. Any thread that keeps the model's queue alive may call it. */
void gsv_lost_note(struct gsv_model *model);

#endif
