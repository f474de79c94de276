/*
 * failover.c - handling of a lost device: the handle fails, moves, or continues on other replicas.
 *
 *   batch failed -> backend reports the device lost -> gsv_lost_note() -> failover thread -> move()
 *
 * A worker whose batch failed asks the backend whether the device is lost. A lost replica is
 * removed while others work. If none is left, queued requests fail with the cause. With a policy,
 * the handle's failover thread then suspends the model (suspend.c): its memory is released and new
 * requests wait. The thread loads it on another device, checks that the files are unchanged, and
 * installs it (handle.c). With a callback alone the thread only reports.
 *
 * Locks, in order: the handle's `changing`, the handle's `lock`, lost->lock. The callback is called
 * without locks. A swap writes policy and callback, so they are read under lost->lock, and callback
 * and argument together.
 */
#define _GNU_SOURCE
#include "lib/runtime/models/failover.h"

#include "lib/base/error.h"
#include "lib/runtime/core/json_out.h"
#include "lib/runtime/models/handle.h"

#include <stdio.h>
#include <string.h>

#define ASK_AGAIN_MS 1000

void gsv_lost_init(gpuserve_model *handle)
{
    struct gsv_lost *lost = &handle->lost;

    lost->handle = handle;
    lost->cause = (gpuserve_error)GPUSERVE_ERROR_INIT;
    pthread_mutex_init(&lost->lock, NULL);
    pthread_cond_init(&lost->changed, NULL);
}

/* -------------------------------------------------------------------------------------------
 * loss */

/* The last of the model's devices if all are lost, NULL while one works; of a pipeline, which needs
 * all of them, the first lost one. */
static const struct gsv_device_choice *lost_device(const struct gsv_model *model,
                                                   gpuserve_error *cause)
{
    const bool needs_all = gsv_plan_is_pipeline(&model->plan);
    const struct gsv_device_choice *device = NULL;

    for (size_t i = 0; i < model->plan.n_devices; i++) {
        bool works;

        device = &model->plan.devices[i];
        works = device->backend->device_check(device->facts.index, cause) == GPUSERVE_OK;
        if (works != needs_all)
            return works ? NULL : device;
    }
    return needs_all ? NULL : device;
}

static bool is_current(const struct gsv_model *model)
{
    gpuserve_model *handle = model->lost->handle;
    bool is;

    pthread_mutex_lock(&handle->lock);
    is = handle->current == model;
    pthread_mutex_unlock(&handle->lock);
    return is;
}

void gsv_lost_remember(struct gsv_lost *lost, const char *device, const gpuserve_error *cause)
{
    gpuserve_context *context = lost->handle->context;

    lost->cause = *cause;
    snprintf(lost->from, sizeof(lost->from), "%s", device);
    atomic_fetch_add(&context->metrics.devices_lost, 1);
    gsv_log(context, GPUSERVE_LOG_ERROR, "%s: %s is lost: %s", lost->handle->name, device,
            cause->message);
}

/* Caller holds lost->lock. */
static void set_state(struct gsv_lost *lost, enum gsv_lost_state state)
{
    struct gsv_metrics *metrics = &lost->handle->context->metrics;

    if (state == GSV_LOST && lost->state != GSV_LOST)
        atomic_fetch_add(&metrics->models_lost, 1);
    if (state != GSV_LOST && lost->state == GSV_LOST)
        atomic_fetch_sub(&metrics->models_lost, 1);
    lost->state = state;
    pthread_cond_broadcast(&lost->changed);
}

static bool has_thread(struct gsv_lost *lost)
{
    bool has;

    pthread_mutex_lock(&lost->lock);
    has = lost->has_thread;
    pthread_mutex_unlock(&lost->lock);
    return has;
}

/* If the current model's device is lost, the state becomes MOVING, or LOST without a thread. True
 * if it became LOST. */
static bool notice(struct gsv_model *model, gpuserve_error *cause)
{
    const struct gsv_device_choice *device = lost_device(model, cause);
    struct gsv_lost *lost = model->lost;
    bool at_once = false;

    if (!lost || !device || !is_current(model))
        return false;
    pthread_mutex_lock(&lost->lock);
    if (lost->state == GSV_SERVING) {
        char selector[64];

        gsv_device_selector(device, selector, sizeof(selector));
        gsv_lost_remember(lost, selector, cause);
        at_once = !lost->has_thread;
        set_state(lost, at_once ? GSV_LOST : GSV_MOVING);
    }
    pthread_mutex_unlock(&lost->lock);
    return at_once;
}

static void tell_of_replica(struct gsv_model *model, size_t which, const gpuserve_error *cause)
{
    struct gsv_lost *lost = model->lost;
    char selector[64], left[64];

    gsv_device_selector(&model->plan.devices[which], selector, sizeof(selector));
    gsv_plan_selector(&model->plan, ~atomic_load(&model->lost_replicas), left, sizeof(left));
    pthread_mutex_lock(&lost->lock);
    gsv_lost_remember(lost, selector, cause);
    lost->has_news = true;
    pthread_cond_broadcast(&lost->changed);
    pthread_mutex_unlock(&lost->lock);
    gsv_log(model->context, GPUSERVE_LOG_WARNING, "%s: continues without %s on %s", model->name,
            selector, left);
}

/* Removes replicas whose device is lost, while another works. Every thread that meets the loss runs
 * this; on return the replicas no longer get batches. */
static void take_out_replicas(struct gsv_model *model)
{
    if (!model->lost || model->plan.n_replicas == 1 || lost_device(model, NULL))
        return;
    for (size_t i = 0; i < model->plan.n_replicas; i++) {
        const struct gsv_device_choice *device = &model->plan.devices[i];
        gpuserve_error cause = GPUSERVE_ERROR_INIT;

        if (device->backend->device_check(device->facts.index, &cause) == GPUSERVE_OK)
            continue;
        if (model->batcher)
            gsv_batcher_retire(model->batcher, (int32_t)i);
        if (gsv_model_remove_replica(model, i))
            tell_of_replica(model, i, &cause);
    }
}

void gsv_lost_note(struct gsv_model *model)
{
    gpuserve_error cause = GPUSERVE_ERROR_INIT;

    take_out_replicas(model);
    if (notice(model, &cause) && model->batcher)
        gsv_batcher_break(model->batcher, &cause);
}

void gsv_lost_forget(gpuserve_model *handle)
{
    pthread_mutex_lock(&handle->lost.lock);
    set_state(&handle->lost, GSV_SERVING);
    pthread_mutex_unlock(&handle->lost.lock);
}

/* -----------------------------------------------------------------------------------------
 * thread */

/* The files may have been replaced since the model was opened. */
static gpuserve_status check_same(const gpuserve_model *handle, const struct gsv_model *fresh,
                                  gpuserve_error *error)
{
    const char *was = handle->current->files;

    if (strcmp(fresh->files, was) == 0)
        return GPUSERVE_OK;
    return gsv_fail(
        error, GPUSERVE_E_MISMATCH,
        "%s: the files changed since the model was opened: the fingerprint was %s and is %s",
        handle->name, handle->current->fingerprint, fresh->fingerprint);
}

/* Caller holds `changing`, and the old model is suspended. */
static gpuserve_status exchange(gpuserve_model *handle, gpuserve_error *error)
{
    struct gsv_model *fresh = NULL, *old;
    struct gsv_model_info *info = NULL;
    gpuserve_status st = gsv_lost_load_elsewhere(handle, handle->load_options.path,
                                                 &handle->load_options.options, &fresh, error);

    if (st == GPUSERVE_OK)
        st = check_same(handle, fresh, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_info_create(&info, fresh, error);
    if (st != GPUSERVE_OK) {
        gsv_model_free(&fresh);
        return st;
    }
    old = gsv_handle_exchange(handle, fresh, info, NULL);
    gsv_model_free(&old);
    return st;
}

/* A copy under the lock: the loss of another replica may be recorded meanwhile. */
static gpuserve_error cause_of(struct gsv_lost *lost)
{
    gpuserve_error cause;

    pthread_mutex_lock(&lost->lock);
    cause = lost->cause;
    pthread_mutex_unlock(&lost->lock);
    return cause;
}

static uint32_t policy_of(struct gsv_lost *lost)
{
    uint32_t policy;

    pthread_mutex_lock(&lost->lock);
    policy = lost->policy;
    pthread_mutex_unlock(&lost->lock);
    return policy;
}

/* True if the model serves again. Caller holds `changing`. */
static bool move(gpuserve_model *handle)
{
    struct gsv_lost *lost = &handle->lost;
    const gpuserve_error cause = cause_of(lost);
    gpuserve_error moving = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    if (!handle->is_suspended)
        gsv_batcher_break(handle->current->batcher, &cause);
    if (policy_of(lost) == GPUSERVE_LOST_FAIL)
        return false;
    gsv_handle_suspend(handle, false, false); /* no offload: a lost device cannot be read */
    st = exchange(handle, &moving);
    if (st == GPUSERVE_OK) {
        atomic_fetch_add(&handle->context->metrics.models_moved, 1);
        return true;
    }
    gsv_log(handle->context, GPUSERVE_LOG_ERROR, "%s: cannot move: %s", handle->name,
            moving.message);
    pthread_mutex_lock(&lost->lock);
    gsv_lost_join_causes(&lost->cause, &moving);
    pthread_mutex_unlock(&lost->lock);
    return false;
}

static void tell(struct gsv_lost *lost, gpuserve_status status)
{
    const struct gsv_model *model;
    gpuserve_lost_fn callback;
    gpuserve_error cause;
    char device[64];
    void *user;

    pthread_mutex_lock(&lost->handle->lock);
    model = lost->handle->current;
    gsv_plan_selector(&model->plan, ~atomic_load(&model->lost_replicas), device, sizeof(device));
    pthread_mutex_unlock(&lost->handle->lock);
    pthread_mutex_lock(&lost->lock);
    callback = lost->tell;
    user = lost->user;
    cause = lost->cause;
    pthread_mutex_unlock(&lost->lock);
    if (callback)
        callback(user, status, status == GPUSERVE_OK ? device : NULL, &cause);
}

static void handle_loss(gpuserve_model *handle)
{
    struct gsv_lost *lost = &handle->lost;
    bool is_swapped, serves;

    if (policy_of(lost) != GPUSERVE_LOST_FAIL)
        tell(lost, GPUSERVE_E_BUSY);
    pthread_mutex_lock(&handle->changing);
    is_swapped = !lost_device(handle->current, NULL); /* swapped by the caller meanwhile */
    serves = is_swapped || move(handle);
    pthread_mutex_lock(&lost->lock);
    set_state(lost, serves ? GSV_SERVING : GSV_LOST);
    pthread_mutex_unlock(&lost->lock);
    pthread_mutex_unlock(&handle->changing);
    tell(lost, serves ? GPUSERVE_OK : GPUSERVE_E_DEVICE);
}

static void *wait_for_loss(void *argument)
{
    struct gsv_lost *lost = argument;
    pthread_setname_np(pthread_self(), "gpuserve-lost");
    for (;;) {
        bool goes_on, moves;

        pthread_mutex_lock(&lost->lock);
        while (!lost->is_stopping &&
               !(lost->is_armed && (lost->state == GSV_MOVING || lost->has_news)))
            pthread_cond_wait(&lost->changed, &lost->lock);
        goes_on = !lost->is_stopping;
        moves = lost->state == GSV_MOVING;
        lost->has_news = false;
        pthread_mutex_unlock(&lost->lock);
        if (!goes_on)
            return NULL;
        if (moves)
            handle_loss(lost->handle);
        else
            tell(lost, GPUSERVE_OK);
    }
}

gpuserve_status gsv_lost_start(gpuserve_model *handle, const gpuserve_model_options *options,
                               const struct gsv_model *model, gpuserve_error *error)
{
    struct gsv_lost *lost = &handle->lost;
    const bool needs_thread = !model->plan.device.is_cpu &&
                              (options->on_device_lost != GPUSERVE_LOST_FAIL || options->lost);
    gpuserve_status st = GPUSERVE_OK;

    pthread_mutex_lock(&lost->lock);
    if (needs_thread && !lost->has_thread) {
        const int failed = gsv_start_thread(&lost->thread, wait_for_loss, lost);

        lost->has_thread = failed == 0;
        if (failed)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "cannot start a thread: error %d", failed);
    }
    pthread_mutex_unlock(&lost->lock);
    return st;
}

void gsv_lost_arm(gpuserve_model *handle, const gpuserve_model_options *options)
{
    struct gsv_lost *lost = &handle->lost;

    pthread_mutex_lock(&lost->lock);
    lost->policy = options->on_device_lost;
    lost->tell = options->lost;
    lost->user = options->lost_user;
    lost->is_armed = true;
    pthread_cond_broadcast(&lost->changed);
    pthread_mutex_unlock(&lost->lock);
}

void gsv_lost_stop(gpuserve_model *handle)
{
    struct gsv_lost *lost = &handle->lost;

    pthread_mutex_lock(&lost->lock);
    lost->is_stopping = true;
    pthread_cond_broadcast(&lost->changed);
    pthread_mutex_unlock(&lost->lock);
    if (has_thread(lost))
        pthread_join(lost->thread, NULL);
    pthread_mutex_lock(&lost->lock);
    lost->has_thread = false;
    pthread_mutex_unlock(&lost->lock);
}

void gsv_lost_reset(gpuserve_model *handle)
{
    struct gsv_lost *lost = &handle->lost;

    if (lost->state == GSV_LOST)
        atomic_fetch_sub(&handle->context->metrics.models_lost, 1);
    pthread_cond_destroy(&lost->changed);
    pthread_mutex_destroy(&lost->lock);
}

/* ----------------------------------------------------------------------------------------
 * queries */

GPUSERVE_API gpuserve_status gpuserve_model_ready(gpuserve_model *handle, gpuserve_error *error)
{
    gpuserve_error cause = GPUSERVE_ERROR_INIT;
    struct gsv_lost *lost;
    struct gsv_model *model;
    enum gsv_lost_state state;
    bool refuses, is_lost;
    gpuserve_status st = gsv_handle_pin(handle, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    lost = &handle->lost;
    is_lost = lost_device(model, &cause) != NULL;
    if (is_lost && has_thread(lost)) /* another model on the device may have met the fault first */
        notice(model, &cause);
    gsv_handle_unpin(handle, &model);
    pthread_mutex_lock(&handle->lock);
    refuses = handle->is_suspended && handle->refuses;
    pthread_mutex_unlock(&handle->lock);
    pthread_mutex_lock(&lost->lock);
    state = lost->state;
    if (state != GSV_SERVING)
        cause = lost->cause;
    is_lost = state == GSV_LOST || (is_lost && lost->policy == GPUSERVE_LOST_FAIL);
    pthread_mutex_unlock(&lost->lock);
    if (is_lost) {
        gsv_error_copy(error, &cause);
        return GPUSERVE_E_DEVICE;
    }
    if (state == GSV_SERVING && !refuses)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_BUSY, "%s: %s", handle->name,
             refuses ? "suspended" : "its device is lost; the model is moving to another device");
    return gsv_retry_after(error, GPUSERVE_E_BUSY, ASK_AGAIN_MS);
}

static const char *policy_name(uint32_t policy)
{
    static const char *const names[] = { "fail", "cpu", "gpu", "gpu-or-cpu" };

    return policy < sizeof(names) / sizeof(names[0]) ? names[policy] : "unknown";
}

void gsv_lost_describe(gpuserve_model *handle, struct gsv_json *json)
{
    struct gsv_lost *lost = &handle->lost;
    struct gsv_json past = gsv_json_begin();

    pthread_mutex_lock(&lost->lock);
    gsv_json_add_bool(json, "ready", lost->state == GSV_SERVING);
    gsv_json_add_string(json, "on_device_lost", policy_name(lost->policy));
    if (lost->cause.status != GPUSERVE_OK) {
        gsv_json_add_string(&past, "device", lost->from);
        gsv_json_add_string(&past, "cause", lost->cause.message);
        gsv_json_add_string(&past, "hint", lost->cause.hint);
    }
    pthread_mutex_unlock(&lost->lock);
    gsv_json_add_object(json, "device_lost", past);
}
