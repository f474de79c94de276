/*
 * handle.c - opens, pins, shares and closes a model handle.
 *
 *   open:  allocate -> register -> load -> warm up -> start failover -> gsv_handle_exchange
 *   close: last reference -> stop failover -> unregister -> wait for requests -> free the model
 *
 * Pins and users are counted per model under the handle's `lock`; gsv_handle_exchange() waits until
 * the old model has no pins. The reference count and `info` are atomic.
 *
 * gpuserve_context_find() returns a handle from gsv_handle_exchange() on. So opening cannot fail
 * after it: a handle that fails to open has one reference.
 */
#include "lib/runtime/models/handle.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/models/load_steps.h"

#include <string.h>

#define RETRY_MS 1000 /* retry delay after a refusal because the model is suspended */

gpuserve_status gsv_handle_check(const gpuserve_model *handle, gpuserve_error *error)
{
    if (!handle)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the model is NULL");
    return gsv_forked(&handle->context->fork_check) ? gsv_fail_forked(error) : GPUSERVE_OK;
}

gpuserve_status gsv_handle_check_change(const gpuserve_model *handle, gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check(handle, error);

    if (st != GPUSERVE_OK || !gsv_in_callback())
        return st;
    gsv_fail(error, GPUSERVE_E_INVALID,
             "a completion callback must not swap, suspend or resume a model: the call waits for "
             "callbacks");
    return gsv_hint(error, GPUSERVE_E_INVALID, "make the call in another thread");
}

gpuserve_status gsv_handle_pin(gpuserve_model *handle, struct gsv_model **model,
                               gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check(handle, error);

    *model = NULL;
    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&handle->lock);
    *model = handle->current;
    (*model)->n_pins++;
    pthread_mutex_unlock(&handle->lock);
    return GPUSERVE_OK;
}

static void release(gpuserve_model *handle, struct gsv_model **model, bool was_use)
{
    struct gsv_model *pinned = *model;

    *model = NULL;
    if (!pinned)
        return;
    pthread_mutex_lock(&handle->lock);
    pinned->n_pins--;
    pinned->n_users -= was_use;
    if (pinned->n_pins == 0 || pinned->n_users == 0)
        pthread_cond_broadcast(&handle->unpinned);
    pthread_mutex_unlock(&handle->lock);
}

void gsv_handle_unpin(gpuserve_model *handle, struct gsv_model **model)
{
    release(handle, model, false);
}

void gsv_handle_unuse(gpuserve_model *handle, struct gsv_model **model)
{
    release(handle, model, true);
}

static gpuserve_status fail_suspended(const gpuserve_model *handle, gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_BUSY, "%.200s is suspended", handle->name);
    gsv_hint(error, GPUSERVE_E_BUSY,
             "call gpuserve_model_resume(), or open the model with when_suspended "
             "GPUSERVE_SUSPENDED_RESUME");
    return gsv_retry_after(error, GPUSERVE_E_BUSY, RETRY_MS);
}

/* For a request, lack of memory is temporary and not its fault: TOO_LARGE becomes BUSY or
 * EXPIRED. */
static gpuserve_status resume_for(gpuserve_model *handle, uint64_t until_ns,
                                  struct gsv_model **model, gpuserve_error *error)
{
    gpuserve_status st;

    /* Suspending a model waits for the callbacks of its requests, so a callback must not wait for
     * it. */
    if (handle->refuses || gsv_in_callback())
        return fail_suspended(handle, error);
    st = gsv_handle_resume(handle, until_ns, model, error);
    if (st != GPUSERVE_E_TOO_LARGE)
        return st;
    if (until_ns && gsv_now_ns() >= until_ns)
        return gsv_fail_in(error, GPUSERVE_E_EXPIRED,
                           "the deadline passed before the suspended model was resumed");
    gsv_fail_in(error, GPUSERVE_E_BUSY, "the model is suspended and cannot be resumed");
    return gsv_retry_after(error, GPUSERVE_E_BUSY, RETRY_MS);
}

gpuserve_status gsv_handle_use(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **model,
                               gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check(handle, error);

    *model = NULL;
    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&handle->lock);
    handle->last_used_ns = gsv_now_ns();
    if (!handle->is_suspended) {
        *model = handle->current;
        (*model)->n_pins++;
        (*model)->n_users++;
    }
    pthread_mutex_unlock(&handle->lock);
    return *model ? GPUSERVE_OK : resume_for(handle, until_ns, model, error);
}

bool gsv_handle_is_idle(const gpuserve_model *handle)
{
    return handle->current->n_users == 0 && gsv_batcher_is_idle(handle->current->batcher);
}

struct gsv_model *gsv_handle_exchange(gpuserve_model *handle, struct gsv_model *fresh,
                                      struct gsv_model_info *info,
                                      const gpuserve_model_options *options)
{
    struct gsv_model *old;

    info = gsv_model_infos_add(&handle->infos, info);
    pthread_mutex_lock(&handle->lock);
    old = handle->current;
    handle->current = fresh;
    handle->is_suspended = false;
    handle->n_swaps += old != NULL;
    handle->last_used_ns = gsv_now_ns();
    atomic_store(&handle->info, info);
    if (options)
        gsv_lost_arm(handle, options);
    while (old && old->n_pins > 0)
        pthread_cond_wait(&handle->unpinned, &handle->lock);
    pthread_mutex_unlock(&handle->lock);
    return old;
}

/* --------------------------------------------------------------------------- open and close */

/* Accepts a half-built handle. A batch in flight may still fail and report a lost device. The model
 * therefore stays current, and the locks stay, until gsv_model_free() has ended the last batch. */
static void handle_free(gpuserve_model *handle)
{
    struct gsv_model *model;

    gsv_lost_stop(handle); /* the failover thread may be exchanging the model */
    gsv_registry_remove(handle);
    pthread_mutex_lock(
        &handle->changing); /* an eviction that found the handle earlier may still run */
    pthread_mutex_unlock(&handle->changing);
    model = handle->current;
    gsv_model_free(&model);
    gsv_lost_reset(handle);
    gsv_model_infos_free(handle->infos);
    gsv_load_options_reset(&handle->load_options);
    gsv_completions_unref(&handle->completions);
    pthread_cond_destroy(&handle->unpinned);
    pthread_mutex_destroy(&handle->lock);
    pthread_mutex_destroy(&handle->changing);
    gpuserve_context_unref(&handle->context);
    free(handle->name);
    free(handle->version);
    free(handle);
}

static gpuserve_model *handle_alloc(gpuserve_context *context)
{
    gpuserve_model *handle = gsv_alloc_array(1, sizeof(*handle));

    if (!handle)
        return NULL;
    atomic_init(&handle->n_owners, 1);
    atomic_init(&handle->info, NULL);
    handle->context = gpuserve_context_ref(context);
    pthread_mutex_init(&handle->changing, NULL);
    pthread_mutex_init(&handle->lock, NULL);
    pthread_cond_init(&handle->unpinned, NULL);
    gsv_lost_init(handle);
    return handle;
}

static gpuserve_status fill(gpuserve_model *handle, const char *path,
                            const gpuserve_model_options *options, gpuserve_error *error)
{
    struct gsv_model *model = NULL;
    struct gsv_model_info *info;
    gpuserve_status st;

    handle->completions = gsv_completions_create();
    if (!handle->completions)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    st = gsv_load_options_init(&handle->load_options, path, options, error);
    if (st == GPUSERVE_OK)
        st = gsv_lost_load(handle, path, options, &model, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_warm(model, options, GPUSERVE_WARMUP_OFF, error);
    if (st == GPUSERVE_OK)
        st = gsv_lost_start(handle, options, model, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_info_create(&info, model, error);
    if (st != GPUSERVE_OK) {
        gsv_model_free(&model);
        return st;
    }
    handle->load_options.options.progress = NULL; /* for this load only */
    gsv_handle_exchange(handle, model, info, options);
    return GPUSERVE_OK;
}

static gpuserve_status set_names(gpuserve_model *handle, const char *path,
                                 const gpuserve_model_options *options, gpuserve_error *error)
{
    const char *name = options->name ? options->name : path;
    const char *version = options->version ? options->version : "";

    handle->name = gsv_copy_text(name, strlen(name));
    handle->version = gsv_copy_text(version, strlen(version));
    return handle->name && handle->version
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's name");
}

static gpuserve_status open_in(gpuserve_model **out, gpuserve_context *context, const char *path,
                               const gpuserve_model_options *options, gpuserve_error *error)
{
    gpuserve_model *handle = handle_alloc(context);
    gpuserve_status st;

    if (!handle)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    handle->is_kept = options->keep != 0;
    handle->refuses = options->when_suspended == GPUSERVE_SUSPENDED_REFUSE;
    pthread_mutex_lock(
        &handle->changing); /* registered from now on, but not evictable while this is held */
    st = path ? set_names(handle, path, options, error)
              : gsv_fail(error, GPUSERVE_E_INVALID, "the model's path is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_registry_add(handle, options->name != NULL, error);
    if (st == GPUSERVE_OK)
        st = fill(handle, path, options, error);
    pthread_mutex_unlock(&handle->changing);
    if (st == GPUSERVE_OK)
        *out = handle;
    else
        handle_free(handle);
    return st;
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
    gpuserve_context_unref(&own); /* the model holds its own reference */
    return st;
}

GPUSERVE_API gpuserve_model *gpuserve_model_ref(gpuserve_model *model)
{
    if (model)
        atomic_fetch_add(&model->n_owners, 1);
    return model;
}

GPUSERVE_API void gpuserve_model_close(gpuserve_model **model)
{
    gpuserve_model *ended = model ? *model : NULL;

    if (!ended)
        return;
    *model = NULL;
    /* A forked child has no worker threads, and a lock may be held by one of them: leak the
     * handle. */
    if (gsv_forked(&ended->context->fork_check))
        return;
    if (atomic_fetch_sub(&ended->n_owners, 1) == 1)
        handle_free(ended);
}

/* -------------------------------------------------------------------------------- accessors */

GPUSERVE_API gpuserve_status gpuserve_model_get_properties(const gpuserve_model *model,
                                                           gpuserve_model_properties *properties,
                                                           gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check(model, error);

    return st == GPUSERVE_OK
               ? gsv_write_struct(properties, &atomic_load(&model->info)->properties,
                                  sizeof(*properties), "gpuserve_model_properties", error)
               : st;
}

GPUSERVE_API size_t gpuserve_model_dim(const gpuserve_model *model)
{
    return model ? atomic_load(&model->info)->properties.dim : 0;
}

GPUSERVE_API size_t gpuserve_model_max_tokens(const gpuserve_model *model)
{
    return model ? atomic_load(&model->info)->properties.max_tokens : 0;
}

GPUSERVE_API size_t gpuserve_model_label_count(const gpuserve_model *model)
{
    return model ? atomic_load(&model->info)->properties.n_labels : 0;
}

GPUSERVE_API const char *gpuserve_model_label(const gpuserve_model *model, size_t index)
{
    const struct gsv_model_info *info = model ? atomic_load(&model->info) : NULL;

    return info && index < info->properties.n_labels ? info->labels[index] : NULL;
}

GPUSERVE_API gpuserve_status gpuserve_model_head(const gpuserve_model *model, size_t index,
                                                 gpuserve_head *head, gpuserve_error *error)
{
    const struct gsv_label_head *found;
    const struct gsv_model_info *info;
    gpuserve_status st = gsv_handle_check(model, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(head, sizeof(*head), "gpuserve_head", error);
    if (st != GPUSERVE_OK)
        return st;
    info = atomic_load(&model->info);
    if (index >= info->properties.n_heads)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the head's index is %zu, the model has %zu",
                        index, info->properties.n_heads);
    found = &info->heads[index];
    head->score = (uint32_t)found->score;
    head->name = found->name;
    head->labels = found->labels;
    head->n_labels = found->n_labels;
    return GPUSERVE_OK;
}

GPUSERVE_API const char *gpuserve_model_fingerprint(const gpuserve_model *model)
{
    return model ? atomic_load(&model->info)->properties.fingerprint : NULL;
}
