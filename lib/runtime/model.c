/*
 * model.c - opening and closing a model.
 *
 *   plan (headers, device, bytes) -> budget -> device -> weights -> fingerprint -> queue -> threads
 *
 * Nothing is read from the weights before the plan's bytes are found to fit. Closing goes the same
 * way back, and so does an opening that fails half way.
 */
#include "lib/runtime/model.h"

#include "lib/base/error.h"
#include "lib/runtime/calibration.h"
#include "lib/runtime/fingerprint.h"

#include <inttypes.h>
#include <string.h>

gpuserve_status gsv_model_check(const gpuserve_model *model, gpuserve_error *error)
{
    if (!model)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the model is NULL");
    return gsv_forked(&model->context->guard) ? gsv_fail_forked(error) : GPUSERVE_OK;
}

static gpuserve_status reserve(gpuserve_model *model, gpuserve_error *error)
{
    gpuserve_status st = gsv_plan_check_fits(&model->plan, error);

    if (st == GPUSERVE_OK) /* again under the lock: another thread may open a model as well */
        st = gsv_context_reserve(model->context, model->plan.total_bytes,
                                 gsv_dir_path(model->plan.dir), error);
    if (st == GPUSERVE_OK)
        model->reserved_bytes = model->plan.total_bytes;
    return st;
}

static gpuserve_status load_net(gpuserve_model *model, gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    struct gsv_net_options options = {
        .dtype = plan->dtype,
        .use_mmap = plan->use_mmap,
        .n_threads = plan->n_workers,
    };
    struct gsv_calibration calibration = { 0 };
    gpuserve_status st = GPUSERVE_OK;

    if (plan->dtype == GPUSERVE_DTYPE_INT8) {
        st = gsv_calibration_make(&calibration, plan, error);
        options.calibration = &calibration.batch;
    }
    if (st == GPUSERVE_OK)
        st = gsv_net_load(&model->net, plan->spec, plan->device.backend, model->device, &options,
                          error);
    gsv_calibration_reset(&calibration);
    return st;
}

static gpuserve_status start(gpuserve_model *model, gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    const struct gsv_batcher_options options = {
        .metrics = &model->context->metrics,
        .max_queue_tokens = plan->max_queue_tokens,
        .max_batch_tokens = plan->narrow.max_tokens,
        .max_sequences = plan->narrow.max_sequences,
        .n_workers = plan->n_workers,
        .has_wide = plan->has_wide,
    };
    gpuserve_status st = gsv_batcher_create(&model->batcher, &options, error);

    return st == GPUSERVE_OK ? gsv_workers_start(&model->workers, model, error) : st;
}

static void count(gpuserve_model *model, const char *path)
{
    struct gsv_model_metrics *metrics = &model->metrics;

    gsv_device_selector(&model->plan.device, metrics->device, sizeof(metrics->device));
    metrics->dtype = gsv_dtype_name(model->plan.dtype);
    metrics->memory = model->plan.memory;
    gsv_metrics_model_add(&model->context->metrics, metrics, path);
    model->is_counted = true;
}

static gpuserve_status load(gpuserve_model *model, gpuserve_error *error)
{
    const struct gsv_device_choice *device = &model->plan.device;
    gpuserve_status st = reserve(model, error);

    if (st == GPUSERVE_OK)
        st = device->backend->device_open(&model->device, device->facts.index, error);
    if (st == GPUSERVE_OK)
        st = load_net(model, error);
    if (st == GPUSERVE_OK)
        st = gsv_fingerprint(model->fingerprint, &model->plan, model->net, error);
    return st == GPUSERVE_OK ? start(model, error) : st;
}

/* Accepts a half-built model. */
static void model_free(gpuserve_model *model)
{
    if (model->batcher)
        gsv_batcher_close(model->batcher);
    gsv_workers_stop(&model->workers);
    gsv_net_free(&model->net);
    if (model->device)
        model->plan.device.backend->device_close(&model->device);
    gsv_batcher_unref(&model->batcher);
    gsv_encoders_reset(&model->encoders);
    gsv_plan_reset(&model->plan);
    if (model->is_counted)
        gsv_metrics_model_remove(&model->context->metrics, &model->metrics);
    gsv_context_release(model->context, model->reserved_bytes);
    gpuserve_context_unref(&model->context);
    free(model);
}

static gpuserve_status open_in(gpuserve_model **out, gpuserve_context *context, const char *path,
                               const gpuserve_model_options *options, gpuserve_error *error)
{
    gpuserve_model *model = gsv_alloc_array(1, sizeof(*model));
    gpuserve_status st;

    if (!model)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    model->context = gpuserve_context_ref(context);
    gsv_encoders_init(&model->encoders);
    st = gsv_plan_read(&model->plan, context, path, options, error);
    if (st == GPUSERVE_OK)
        st = gsv_plan_size(&model->plan, context, options, error);
    if (st == GPUSERVE_OK)
        st = load(model, error);
    if (st != GPUSERVE_OK) {
        model_free(model);
        return st;
    }
    count(model, path);
    gsv_log(context, GPUSERVE_LOG_INFO, "%s: %s on %s (%s), %d threads, %" PRIu64 " bytes", path,
            gsv_dtype_name(model->plan.dtype), model->plan.device.facts.name,
            model->plan.device.reason, model->plan.n_workers, model->plan.total_bytes);
    *out = model;
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_model_open(gpuserve_model **out, gpuserve_context *context,
                                                 const char *path,
                                                 const gpuserve_model_options *given,
                                                 gpuserve_error *error)
{
    gpuserve_context *own = NULL;
    gpuserve_model_options options;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`model` is NULL");
    *out = NULL;
    st = gsv_read_model_options(&options, given, error);
    if (st == GPUSERVE_OK)
        st = context ? gsv_context_check(context, error)
                     : gpuserve_context_create(&own, NULL, error);
    if (st == GPUSERVE_OK)
        st = open_in(out, context ? context : own, path, &options, error);
    gpuserve_context_unref(&own); /* the model has its own share */
    return st;
}

GPUSERVE_API void gpuserve_model_close(gpuserve_model **model)
{
    gpuserve_model *ended = model ? *model : NULL;

    if (!ended)
        return;
    *model = NULL;
    /* In a child the threads do not exist and a lock may be held by one of them: leave it. */
    if (gsv_forked(&ended->context->guard))
        return;
    model_free(ended);
}

GPUSERVE_API size_t gpuserve_model_dim(const gpuserve_model *model)
{
    return model ? (size_t)model->plan.facts->dim : 0;
}

GPUSERVE_API size_t gpuserve_model_max_tokens(const gpuserve_model *model)
{
    return model ? (size_t)model->plan.max_tokens : 0;
}

GPUSERVE_API size_t gpuserve_model_label_count(const gpuserve_model *model)
{
    return model ? model->plan.facts->n_labels : 0;
}

GPUSERVE_API const char *gpuserve_model_label(const gpuserve_model *model, size_t index)
{
    return model && index < model->plan.facts->n_labels ? model->plan.facts->labels[index] : NULL;
}

GPUSERVE_API const char *gpuserve_model_fingerprint(const gpuserve_model *model)
{
    return model ? model->fingerprint : NULL;
}
