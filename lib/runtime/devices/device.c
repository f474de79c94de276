/*
 * device.c - resolves a device selector to one or several devices.
 *
 *   text --gsv_selector_parse--> selector --gsv_cuda_view_make--> candidates --> gsv_device_choice
 *
 * The CPU backend is compiled in; the GPU backend comes from a plugin (plugin.c). An explicit
 * device that is unavailable is an error that lists the available ones. `auto` falls back to the
 * CPU and records the reason.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/device.h"

#include "kernels/kernels.h"
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/devices/gpu_inventory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------------------------ the plugin
 */

/* The number of devices of one build, loaded if it is not yet. */
static gpuserve_status ask_build(gpuserve_context *context, size_t build, const char *path,
                                 const struct gpuserve_backend **backend, int32_t *count,
                                 gpuserve_error *error)
{
    gpuserve_status st;

    pthread_mutex_lock(&context->lock);
    st = gsv_plugin_load(context->cuda, build, path, backend, error);
    pthread_mutex_unlock(&context->lock);
    return st == GPUSERVE_OK ? (*backend)->device_count(count, error) : st;
}

/* "libgpuserve-cuda.so: the driver ...; libgpuserve-cuda12.so: the driver ..." */
static void add_refusal(char text[GPUSERVE_ERROR_TEXT_BYTES], const char *path,
                        const gpuserve_error *why)
{
    const size_t at = strlen(text);

    snprintf(text + at, GPUSERVE_ERROR_TEXT_BYTES - at, "%s%.40s: %.200s", at > 0 ? "; " : "",
             strrchr(path, '/') + 1, why->message);
}

static void remember_build(gpuserve_context *context, size_t build, const char *path,
                           const char *refusal)
{
    bool is_first;

    pthread_mutex_lock(&context->lock);
    is_first = gsv_plugin_choose(context->cuda, build, path, refusal);
    pthread_mutex_unlock(&context->lock);
    if (is_first && refusal[0])
        gsv_log(context, GPUSERVE_LOG_INFO, "the plugin %s is used: %s", path, refusal);
}

/* Fails with the refusals of all builds; of a single one its own words. */
static gpuserve_status fail_refused(const char *refusals, size_t n, const gpuserve_error *last,
                                    gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_DEVICE, "%s", n > 1 ? refusals : last->message);
    return gsv_hint(error, GPUSERVE_E_DEVICE, "%s", last->hint);
}

/* The first build in the folder of the plugin that fits the driver. */
static gpuserve_status choose_build(gpuserve_context *context,
                                    const struct gpuserve_backend **backend, int32_t *count,
                                    gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    char refusals[GPUSERVE_ERROR_TEXT_BYTES] = "";
    struct gsv_plugin_paths paths;
    gpuserve_status st = gsv_plugin_find(context->cuda, &paths, error);
    size_t n = 0;

    if (st != GPUSERVE_OK)
        return st;
    st = GPUSERVE_E_UNSUPPORTED;
    for (size_t i = 0; i < GSV_PLUGIN_BUILDS && st == GPUSERVE_E_UNSUPPORTED; i++) {
        if (!paths.all[i])
            continue;
        why = (gpuserve_error)GPUSERVE_ERROR_INIT;
        st = ask_build(context, i, paths.all[i], backend, count, &why);
        if (st == GPUSERVE_OK)
            remember_build(context, i, paths.all[i], refusals);
        else if (st == GPUSERVE_E_UNSUPPORTED)
            add_refusal(refusals, paths.all[i], &why);
        n++;
    }
    if (st == GPUSERVE_E_UNSUPPORTED)
        st = fail_refused(refusals, n, &why, error);
    else if (st != GPUSERVE_OK)
        gsv_error_copy(error, &why);
    gsv_plugin_free_paths(&paths);
    return st;
}

gpuserve_status gsv_device_cuda(gpuserve_context *context, const struct gpuserve_backend **backend,
                                int32_t *count, gpuserve_error *error)
{
    const gpuserve_context *before = gsv_log_scope(context);
    const struct gsv_plugin_build *chosen;
    gpuserve_status st;

    *backend = NULL;
    *count = 0;
    pthread_mutex_lock(&context->lock);
    chosen = context->cuda->chosen;
    pthread_mutex_unlock(&context->lock);
    if (chosen) {
        *backend = chosen->backend;
        st = (*backend)->device_count(count, error);
    } else {
        st = choose_build(context, backend, count, error);
    }
    gsv_log_scope(before);
    if (st == GPUSERVE_OK && *count < 1)
        st = gsv_fail(error, GPUSERVE_E_DEVICE, "the CUDA backend is loaded, but finds no device");
    return st;
}

static gpuserve_status choose_cpu(struct gsv_device_choice *choice, gpuserve_error *error)
{
    choice->backend = gsv_backend_cpu();
    choice->is_cpu = true;
    memset(&choice->facts, 0, sizeof(choice->facts));
    choice->facts.struct_size = sizeof(choice->facts);
    return choice->backend->device_facts(0, &choice->facts, error);
}

static void take(struct gsv_device_choice *choice, const struct gsv_cuda_view *view, int32_t index)
{
    choice->backend = view->backend;
    choice->facts = view->all[index].facts;
    choice->mps_bytes = view->all[index].mps_bytes;
    choice->is_cpu = false;
}

/* ----------------------------------------------------------------------------------- failures */

/* The available devices: "cuda:0 (NVIDIA H200, GPU-...), cuda:1 (...)", cut if too long. */
static void list_devices(const struct gsv_cuda_view *view, char *text, size_t capacity)
{
    size_t at = 0;

    text[0] = '\0';
    for (int32_t i = 0; i < view->n && at < capacity; i++) {
        const struct gsv_cuda_device *device = &view->all[i];
        const char *name = device->works ? device->facts.name : device->fault;

        at += (size_t)snprintf(text + at, capacity - at, "%s%s:%d (%.60s%s%.64s)", i ? ", " : "",
                               view->backend->name, i, name, device->works ? ", " : "",
                               device->facts.uuid);
    }
    if (at >= capacity && capacity > 4)
        memcpy(text + capacity - 4, "...", 4);
}

/* Fail for a GPU that the driver lists and CUDA hides, with the cause. */
static gpuserve_status fail_hidden(const struct gsv_gpu *gpu, const char *named,
                                   gpuserve_error *error)
{
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");

    if (gpu->mig_mode) {
        gsv_fail(error, GPUSERVE_E_DEVICE, "%s (%s) is in MIG mode: choose one of its MIG devices",
                 named, gpu->name);
        return gsv_hint(error, GPUSERVE_E_DEVICE, "`gpuserve devices` lists them");
    }
    gsv_fail(error, GPUSERVE_E_DEVICE, "%s (%s) is in this machine, but CUDA hides it: %s%s%s",
             named, gpu->name, visible ? "CUDA_VISIBLE_DEVICES is \"" : "",
             visible ? visible : "CUDA shows one MIG device per process", visible ? "\"" : "");
    return gsv_hint(error, GPUSERVE_E_DEVICE, "start the program with CUDA_VISIBLE_DEVICES=%s",
                    gpu->uuid);
}

static gpuserve_status fail_number(const struct gsv_cuda_view *view, int32_t index,
                                   gpuserve_error *error)
{
    char list[400];

    list_devices(view, list, sizeof(list));
    gsv_fail(error, GPUSERVE_E_DEVICE, "cuda:%d: no such device; available %s %d: %s", index,
             view->n == 1 ? "is" : "are", view->n, list);
    if (view->gpus && view->gpus->n > view->n && secure_getenv("CUDA_VISIBLE_DEVICES"))
        return gsv_hint(error, GPUSERVE_E_DEVICE,
                        "the machine has %d GPUs; CUDA_VISIBLE_DEVICES=%s hides some of them",
                        view->gpus->n, secure_getenv("CUDA_VISIBLE_DEVICES"));
    return gsv_hint(error, GPUSERVE_E_DEVICE, "`gpuserve devices` lists them");
}

/* ----------------------------------------------------------------------------------- choosing */

static gpuserve_status choose_number(const struct gsv_cuda_view *view, int32_t index,
                                     struct gsv_device_choice *choice, gpuserve_error *error)
{
    if (index >= view->n)
        return fail_number(view, index, error);
    if (!view->all[index].works) {
        gsv_fail(error, GPUSERVE_E_DEVICE, "cuda:%d: %s", index, view->all[index].fault);
        return gsv_hint(error, GPUSERVE_E_DEVICE,
                        "`gpuserve devices` lists the working devices; \"cpu\" always works");
    }
    take(choice, view, index);
    return GPUSERVE_OK;
}

/* By a UUID or a prefix of it; as with the driver, GPU- and MIG- are distinct. */
static gpuserve_status choose_uuid(const struct gsv_cuda_view *view, const char *uuid,
                                   struct gsv_device_choice *choice, gpuserve_error *error)
{
    const size_t length = strlen(uuid);
    int32_t found = -1;
    char list[400];

    for (int32_t i = 0; i < view->n; i++) {
        if (!view->all[i].works || strncasecmp(view->all[i].facts.uuid, uuid, length) != 0)
            continue;
        if (found >= 0)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "%s: ambiguous: the UUIDs of cuda:%d and cuda:%d both begin with it",
                            uuid, found, i);
        found = i;
    }
    if (found >= 0) {
        take(choice, view, found);
        return GPUSERVE_OK;
    }
    for (int32_t i = 0; view->gpus && i < view->gpus->n; i++) {
        if (strncasecmp(view->gpus->all[i].uuid, uuid, length) == 0)
            return fail_hidden(&view->gpus->all[i], uuid, error);
    }
    list_devices(view, list, sizeof(list));
    gsv_fail(error, GPUSERVE_E_DEVICE, "%s: no such device; available %s %s", uuid,
             view->n == 1 ? "is" : "are", list);
    return gsv_hint(error, GPUSERVE_E_DEVICE, "`gpuserve devices` lists them");
}

static void explain_pick(const struct gsv_cuda_view *view, const struct gsv_selector *selector,
                         const struct gsv_candidate *chosen, char *reason, size_t capacity)
{
    static const char *const orders[] = { "the first",
                                          "the last",
                                          "the least load",
                                          "the smallest fraction of memory in use",
                                          "the most memory free",
                                          "at random" };
    char load[32] = "";

    if (chosen->load_percent >= 0)
        snprintf(load, sizeof(load), ", load %d%%", chosen->load_percent);
    if (view->n == 1 && !selector->has_options)
        snprintf(reason, capacity, "the only CUDA device");
    else
        snprintf(reason, capacity, "%s of %d CUDA devices: %llu of %llu MiB free%s",
                 orders[selector->order], view->n,
                 (unsigned long long)(chosen->memory_free_bytes >> 20),
                 (unsigned long long)(chosen->memory_bytes >> 20), load);
}

static void explain_refusals(const struct gsv_selector *selector,
                             const struct gsv_candidate *candidates, int32_t n, char *reason,
                             size_t capacity)
{
    size_t at = (size_t)snprintf(reason, capacity, "no GPU: ");

    for (int32_t i = 0; i < n && at < capacity; i++) {
        char text[64];
        const char *why = gsv_selector_refusal(selector, &candidates[i], text, sizeof(text));

        at += (size_t)snprintf(reason + at, capacity - at, "%scuda:%d %.200s", i ? ", " : "", i,
                               why ? why : "");
    }
}

/* Write the chosen devices to `choices`, which has capacity for all. Returns their number, 0 for
 * none. */
static size_t choose_auto(const struct gsv_cuda_view *view, const struct gsv_selector *selector,
                          struct gsv_device_choice *choices, char *reason, size_t capacity)
{
    struct gsv_candidate candidates[GSV_MAX_CUDA];
    size_t picked[GSV_MAX_CUDA], n;

    for (int32_t i = 0; i < view->n; i++)
        candidates[i] = gsv_cuda_candidate(view, i);
    n = gsv_selector_pick(selector, candidates, (size_t)view->n, picked);
    for (size_t i = 0; i < n; i++) {
        take(&choices[i], view, candidates[picked[i]].id);
        choices[i].was_auto = true;
        explain_pick(view, selector, &candidates[picked[i]], choices[i].reason,
                     sizeof(choices[i].reason));
    }
    if (n == 0)
        explain_refusals(selector, candidates, view->n, reason, capacity);
    return n;
}

/* Why `auto` takes the CPU. A missing plugin concerns only a machine with a GPU. */
static void explain_no_gpu(const gpuserve_context *context, const gpuserve_error *why, char *reason,
                           size_t capacity)
{
    struct gsv_plugin_paths paths;
    const bool has_plugin = gsv_plugin_find(context->cuda, &paths, NULL) == GPUSERVE_OK;

    gsv_plugin_free_paths(&paths);
    if (has_plugin || gsv_has_nvidia_device(NULL))
        snprintf(reason, capacity, "no GPU: %.480s", why->message);
    else
        snprintf(reason, capacity, "no GPU");
}

static gpuserve_status fall_to_cpu(gpuserve_context *context, struct gsv_device_choice *choice,
                                   const char *reason, gpuserve_error *error)
{
    choice->was_auto = true;
    snprintf(choice->reason, sizeof(choice->reason), "%s", reason);
    gsv_log(context, GPUSERVE_LOG_INFO, "device auto: the CPU, %s", choice->reason);
    return choose_cpu(choice, error);
}

/* A device that fails is an error, or with `leaves_out` a warning. */
static gpuserve_status choose_every(gpuserve_context *context, const struct gsv_cuda_view *view,
                                    bool leaves_out, struct gsv_device_choice *choices, size_t *n,
                                    gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    gpuserve_status st = GPUSERVE_OK;

    *n = 0;
    for (int32_t i = 0; i < view->n && (st == GPUSERVE_OK || leaves_out); i++) {
        st = choose_number(view, i, &choices[*n], &why);
        if (st == GPUSERVE_OK)
            ++*n;
        else if (leaves_out)
            gsv_log(context, GPUSERVE_LOG_WARNING, "cuda:* skips cuda:%d: %s", i, why.message);
    }
    if (*n > 0 && (st == GPUSERVE_OK || leaves_out))
        return GPUSERVE_OK;
    gsv_error_copy(error, &why);
    return st;
}

static gpuserve_status choose_listed(const struct gsv_cuda_view *view,
                                     const struct gsv_selector *selector,
                                     struct gsv_device_choice *choices, size_t *n,
                                     gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    *n = selector->n_list;
    for (size_t i = 0; i < selector->n_list && st == GPUSERVE_OK; i++)
        st = choose_number(view, selector->list[i], &choices[i], error);
    return st;
}

static gpuserve_status choose_on_view(gpuserve_context *context, const struct gsv_cuda_view *view,
                                      const struct gsv_selector *selector, bool leaves_out,
                                      struct gsv_device_choice *choices, size_t *n,
                                      gpuserve_error *error)
{
    char reason[GPUSERVE_ERROR_TEXT_BYTES];

    *n = 1;
    switch (selector->kind) {
    case GSV_SELECT_CUDA:
        return choose_number(view, selector->index, choices, error);
    case GSV_SELECT_UUID:
        return choose_uuid(view, selector->uuid, choices, error);
    case GSV_SELECT_LIST:
        return choose_listed(view, selector, choices, n, error);
    case GSV_SELECT_ALL:
        return choose_every(context, view, leaves_out, choices, n, error);
    default:
        *n = choose_auto(view, selector, choices, reason, sizeof(reason));
        if (*n > 0)
            return GPUSERVE_OK;
        *n = 1;
        return fall_to_cpu(context, choices, reason, error);
    }
}

gpuserve_status gsv_device_choose_all(gpuserve_context *context, const char *text, bool leaves_out,
                                      struct gsv_device_choice **choices, size_t *n,
                                      gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_cuda_view *view = NULL;
    struct gsv_selector selector;
    gpuserve_status st = gsv_selector_parse(&selector, text, error);

    *choices = NULL;
    *n = 0;
    if (st != GPUSERVE_OK)
        return st;
    *choices = gsv_alloc_array(GSV_MAX_CUDA, sizeof(**choices));
    if (!*choices)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for choosing a device");
    for (size_t i = 0; i < GSV_MAX_CUDA; i++)
        snprintf((*choices)[i].reason, sizeof((*choices)[i].reason), "requested");
    *n = 1;
    if (selector.kind == GSV_SELECT_CPU) {
        st = choose_cpu(*choices, error);
    } else if ((st = gsv_cuda_view_make(&view, context, GSV_VIEW_MEMORY, &why)) == GPUSERVE_OK) {
        st = choose_on_view(context, view, &selector, leaves_out, *choices, n, error);
    } else if (selector.kind == GSV_SELECT_AUTO) {
        char reason[GPUSERVE_ERROR_TEXT_BYTES];

        explain_no_gpu(context, &why, reason, sizeof(reason));
        st = fall_to_cpu(context, *choices, reason, error);
    } else {
        gsv_error_copy(error, &why);
    }
    gsv_cuda_view_free(&view);
    if (st != GPUSERVE_OK) {
        free(*choices);
        *choices = NULL;
        *n = 0;
    }
    return st;
}

gpuserve_status gsv_device_choose(gpuserve_context *context, const char *selector,
                                  struct gsv_device_choice *choice, gpuserve_error *error)
{
    struct gsv_device_choice *choices;
    size_t n;
    const gpuserve_status st = gsv_device_choose_all(context, selector, false, &choices, &n, error);

    memset(choice, 0, sizeof(*choice));
    if (st == GPUSERVE_OK)
        *choice = choices[0];
    free(choices);
    return st;
}

void gsv_device_selector(const struct gsv_device_choice *choice, char *selector, size_t capacity)
{
    if (choice->is_cpu)
        snprintf(selector, capacity, "cpu");
    else
        snprintf(selector, capacity, "%s:%d", choice->backend->name, choice->facts.index);
}
