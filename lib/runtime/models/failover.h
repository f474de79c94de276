/*
 * failover.h - handling of a lost device: the model fails or moves to another device.
 *
 *   SERVING --a batch failed, the backend reports the device lost--> MOVING --> SERVING
 *                                                                        `----> LOST
 *
 * A handle with a policy or a callback has its own failover thread. Without one the state goes from
 * SERVING to LOST at once. A model on several devices stays SERVING while one device is left.
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
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    uint32_t policy;       /* gpuserve_lost_policy */
    gpuserve_lost_fn tell; /* callback, may be NULL */
    void *user;
    enum gsv_lost_state state;
    bool is_armed;        /* the handle has a model; until then the thread only waits */
    gpuserve_error cause; /* of the last loss; status 0: no loss so far */
    char from[64];        /* selector of the lost device */
    bool is_stopping;
    bool has_news; /* a replica was lost and the callback was not called yet */
    bool has_thread;
    pthread_t thread;
};

void gsv_lost_init(gpuserve_model *handle);

/* Starts the thread if `options` need one for `model`, which is not installed yet. This is the step
 * that can fail; gsv_lost_arm() cannot. Caller holds `changing`. */
gpuserve_status gsv_lost_start(gpuserve_model *handle, const gpuserve_model_options *options,
                               const struct gsv_model *model, gpuserve_error *error);

/* Stores policy and callback of `options` for the model that is being installed. Caller holds
 * `changing` and the handle's `lock`. */
void gsv_lost_arm(gpuserve_model *handle, const gpuserve_model_options *options);

/* Waits for a move in progress and ends the thread. A loss noted afterwards goes to LOST at
 * once. */
void gsv_lost_stop(gpuserve_model *handle);

/* Frees the rest, after gsv_lost_stop() and after the model's last batch has ended. */
void gsv_lost_reset(gpuserve_model *handle);

/* Plans and loads a model. If its device is lost and the policy allows another one, loads it there.
 * On failure *model is NULL. */
gpuserve_status gsv_lost_load(gpuserve_model *handle, const char *path,
                              const gpuserve_model_options *options, struct gsv_model **model,
                              gpuserve_error *error);

/* Loads a model on another device than its own, if the policy allows one. */
gpuserve_status gsv_lost_load_elsewhere(gpuserve_model *handle, const char *path,
                                        const gpuserve_model_options *options,
                                        struct gsv_model **model, gpuserve_error *error);

/* Counts and logs a loss. Caller holds the lock, or no other thread knows the handle yet. */
void gsv_lost_remember(struct gsv_lost *lost, const char *device, const gpuserve_error *cause);

/* Builds the error of a permanent loss: the cause, and why the move failed. */
void gsv_lost_join_causes(gpuserve_error *cause, const gpuserve_error *moving);

/* After a swap: the state is SERVING again, whatever was lost before. */
void gsv_lost_forget(gpuserve_model *handle);

/* Adds JSON fields: readiness, policy and the last loss. */
void gsv_lost_describe(gpuserve_model *handle, struct gsv_json *json);

#endif
