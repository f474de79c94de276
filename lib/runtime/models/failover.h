/*
 * failover.h - what becomes of a handle whose model's device is lost.
 *
 *   SERVING --a batch failed, and the backend says the device is lost--> MOVING --> SERVING
 *                                                                          `------> LOST
 *
 * A handle with a policy or a callback has a thread of its own for this. Without one it goes from
 * SERVING to LOST at once. A model on several devices is SERVING while one of them is left.
 */
#ifndef GSV_RUNTIME_FAILOVER_H
#define GSV_RUNTIME_FAILOVER_H

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdbool.h>

struct gsv_json;
struct gsv_model;

enum gsv_lost_state { GSV_SERVING, GSV_MOVING, GSV_LOST };

struct gsv_lost {
    gpuserve_model *handle;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    uint32_t policy;       /* gpuserve_lost_policy */
    gpuserve_lost_fn tell; /* may be NULL */
    void *user;
    enum gsv_lost_state state;
    gpuserve_error cause; /* of the last loss; status 0: there was none */
    char from[64];        /* the device that was lost */
    bool is_stopping;
    bool has_news; /* a replica was lost, and nobody was told yet */
    bool has_thread;
    pthread_t thread;
};

void gsv_lost_init(gpuserve_model *handle);

/* Be ready for the loss of the device of `model`, as `options` say. */
gpuserve_status gsv_lost_arm(gpuserve_model *handle, const gpuserve_model_options *options,
                             const struct gsv_model *model, gpuserve_error *error);

/* Wait for a move that is under way, and end the thread. A loss noted afterwards fails at once. */
void gsv_lost_stop(gpuserve_model *handle);

/* Free the rest, after gsv_lost_stop() and after the model's last batch has ended. */
void gsv_lost_reset(gpuserve_model *handle);

/* Plan and load a model; elsewhere, when its device is lost and the policy has another place. On
 * failure *model is NULL. */
gpuserve_status gsv_lost_load(gpuserve_model *handle, const char *path,
                              const gpuserve_model_options *options, struct gsv_model **model,
                              gpuserve_error *error);

/* Open a model on another device than its own, where its policy allows one. */
gpuserve_status gsv_lost_load_elsewhere(gpuserve_model *handle, const char *path,
                                        const gpuserve_model_options *options,
                                        struct gsv_model **model, gpuserve_error *error);

/* Count and log a loss. The lock is held, or no other thread knows the handle yet. */
void gsv_lost_remember(struct gsv_lost *lost, const char *device, const gpuserve_error *cause);

/* What the caller is told when the loss stays: the cause, and why moving did not help. */
void gsv_lost_join_causes(gpuserve_error *cause, const gpuserve_error *moving);

/* Another model was put in place: whatever was lost is of the past. */
void gsv_lost_forget(gpuserve_model *handle);

/* Whether it is ready, the policy, and what was lost. */
void gsv_lost_describe(gpuserve_model *handle, struct gsv_json *json);

#endif
