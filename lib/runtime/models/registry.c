/*
 * registry.c - the open models of a context: lookup by name and version, counts, JSON listing.
 *
 * The list hangs off the context's budget and is protected by its lock. A handle's own `lock` is
 * taken inside it. A handle whose last reference is gone is never returned.
 */
#include "lib/runtime/models/handle.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/core/json_out.h"

#include <string.h>

static bool is_called(const gpuserve_model *handle, const char *name, const char *version)
{
    return strcmp(handle->name, name) == 0 && (!version || strcmp(handle->version, version) == 0);
}

static gpuserve_model *find(const struct gsv_budget *budget, const char *name, const char *version)
{
    gpuserve_model *handle = budget->handles;

    while (handle && !is_called(handle, name, version))
        handle = handle->next_open;
    return handle;
}

gpuserve_status gsv_registry_add(gpuserve_model *handle, bool is_unique, gpuserve_error *error)
{
    struct gsv_budget *budget = handle->context->budget;
    gpuserve_status st = GPUSERVE_OK;

    pthread_mutex_lock(&budget->lock);
    if (is_unique && find(budget, handle->name, handle->version)) {
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "a model with the name \"%.200s\", version \"%.100s\", is already open",
                      handle->name, handle->version);
    } else {
        handle->next_open = budget->handles;
        budget->handles = handle;
    }
    pthread_mutex_unlock(&budget->lock);
    return st;
}

void gsv_registry_remove(gpuserve_model *handle)
{
    struct gsv_budget *budget = handle->context->budget;
    gpuserve_model **at = &budget->handles;

    pthread_mutex_lock(&budget->lock);
    while (*at && *at != handle)
        at = &(*at)->next_open;
    if (*at)
        *at = handle->next_open;
    pthread_mutex_unlock(&budget->lock);
}

void gsv_registry_set_version(gpuserve_model *handle, char *version)
{
    struct gsv_budget *budget = handle->context->budget;

    pthread_mutex_lock(&budget->lock);
    free(handle->version);
    handle->version = version;
    pthread_mutex_unlock(&budget->lock);
}

/* Adds a reference unless the count is already 0. */
static bool try_ref(gpuserve_model *handle)
{
    size_t n = atomic_load(&handle->n_owners);

    while (n > 0 && !atomic_compare_exchange_weak(&handle->n_owners, &n, n + 1))
        continue;
    return n > 0;
}

static gpuserve_model *find_and_ref(struct gsv_budget *budget, const char *name,
                                    const char *version)
{
    gpuserve_model *found = NULL;

    pthread_mutex_lock(&budget->lock);
    for (gpuserve_model *handle = budget->handles; handle && !found; handle = handle->next_open) {
        bool is_open;

        if (!is_called(handle, name, version))
            continue;
        pthread_mutex_lock(&handle->lock);
        is_open = handle->current != NULL;
        pthread_mutex_unlock(&handle->lock);
        if (is_open && try_ref(handle))
            found = handle;
    }
    pthread_mutex_unlock(&budget->lock);
    return found;
}

GPUSERVE_API gpuserve_status gpuserve_context_find(gpuserve_model **model,
                                                   gpuserve_context *context, const char *name,
                                                   const char *version, gpuserve_error *error)
{
    gpuserve_status st = gsv_context_check(context, error);

    if (!model)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`model` is NULL");
    *model = NULL;
    if (st == GPUSERVE_OK && !name)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`name` is NULL");
    if (st != GPUSERVE_OK)
        return st;
    *model = find_and_ref(context->budget, name, version);
    if (*model)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "model \"%.200s\"%s%.100s is not open", name,
                    version ? ", version " : "", version ? version : "");
}

void gsv_registry_count(gpuserve_context *context, uint32_t *n_open, uint64_t *n_suspended)
{
    *n_open = 0;
    *n_suspended = 0;
    pthread_mutex_lock(&context->budget->lock);
    for (gpuserve_model *handle = context->budget->handles; handle; handle = handle->next_open) {
        pthread_mutex_lock(&handle->lock);
        *n_open += handle->current != NULL;
        *n_suspended += handle->current && handle->is_suspended;
        pthread_mutex_unlock(&handle->lock);
    }
    pthread_mutex_unlock(&context->budget->lock);
}

/* ----------------------------------------------------------------------------------------
 * listing */

static const char *state_of(const gpuserve_model *handle)
{
    return !handle->current ? "loading" : handle->is_suspended ? "suspended" : "ready";
}

/* Of an open handle; caller holds its lock. */
static void describe_model(const gpuserve_model *handle, struct gsv_json *json)
{
    const struct gsv_model *model = handle->current;
    const uint64_t idle_ns = gsv_now_ns() - handle->last_used_ns;
    char selector[64];

    gsv_plan_selector(&model->plan, ~atomic_load(&model->lost_replicas), selector,
                      sizeof(selector));
    gsv_json_add_string(json, "path", gsv_dir_path(model->plan.dir));
    gsv_json_add_string(json, "fingerprint", model->fingerprint);
    gsv_json_add_string(json, "device", selector);
    gsv_json_add_string(json, "dtype", gsv_dtype_name(model->plan.dtype));
    gsv_json_add_number(json, "bytes",
                        model->reservation.is_reserved ? (int64_t)model->reservation.bytes : 0);
    gsv_json_add_number(json, "bytes_when_loaded", (int64_t)model->plan.total_bytes);
    gsv_json_add_bool(json, "idle", handle->is_suspended || gsv_handle_is_idle(handle));
    gsv_json_add_bool(json, "keep", handle->is_kept);
    gsv_json_add_number(json, "idle_ms", (int64_t)(idle_ns / 1000000));
    gsv_json_add_number(json, "swaps", (int64_t)handle->n_swaps);
    gsv_json_add_number(json, "suspensions", (int64_t)handle->n_suspensions);
}

static json_t *describe(gpuserve_model *handle)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "name", handle->name);
    gsv_json_add_string(&json, "version", handle->version);
    pthread_mutex_lock(&handle->lock);
    gsv_json_add_string(&json, "state", state_of(handle));
    if (handle->current)
        describe_model(handle, &json);
    pthread_mutex_unlock(&handle->lock);
    return json.object;
}

/* Takes ownership of the new element; NULL after an allocation failure. */
static json_t *prepend(json_t *array, json_t *value)
{
    if (array && json_array_insert_new(array, 0, value) == 0)
        return array;
    if (!array)
        json_decref(value);
    json_decref(array);
    return NULL;
}

GPUSERVE_API gpuserve_status gpuserve_context_models(gpuserve_context *context, char *text,
                                                     size_t capacity, size_t *size,
                                                     gpuserve_error *error)
{
    struct gsv_json json;
    json_t *models;
    gpuserve_status st = gsv_context_check(context, error);

    if (st != GPUSERVE_OK)
        return st;
    json = gsv_json_begin();
    models = json_array();
    pthread_mutex_lock(&context->budget->lock);
    for (gpuserve_model *handle = context->budget->handles; handle; handle = handle->next_open)
        models = prepend(models, describe(handle));
    pthread_mutex_unlock(&context->budget->lock);
    gsv_json_add_value(&json, "models", models);
    return gsv_json_write(&json, text, capacity, size, error);
}
