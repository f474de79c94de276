/*
 * failover_load.c - loads a model on a device that still works.
 *
 * The policy decides the candidates: other GPUs in index order, the CPU, or GPUs before the CPU.
 * The first device that loads the model is used. Runs in gpuserve_model_open() or in the failover
 * thread.
 */
#include "lib/runtime/models/failover.h"

#include "lib/base/error.h"
#include "lib/runtime/devices/selector.h"
#include "lib/runtime/models/handle.h"

#include <stdio.h>
#include <string.h>

static gpuserve_status load_on(gpuserve_model *handle, const char *path,
                               const gpuserve_model_options *options, struct gsv_model **model,
                               gpuserve_error *error)
{
    struct gsv_lost *lost = &handle->lost;
    gpuserve_status st = gsv_model_plan(model, handle->context, handle->name, path, options, error);

    if (st != GPUSERVE_OK)
        return st;
    (*model)->lost = lost;
    if (lost->from[0])
        snprintf((*model)->plan.device.reason, sizeof((*model)->plan.device.reason),
                 "moved from %s: %.400s", lost->from, lost->cause.message);
    st = gsv_model_load(*model, handle->completions, options, 0, error);
    if (st != GPUSERVE_OK)
        gsv_model_free(model);
    return st;
}

/* `device` is one device, or those of a pipeline. */
static gpuserve_status load_on_device(gpuserve_model *handle, const char *path,
                                      const gpuserve_model_options *given, const char *device,
                                      bool pipeline, struct gsv_model **model,
                                      gpuserve_error *error)
{
    gpuserve_model_options options = *given;
    gpuserve_status st;

    options.device = device;
    options.pipeline = pipeline;
    st = load_on(handle, path, &options, model, error);
    if (st != GPUSERVE_E_UNSUPPORTED || options.dtype == GPUSERVE_DTYPE_DEFAULT)
        return st;
    options.dtype = GPUSERVE_DTYPE_DEFAULT; /* this device may not support the requested dtype */
    return load_on(handle, path, &options, model, error);
}

/* The GPUs that still work, if these are several. */
static gpuserve_status load_as_pipeline(gpuserve_model *handle, const char *path,
                                        const gpuserve_model_options *options,
                                        struct gsv_model **model, gpuserve_error *error)
{
    const gpuserve_status st = load_on_device(handle, path, options, "cuda:*", true, model, error);

    if (st != GPUSERVE_OK)
        gsv_log(handle->context, GPUSERVE_LOG_WARNING,
                "%s: cannot move to the other GPUs as a pipeline: %s", handle->name,
                error->message);
    return st;
}

static gpuserve_status load_on_gpu(gpuserve_model *handle, const char *path,
                                   const gpuserve_model_options *options, struct gsv_model **model,
                                   gpuserve_error *error)
{
    const struct gpuserve_backend *backend;
    int32_t count;
    gpuserve_status st = gsv_device_cuda(handle->context, &backend, &count, error);

    if (st != GPUSERVE_OK)
        return st;
    if (options->pipeline && load_as_pipeline(handle, path, options, model, error) == GPUSERVE_OK)
        return GPUSERVE_OK;
    st = gsv_fail(error, GPUSERVE_E_DEVICE, "no other GPU works");
    for (int32_t i = 0; i < count; i++) {
        char device[32];

        if (backend->device_check(i, NULL) != GPUSERVE_OK)
            continue;
        snprintf(device, sizeof(device), "cuda:%d", i);
        st = load_on_device(handle, path, options, device, false, model, error);
        if (st == GPUSERVE_OK)
            return st;
        gsv_log(handle->context, GPUSERVE_LOG_WARNING, "%s: cannot move to %s: %s", handle->name,
                device, error->message);
    }
    return st;
}

gpuserve_status gsv_lost_load_elsewhere(gpuserve_model *handle, const char *path,
                                        const gpuserve_model_options *options,
                                        struct gsv_model **model, gpuserve_error *error)
{
    const uint32_t policy = options->on_device_lost;
    gpuserve_status st = GPUSERVE_E_DEVICE;

    if (policy == GPUSERVE_LOST_GPU || policy == GPUSERVE_LOST_GPU_OR_CPU)
        st = load_on_gpu(handle, path, options, model, error);
    if (st != GPUSERVE_OK && policy != GPUSERVE_LOST_GPU)
        st = load_on_device(handle, path, options, "cpu", false, model, error);
    return st;
}

void gsv_lost_join_causes(gpuserve_error *cause, const gpuserve_error *moving)
{
    char message[GPUSERVE_ERROR_TEXT_BYTES];

    snprintf(message, sizeof(message), "%.300s; and the model cannot move: %.150s", cause->message,
             moving->message);
    memcpy(cause->message, message, sizeof(message));
}

/* Finds the lost device. A selector of one number matches only that device; with any other one
 * ("auto", "cuda:*", a list, a UUID) the first lost device is returned. False if none is lost. */
static bool find_lost(gpuserve_context *context, const char *selector, char *device,
                      size_t capacity, gpuserve_error *cause)
{
    const struct gpuserve_backend *backend;
    struct gsv_selector wanted;
    int32_t count;

    if (gsv_selector_parse(&wanted, selector, NULL) != GPUSERVE_OK ||
        gsv_device_cuda(context, &backend, &count, NULL) != GPUSERVE_OK)
        return false;
    for (int32_t i = 0; i < count; i++) {
        if (wanted.kind == GSV_SELECT_CUDA && wanted.index != i)
            continue;
        snprintf(device, capacity, "cuda:%d", i);
        if (backend->device_check(i, cause) != GPUSERVE_OK)
            return true;
    }
    return false;
}

gpuserve_status gsv_lost_load(gpuserve_model *handle, const char *path,
                              const gpuserve_model_options *options, struct gsv_model **model,
                              gpuserve_error *error)
{
    gpuserve_error cause = GPUSERVE_ERROR_INIT, moving = GPUSERVE_ERROR_INIT;
    char device[64];
    const gpuserve_status st = load_on(handle, path, options, model, error);

    if (st != GPUSERVE_E_DEVICE || options->on_device_lost == GPUSERVE_LOST_FAIL ||
        !find_lost(handle->context, options->device, device, sizeof(device), &cause))
        return st;
    gsv_lost_remember(&handle->lost, device, &cause);
    if (gsv_lost_load_elsewhere(handle, path, options, model, &moving) == GPUSERVE_OK) {
        atomic_fetch_add(&handle->context->metrics.models_moved, 1);
        return GPUSERVE_OK;
    }
    gsv_lost_join_causes(&cause, &moving);
    gsv_error_copy(error, &cause);
    return st;
}
