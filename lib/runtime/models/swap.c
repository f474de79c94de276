/*
 * swap.c - hot swap: replaces the model behind a handle while requests run.
 *
 *   plan the new model -> compare -> load -> warm up -> exchange -> wait for the old one's requests
 *
 * Every step that can fail precedes the exchange, which cannot. Until then the old model serves; on
 * failure the new model is freed and the old one stays. Caller holds the handle's `changing`.
 */
#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/models/load_steps.h"

#include <string.h>

#define ALLOWABLE (GPUSERVE_CHANGE_DIM | GPUSERVE_CHANGE_LABELS)

/* The options of a swap: the caller's, or those of the last load. */
struct swap_request {
    struct gsv_load_options load_options;
    gpuserve_swap_options how;
    char *version; /* the new version, or NULL */
};

static gpuserve_status read_order(struct swap_request *order, const gpuserve_model *handle,
                                  const char *path, const gpuserve_model_options *given,
                                  const gpuserve_swap_options *how, gpuserve_error *error)
{
    gpuserve_model_options options = handle->load_options.options;
    gpuserve_status st =
        gsv_read_struct(&order->how, sizeof(order->how), how, "gpuserve_swap_options", error);

    if (st == GPUSERVE_OK && order->how.allow & ~(uint32_t)ALLOWABLE)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "swap options: allow is %#x, outside 0 to %#x",
                      order->how.allow, ALLOWABLE);
    if (st == GPUSERVE_OK && given)
        st = gsv_read_model_options(&options, given, error);
    if (st != GPUSERVE_OK)
        return st;
    if (given && options.version) {
        order->version = gsv_copy_text(options.version, strlen(options.version));
        if (!order->version)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's version");
    }
    return gsv_load_options_init(&order->load_options, path ? path : handle->load_options.path,
                                 &options, error);
}

static gpuserve_status check_changes(const struct swap_request *order, uint32_t changes,
                                     const struct gsv_model_info *old,
                                     const struct gsv_model *fresh, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = fresh->plan.facts;
    const gpuserve_model_properties *before = &old->properties;
    const uint32_t refused = changes & ALLOWABLE & ~order->how.allow;

    if (refused == 0)
        return GPUSERVE_OK;
    if ((refused & GPUSERVE_CHANGE_DIM) && (size_t)facts->dim != before->dim)
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: the embedding has %d dimensions, that of the open model has %zu",
                 gsv_dir_path(fresh->plan.dir), facts->dim, before->dim);
    else if (refused & GPUSERVE_CHANGE_DIM)
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: token vectors have %d dimensions and sparse ones %d, those of the open model "
                 "have %zu and %zu",
                 gsv_dir_path(fresh->plan.dir), facts->token_dim,
                 facts->is_sparse ? facts->vocab_size : 0, before->token_dim, before->sparse_dim);
    else if (before->n_heads > 1 || facts->n_label_heads > 1)
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: the names or labels of the %zu heads differ from those of the open model's "
                 "%zu heads",
                 gsv_dir_path(fresh->plan.dir), facts->n_label_heads, before->n_heads);
    else
        gsv_fail(error, GPUSERVE_E_INVALID,
                 "%s: the %zu labels differ from the open model's %zu labels",
                 gsv_dir_path(fresh->plan.dir), facts->n_labels, before->n_labels);
    return gsv_hint(error, GPUSERVE_E_INVALID,
                    "open it as a second model, or allow the change in the swap options");
}

static gpuserve_status check_fingerprint(const struct swap_request *order,
                                         const struct gsv_model *fresh, gpuserve_error *error)
{
    const char *wanted = order->how.fingerprint;

    if (!wanted || strcmp(wanted, fresh->fingerprint) == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_MISMATCH, "%s: the fingerprint is %s, expected %.64s",
                    gsv_dir_path(fresh->plan.dir), fresh->fingerprint, wanted);
}

/* Creates a new model and its info, ready to serve. */
static gpuserve_status prepare(gpuserve_model *handle, const struct swap_request *order,
                               struct gsv_model **fresh, struct gsv_model_info **info,
                               gpuserve_error *error)
{
    const struct gsv_model_info *old = atomic_load(&handle->info);
    const gpuserve_model_options *options = &order->load_options.options;
    gpuserve_status st = gsv_model_plan(fresh, handle->context, handle->name,
                                        order->load_options.path, options, error);

    if (st == GPUSERVE_OK) {
        (*fresh)->lost = &handle->lost;
        st = check_changes(order, gsv_model_info_changes(old, *fresh), old, *fresh, error);
    }
    if (st == GPUSERVE_OK)
        st = gsv_model_load(*fresh, handle->completions, options, 0, error);
    if (st == GPUSERVE_OK)
        st = check_fingerprint(order, *fresh, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_warm(*fresh, options, GPUSERVE_WARMUP_AUTO, error);
    if (st == GPUSERVE_OK)
        st = gsv_lost_start(handle, options, *fresh, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_info_create(info, *fresh, error);
    if (st != GPUSERVE_OK)
        gsv_model_free(fresh);
    return st;
}

static gpuserve_status swap(gpuserve_model *handle, const char *path, uint32_t *changes,
                            const gpuserve_model_options *options, const gpuserve_swap_options *how,
                            gpuserve_error *error)
{
    struct swap_request order = { 0 };
    struct gsv_model *fresh = NULL, *old;
    struct gsv_model_info *info = NULL;
    uint32_t changed;
    gpuserve_status st = read_order(&order, handle, path, options, how, error);

    if (st == GPUSERVE_OK)
        st = prepare(handle, &order, &fresh, &info, error);
    if (st != GPUSERVE_OK) {
        gsv_load_options_reset(&order.load_options);
        free(order.version);
        return st;
    }
    changed = gsv_model_info_changes(atomic_load(&handle->info), fresh);
    old = gsv_handle_exchange(handle, fresh, info, &order.load_options.options);
    gsv_lost_forget(handle);
    gsv_model_free(&old);
    gsv_load_options_reset(&handle->load_options);
    handle->load_options = order.load_options;    /* ownership moves here */
    handle->load_options.options.progress = NULL; /* for this load only */
    if (order.version)
        gsv_registry_set_version(handle, order.version);
    if (changes)
        *changes = changed;
    gsv_log(handle->context, GPUSERVE_LOG_INFO, "%s: swapped in, fingerprint %s (%s)",
            handle->load_options.path, atomic_load(&handle->info)->properties.fingerprint,
            changed & GPUSERVE_CHANGE_FINGERPRINT ? "changed" : "unchanged");
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_model_swap(gpuserve_model *model, const char *path,
                                                 uint32_t *changes,
                                                 const gpuserve_model_options *options,
                                                 const gpuserve_swap_options *how,
                                                 gpuserve_error *error)
{
    gpuserve_status st = gsv_handle_check_change(model, error);

    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&model->changing);
    st = swap(model, path, changes, options, how, error);
    pthread_mutex_unlock(&model->changing);
    return st;
}
