/*
 * model.c - loads, offloads, unloads and frees a model.
 *
 *   plan (headers, device, bytes) -> budget -> device -> weights -> fingerprint -> queue -> threads
 *
 * No weights are read before the planned bytes are reserved in the budget. Unloading runs the steps
 * in reverse order, and so does a load that fails half way. Loading and unloading are serialised by
 * the handle's `changing`; gsv_model_remove_replica() may run concurrently.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "lib/runtime/model.h"

#include "lib/base/error.h"
#include "lib/runtime/models/load_steps.h"
#include "lib/runtime/models/failover.h"
#include "lib/runtime/models/weights_cache.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

gpuserve_status gsv_model_plan(struct gsv_model **out, gpuserve_context *context, const char *name,
                               const char *path, const gpuserve_model_options *options,
                               gpuserve_error *error)
{
    struct gsv_model *model = gsv_alloc_array(1, sizeof(*model));
    gpuserve_status st;

    *out = NULL;
    if (!model)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    model->context = gpuserve_context_ref(context);
    gsv_encoders_init(&model->encoders);
    pthread_mutex_init(&model->entity.lock, NULL);
    model->name = gsv_copy_text(name, strlen(name));
    st = model->name ? gsv_plan_read(&model->plan, context, path, options, error)
                     : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's name");
    if (st == GPUSERVE_OK)
        st = gsv_plan_size(&model->plan, context, options, error);
    if (st == GPUSERVE_OK &&
        !gsv_metrics_model_init(&model->metrics, (uint32_t)model->plan.narrow.max_sequences))
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's counters");
    if (st == GPUSERVE_OK)
        *out = model;
    else
        gsv_model_free(&model);
    return st;
}

bool gsv_model_has_replica(const struct gsv_model *model, size_t which)
{
    return (atomic_load(&model->lost_replicas) >> which & 1) == 0;
}

/* Weights of a loaded model: those of the first replica whose device works. */
static const struct gsv_net *any_net(const struct gsv_model *model)
{
    size_t i = 0;

    while (!gsv_model_has_replica(model, i) && i + 1 < model->plan.n_replicas)
        i++;
    return model->replicas[i].net;
}

static gpuserve_status load_replica(struct gsv_model *model, size_t which,
                                    const struct gsv_net_options *given, gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    const size_t n = gsv_plan_stages(plan);
    const struct gsv_device_choice *devices = &plan->devices[which * n];
    struct gsv_replica *replica = &model->replicas[which];
    struct gsv_pipeline_stage stages[GSV_MAX_CUDA];
    struct gsv_net_options options = *given;
    gpuserve_status st = GPUSERVE_OK;

    replica->devices = gsv_alloc_array(n, sizeof(*replica->devices));
    if (!replica->devices)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        st = devices[i].backend->device_open(&replica->devices[i], devices[i].facts.index, error);
        stages[i] = (struct gsv_pipeline_stage){ replica->devices[i], plan->layers[i] };
    }
    options.stages = stages;
    options.n_stages = (int32_t)n;
    return st == GPUSERVE_OK ? gsv_net_load(&replica->net, plan->spec, devices->backend,
                                            replica->devices[n - 1], &options, error)
                             : st;
}

static size_t offloaded_bytes(const struct gsv_plan *plan)
{
    return (size_t)(plan->memory.weights / plan->n_replicas);
}

static void drop_offloaded(struct gsv_model *model)
{
    if (model->offloaded)
        munmap(model->offloaded, offloaded_bytes(&model->plan));
    model->offloaded = NULL;
}

static void unload_replica(struct gsv_model *model, size_t which)
{
    struct gsv_replica *replica = &model->replicas[which];

    gsv_net_free(&replica->net);
    for (size_t i = 0; replica->devices && i < gsv_plan_stages(&model->plan); i++)
        if (replica->devices[i])
            model->plan.device.backend->device_close(&replica->devices[i]);
    free(replica->devices);
    replica->devices = NULL;
}

static void unload_replicas(struct gsv_model *model)
{
    for (size_t i = 0; model->replicas && i < model->plan.n_replicas; i++)
        unload_replica(model, i);
    free(model->replicas);
    model->replicas = NULL;
    drop_offloaded(model);
}

static gpuserve_status restore_replicas(struct gsv_model *model, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < model->plan.n_replicas && st == GPUSERVE_OK; i++) {
        if (gsv_model_has_replica(model, i))
            st = gsv_net_reload(model->replicas[i].net, model->offloaded, error);
    }
    if (st != GPUSERVE_OK)
        return st;
    drop_offloaded(model);
    return GPUSERVE_OK;
}

/* One copy serves all replicas: a backend packs equal weights equally. */
static bool offload_replicas(struct gsv_model *model)
{
    const struct gsv_plan *plan = &model->plan;
    gpuserve_status st = GPUSERVE_OK;
    void *memory, *copy;

    /* mmap, so that the memory returns to the system when it is dropped. */
    memory = mmap(NULL, offloaded_bytes(plan), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    if (memory == MAP_FAILED)
        return false;
    model->offloaded = memory;
    copy = memory;
    for (size_t i = 0; i < plan->n_replicas && st == GPUSERVE_OK; i++) {
        if (!gsv_model_has_replica(model, i))
            continue;
        st = gsv_net_offload(model->replicas[i].net, copy, NULL);
        copy = NULL;
    }
    return st == GPUSERVE_OK;
}

/* With a failover policy, a replica whose device is already lost is skipped while another works. */
static gpuserve_status load_live_replicas(struct gsv_model *model,
                                          const struct gsv_net_options *options,
                                          uint64_t *bytes_read, gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < plan->n_replicas && st == GPUSERVE_OK; i++) {
        *bytes_read = i * plan->facts->file_bytes;
        if (!gsv_model_has_replica(model, i))
            continue;
        st = load_replica(model, i, options, error);
        if (st != GPUSERVE_E_DEVICE || !plan->may_move)
            continue;
        gsv_lost_note(model);
        if (!gsv_model_has_replica(model, i)) {
            unload_replica(model, i);
            st = GPUSERVE_OK;
        }
    }
    return st;
}

/* Progress of reading the weights, over all replicas. */
struct model_reading {
    const gpuserve_model_options *options;
    uint64_t total;  /* size of the files in bytes */
    uint64_t before; /* bytes read by replicas already loaded, each the whole files */
    uint64_t n_replicas;
};

static int32_t tell_read(void *user, uint64_t bytes)
{
    const struct model_reading *reading = user;
    const uint64_t once = bytes < reading->total ? bytes : reading->total;
    const uint64_t done = (reading->before + once) / reading->n_replicas;

    if (done >= reading->total) /* completion is reported after the transfer to the devices */
        return 0;
    return reading->options->progress(reading->options->progress_user, GPUSERVE_STAGE_WEIGHTS, done,
                                      reading->total);
}

/* The built-in texts of int8, tokenized once for all replicas. */
struct int8_texts {
    const struct gsv_plan *plan;
    struct gsv_calibration calibration, probes;
};

static gpuserve_status make_texts(void *user, gpuserve_error *error)
{
    struct int8_texts *texts = user;

    return texts->calibration.memory
               ? GPUSERVE_OK
               : gsv_calibration_make_int8(&texts->calibration, &texts->probes, texts->plan, error);
}

static gpuserve_status load_replicas(struct gsv_model *model,
                                     const gpuserve_model_options *progress, gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    struct model_reading reading = { progress, plan->facts->file_bytes, 0, plan->n_replicas };
    struct gsv_net_options options = {
        .dtype = plan->dtype,
        .n_threads = plan->n_workers,
        .n_streamed = plan->n_streamed,
        .progress = progress && progress->progress ? tell_read : NULL,
        .progress_user = &reading,
    };
    struct int8_texts texts = { .plan = plan };
    struct gsv_weights_cache cache;
    gpuserve_status st;

    if (model->offloaded)
        return restore_replicas(model, error);
    model->replicas = gsv_alloc_array(plan->n_replicas, sizeof(*model->replicas));
    if (!model->replicas)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    if (plan->dtype == GPUSERVE_DTYPE_INT8) {
        options.calibration = &texts.calibration.batch;
        options.probes = &texts.probes.batch;
        options.calibrate = make_texts;
        options.calibrate_user = &texts;
    }
    gsv_weights_cache_begin(&cache, model);
    options.packed = cache.is_on ? &cache.file : NULL;
    st = load_live_replicas(model, &options, &reading.before, error);
    if (st == GPUSERVE_OK)
        gsv_weights_cache_end(&cache, model, any_net(model));
    gsv_calibration_reset(&texts.calibration);
    gsv_calibration_reset(&texts.probes);
    return st;
}

/* Reloads the weights in bfloat16, of the same size, if the first texts overflow float16. */
static gpuserve_status widen_where_needed(struct gsv_model *model, gpuserve_error *error)
{
    struct gsv_plan *plan = &model->plan;
    bool overflows = false;
    gpuserve_status st;

    if (!plan->may_widen)
        return GPUSERVE_OK;
    st = gsv_probe_overflow(&overflows, plan, any_net(model), error);
    if (st != GPUSERVE_OK)
        return st;
    plan->may_widen = false;
    if (!overflows)
        return GPUSERVE_OK;
    gsv_log(model->context, GPUSERVE_LOG_WARNING,
            "%s: activations exceed the range of float16: the model is loaded in bfloat16",
            model->name);
    unload_replicas(model);
    plan->dtype = plan->narrow.dtype = plan->wide.dtype = GPUSERVE_DTYPE_BFLOAT16;
    return load_replicas(model, NULL, error);
}

static gpuserve_status start(struct gsv_model *model, struct gsv_completions *completions,
                             gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    const struct gsv_batcher_options options = {
        .cores = plan->device.is_cpu ? model->context->cores : NULL,
        .metrics = &model->context->metrics,
        .completions = completions,
        .max_queue_tokens = plan->max_queue_tokens,
        .max_queue_bytes = plan->max_queue_bytes,
        .max_queue_ns = plan->max_queue_ns,
        .max_tokens_per_second = plan->max_tokens_per_second,
        .max_batch_tokens = plan->narrow.max_tokens,
        .cached_tokens = plan->cached_tokens,
        .max_sequences = plan->narrow.max_sequences,
        .n_workers = plan->n_workers,
        .n_threads = gsv_plan_threads(plan),
        .n_replicas = (int32_t)plan->n_replicas,
        .max_wait_ns = plan->max_wait_ns,
        .has_wide = plan->has_wide,
        .prefers_wide = plan->prefers_wide,
        .retries = plan->may_move,
    };
    gpuserve_status st = gsv_batcher_create(&model->batcher, &options, error);

    if (st == GPUSERVE_OK && plan->cache_bytes > 0)
        st = gsv_cache_create(&model->cache, plan->cache_bytes, &model->context->metrics, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_start(model, error);
    return st == GPUSERVE_OK ? gsv_workers_start(&model->workers, model, error) : st;
}

/* Records the memory on the devices that are not lost; all replicas hold the same amount. */
static void record_memory_without(struct gsv_model *model, uint64_t lost)
{
    const struct gsv_plan *plan = &model->plan;
    const uint64_t n = plan->n_replicas, live = n - (uint64_t)__builtin_popcountll(lost);
    const struct gsv_memory memory = { .weights = plan->memory.weights / n * live,
                                       .workspace = plan->memory.workspace / n * live,
                                       .stream = plan->memory.stream / n * live,
                                       .host = plan->memory.host };
    char device[GSV_DEVICES_BYTES];

    gsv_plan_selector(plan, ~lost, device, sizeof(device));
    gsv_metrics_model_set_memory(&model->context->metrics, &model->metrics, device, &memory);
}

static void record_memory(struct gsv_model *model)
{
    uint64_t lost;

    do { /* another device may be lost meanwhile */
        lost = atomic_load(&model->lost_replicas);
        record_memory_without(model, lost);
    } while (lost != atomic_load(&model->lost_replicas));
}

static void count(struct gsv_model *model)
{
    record_memory(model);
    model->metrics.dtype = gsv_dtype_name(model->plan.dtype);
    gsv_metrics_model_add(&model->context->metrics, &model->metrics, model->name);
    model->is_counted = true;
}

bool gsv_model_remove_replica(struct gsv_model *model, size_t which)
{
    const uint64_t bit = UINT64_C(1) << which;
    const uint64_t all = UINT64_MAX >> (64 - model->plan.n_replicas);
    uint64_t lost = atomic_load(&model->lost_replicas);

    do {
        if ((lost & bit) != 0 || (lost | bit) == all)
            return false;
    } while (!atomic_compare_exchange_weak(&model->lost_replicas, &lost, lost | bit));
    atomic_fetch_add(&model->context->metrics.replicas_lost, 1);
    gsv_budget_release_device(model->context, &model->reservation, which);
    record_memory(model);
    return true;
}

/* The first load defines the vector space; later loads must find the same fingerprint. */
static gpuserve_status take_fingerprint(struct gsv_model *model, gpuserve_error *error)
{
    char fingerprint[sizeof(model->fingerprint)], files[sizeof(model->files)];
    const gpuserve_status st =
        gsv_fingerprint(fingerprint, files, &model->plan, any_net(model), error);

    if (st != GPUSERVE_OK)
        return st;
    if (!model->fingerprint[0]) {
        memcpy(model->fingerprint, fingerprint, sizeof(fingerprint));
        memcpy(model->files, files, sizeof(files));
        /* Written once: callers read it while the model loads again. */
        model->int8 = *gsv_net_int8(any_net(model));
    }
    if (strcmp(model->fingerprint, fingerprint) == 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_MISMATCH,
             "%s: the files changed since the model was opened: the fingerprint was %s and is %s",
             model->name, model->fingerprint, fingerprint);
    return gsv_hint(error, GPUSERVE_E_MISMATCH,
                    "load the changed files with gpuserve_model_swap()");
}

static gpuserve_status tell(const gpuserve_model_options *options, uint64_t done, uint64_t total,
                            gpuserve_error *error)
{
    if (!options || !options->progress ||
        options->progress(options->progress_user, GPUSERVE_STAGE_WEIGHTS, done, total) == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_CANCELLED, "the progress callback cancelled the load");
}

static gpuserve_status load(struct gsv_model *model, struct gsv_completions *completions,
                            const gpuserve_model_options *options, gpuserve_error *error)
{
    const uint64_t bytes = model->plan.facts->file_bytes;
    const bool was_offloaded = model->offloaded != NULL;
    gpuserve_status st = tell(options, 0, bytes, error);

    gsv_nvtx_push(&model->context->nvtx, "gpuserve load %s", model->name);
    if (st == GPUSERVE_OK)
        st = load_replicas(model, options, error);
    if (st == GPUSERVE_OK)
        st = widen_where_needed(model, error);
    gsv_nvtx_pop(&model->context->nvtx);
    if (st == GPUSERVE_OK && !was_offloaded)
        st = take_fingerprint(model, error);
    if (st == GPUSERVE_OK)
        st = tell(options, bytes, bytes, error);
    return st == GPUSERVE_OK ? start(model, completions, error) : st;
}

/* Where the weights are that are not whole on a device. */
static void log_parts(const struct gsv_model *model)
{
    const struct gsv_plan *plan = &model->plan;

    if (plan->n_streamed > 0)
        gsv_log(model->context, GPUSERVE_LOG_INFO,
                "%s: each batch copies the weights of %d of %d layers, %" PRIu64 " bytes",
                model->name, plan->n_streamed, gsv_stored_layers(plan->spec), plan->streamed_bytes);
    for (size_t i = 0; gsv_plan_is_pipeline(plan) && i < plan->n_devices; i++) {
        char selector[32];

        gsv_device_selector(&plan->devices[i], selector, sizeof(selector));
        gsv_log(model->context, GPUSERVE_LOG_INFO,
                "%s: layers %d to %d of %d on %s, %" PRIu64 " bytes", model->name,
                plan->layers[i].first, plan->layers[i].end - 1, gsv_pipeline_layers(plan->spec),
                selector, plan->device_bytes[i]);
    }
}

gpuserve_status gsv_model_load(struct gsv_model *model, struct gsv_completions *completions,
                               const gpuserve_model_options *options, uint64_t until_ns,
                               gpuserve_error *error)
{
    const gpuserve_context *before;
    gpuserve_status st = gsv_budget_reserve(model->context, &model->plan, model->name, until_ns,
                                            &model->reservation, error);

    if (st != GPUSERVE_OK)
        return st;
    before = gsv_log_scope(model->context);
    st = load(model, completions, options, error);
    gsv_log_scope(before);
    gsv_trim_heaps(); /* frees buffers of reading and conversion */
    if (st != GPUSERVE_OK) {
        gsv_model_unload(model);
        return st;
    }
    count(model);
    gsv_log(model->context, GPUSERVE_LOG_INFO, "%s: %s on %s (%s), %d threads, %" PRIu64 " bytes",
            model->name, gsv_dtype_name(model->plan.dtype), model->plan.device.facts.name,
            model->plan.device.reason, gsv_plan_threads(&model->plan), model->plan.total_bytes);
    log_parts(model);
    return GPUSERVE_OK;
}

/* Waits until the model's requests have completed, then ends queue and threads. */
static void stop(struct gsv_model *model)
{
    if (model->batcher)
        gsv_batcher_close(model->batcher);
    gsv_workers_stop(&model->workers);
    gsv_entity_stop(model);
    gsv_batcher_unref(&model->batcher);
    gsv_cache_free(&model->cache);
    if (model->is_counted)
        gsv_metrics_model_remove(&model->context->metrics, &model->metrics);
    model->is_counted = false;
}

static void unload(struct gsv_model *model)
{
    stop(model);
    unload_replicas(model);
    gsv_budget_release(model->context, &model->reservation);
}

void gsv_model_unload(struct gsv_model *model)
{
    unload(model);
    gsv_trim_heaps();
}

void gsv_model_offload(struct gsv_model *model)
{
    stop(model);
    if (model->plan.device.is_cpu || !offload_replicas(model)) {
        gsv_model_unload(model);
        return;
    }
    gsv_budget_release_all_but(model->context, &model->reservation,
                               offloaded_bytes(&model->plan) +
                                   model->plan.n_replicas * model->plan.streamed_bytes);
    gsv_trim_heaps();
}

void gsv_model_free(struct gsv_model **out)
{
    struct gsv_model *model = out ? *out : NULL;

    if (!model)
        return;
    *out = NULL;
    unload(model);
    atomic_fetch_sub(&model->context->metrics.replicas_lost,
                     (uint64_t)__builtin_popcountll(atomic_load(&model->lost_replicas)));
    gsv_encoders_reset(&model->encoders);
    pthread_mutex_destroy(&model->entity.lock);
    gsv_metrics_model_reset(&model->metrics);
    gsv_plan_reset(&model->plan);
    gpuserve_context_unref(&model->context);
    free(model->name);
    free(model);
    gsv_trim_heaps();
}
