/*
 * device_report.c - gpuserve_device_report(): devices, driver, peers and environment as JSON.
 *
 *   CUDA view (backend and driver) -> per device: memory, load, models, processes -> JSON
 *   no CUDA view -> GPUs as NVML or nvidia-smi list them, with the reason why CUDA hides them
 *
 * Unknown figures are null. Every call reads them again; the model list is read under the lock of
 * the metrics.
 */
#define _GNU_SOURCE
#include "lib/runtime/observe/device_report.h"

#include "lib/base/error.h"
#include "lib/runtime/devices/device.h"
#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/observe/doctor_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_known(struct gsv_json *json, const char *key, int32_t value)
{
    gsv_json_add_value(json, key, value < 0 ? json_null() : json_integer(value));
}

static void add_known_text(struct gsv_json *json, const char *key, const char *text)
{
    gsv_json_add_string(json, key, text[0] ? text : NULL);
}

/* ------------------------------------------------------------------------------------- driver */

static void add_gpu_figures(struct gsv_json *json, const struct gsv_gpu *gpu)
{
    add_known(json, "load_percent", gpu->load_percent);
    add_known(json, "temperature_celsius", gpu->temperature_celsius);
    add_known(json, "power_milliwatts", gpu->power_milliwatts);
    add_known(json, "power_limit_milliwatts", gpu->power_limit_milliwatts);
    add_known(json, "processes_count", gpu->n_processes);
}

/* The CUDA number of a GPU: from the view, else resolved from the environment. -1: hidden. */
static int32_t cuda_number(const struct gsv_cuda_view *view, const struct gsv_visible *visible,
                           int32_t gpu)
{
    for (int32_t i = 0; view && i < view->n; i++) {
        if (view->all[i].works && view->all[i].gpu == gpu)
            return i;
    }
    for (int32_t i = 0; !view && i < visible->n; i++) {
        if (visible->gpus[i] == gpu)
            return i;
    }
    return -1;
}

static const char *hidden_by(const struct gsv_gpu *gpu)
{
    if (gpu->is_lost || gpu->fault[0])
        return gpu->fault;
    if (gpu->mig_mode)
        return "MIG mode: choose one of its MIG devices";
    if (secure_getenv("CUDA_VISIBLE_DEVICES"))
        return "CUDA_VISIBLE_DEVICES";
    if (gpu->instance >= 0)
        return "CUDA shows one MIG device per process: set CUDA_VISIBLE_DEVICES to it";
    return "CUDA hides it";
}

static json_t *describe_gpu(const struct gsv_gpu *gpu, int32_t number)
{
    struct gsv_json json = gsv_json_begin();
    char selector[24];

    snprintf(selector, sizeof(selector), "cuda:%d", number);
    gsv_json_add_number(&json, "index", gpu->index);
    add_known(&json, "mig_instance", gpu->instance);
    add_known_text(&json, "uuid", gpu->uuid);
    add_known_text(&json, "name", gpu->name);
    add_known_text(&json, "bus_id", gpu->bus_id);
    gsv_json_add_string(&json, "cuda", number < 0 ? NULL : selector);
    gsv_json_add_string(&json, "hidden_by", number < 0 ? hidden_by(gpu) : NULL);
    gsv_json_add_number(&json, "memory_bytes", (int64_t)gpu->memory_bytes);
    gsv_json_add_number(&json, "memory_used_bytes", (int64_t)gpu->memory_used_bytes);
    gsv_json_add_number(&json, "memory_free_bytes", (int64_t)gpu->memory_free_bytes);
    add_gpu_figures(&json, gpu);
    gsv_json_add_bool(&json, "mig_mode", gpu->mig_mode);
    gsv_json_add_bool(&json, "virtual", gpu->is_virtual);
    gsv_json_add_bool(&json, "lost", gpu->is_lost);
    return json.object;
}

/* The effect of CUDA_VISIBLE_DEVICES. */
static struct gsv_json describe_visible(const struct gsv_visible *visible)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_number(&json, "shown", visible->n);
    gsv_json_add_bool(&json, "exact", visible->is_exact);
    add_known_text(&json, "list_ends_at", visible->stopped);
    gsv_json_add_bool(&json, "repeated", visible->repeated);
    return json;
}

struct gsv_json gsv_report_driver(const struct gsv_gpus *gpus, const struct gsv_cuda_view *view,
                                  const gpuserve_error *why)
{
    struct gsv_json json = gsv_json_begin();
    struct gsv_visible visible;
    json_t *list = json_array();

    gsv_json_add_bool(&json, "works", gpus != NULL);
    if (!gpus) {
        gsv_json_add_string(&json, "reason", why->message);
        add_known_text(&json, "remedy", why->hint);
        gsv_json_add_value(&json, "gpus", list);
        return json;
    }
    gsv_visible_resolve(&visible, gpus, secure_getenv("CUDA_VISIBLE_DEVICES"),
                        secure_getenv("CUDA_DEVICE_ORDER"));
    gsv_json_add_string(&json, "source", gpus->source);
    add_known_text(&json, "version", gpus->driver);
    gsv_json_add_number(&json, "cuda_version", gpus->cuda_version);
    gsv_json_add_object(&json, "visible", describe_visible(&visible));
    for (int32_t i = 0; i < gpus->n; i++)
        gsv_json_append(&list, describe_gpu(&gpus->all[i], cuda_number(view, &visible, i)));
    gsv_json_add_value(&json, "gpus", list);
    return json;
}

struct gsv_json gsv_report_environment(void)
{
    static const char *const names[] = { "CUDA_VISIBLE_DEVICES",
                                         "CUDA_DEVICE_ORDER",
                                         "CUDA_MPS_PIPE_DIRECTORY",
                                         "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                                         "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                         "GPUSERVE_PLUGIN_DIR" };
    struct gsv_json json = gsv_json_begin();

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        gsv_json_add_string(&json, names[i], secure_getenv(names[i]));
    return json;
}

/* ------------------------------------------------------------------------------------ devices */

static json_t *describe_models(gpuserve_context *context, const char *selector)
{
    struct gsv_metrics *metrics = &context->metrics;
    json_t *list = json_array();

    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next) {
        const uint32_t sharers = gsv_metrics_sharers(m->device, selector);
        struct gsv_json json;

        if (sharers == 0)
            continue;
        json = gsv_json_begin();
        gsv_json_add_string(&json, "name", m->name);
        gsv_json_add_string(&json, "dtype", m->dtype);
        gsv_json_add_number(
            &json, "bytes",
            (int64_t)((m->memory.weights + m->memory.workspace + m->memory.stream) / sharers));
        gsv_json_append(&list, json.object);
    }
    pthread_mutex_unlock(&metrics->lock);
    return list;
}

static json_t *describe_processes(const struct gsv_gpus *gpus, int32_t gpu)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < gpus->n_processes; i++) {
        const struct gsv_gpu_process *process = &gpus->processes[i];
        struct gsv_json json;

        if (process->gpu != gpu)
            continue;
        json = gsv_json_begin();
        gsv_json_add_number(&json, "pid", process->pid);
        add_known_text(&json, "name", process->name);
        gsv_json_add_value(&json, "memory_bytes",
                           process->memory_bytes ? json_integer((json_int_t)process->memory_bytes)
                                                 : json_null());
        gsv_json_add_bool(&json, "gpuserve", process->is_gpuserve);
        gsv_json_append(&list, json.object);
    }
    return list;
}

static json_t *describe_device(gpuserve_context *context, const struct gsv_cuda_view *view,
                               const gpuserve_device_info *device)
{
    const bool is_cuda = view && strcmp(device->selector, "cpu") != 0 && device->index < view->n;
    const struct gsv_cuda_device *cuda = is_cuda ? &view->all[device->index] : NULL;
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "selector", device->selector);
    gsv_json_add_string(&json, "name", device->name);
    gsv_json_add_string(&json, "isa", device->isa);
    gsv_json_add_string(&json, "uuid", device->uuid);
    gsv_json_add_number(&json, "memory_bytes", (int64_t)device->memory_bytes);
    gsv_json_add_number(&json, "memory_free_bytes", (int64_t)device->memory_free_bytes);
    gsv_json_add_number(&json, "held_bytes", (int64_t)device->held_bytes);
    gsv_json_add_number(&json, "n_cores", device->n_cores);
    gsv_json_add_value(&json, "models", describe_models(context, device->selector));
    if (!cuda)
        return json.object;
    add_known_text(&json, "limit", cuda->limit);
    if (cuda->gpu < 0)
        return json.object;
    gsv_json_add_number(&json, "driver_index", view->gpus->all[cuda->gpu].index);
    add_known_text(&json, "bus_id", view->gpus->all[cuda->gpu].bus_id);
    add_gpu_figures(&json, &view->gpus->all[cuda->gpu]);
    gsv_json_add_value(&json, "processes", describe_processes(view->gpus, cuda->gpu));
    return json.object;
}

#define MAX_DEVICES (GSV_MAX_CUDA + 1)

static json_t *describe_devices(gpuserve_context *context, const struct gsv_cuda_view *view)
{
    gpuserve_device_info *devices = gsv_alloc_array(MAX_DEVICES, sizeof(*devices));
    json_t *list = json_array();
    size_t n = 0;

    if (!devices) {
        json_decref(list);
        return NULL;
    }
    devices->struct_size = sizeof(*devices);
    if (gpuserve_device_list(context, devices, MAX_DEVICES, &n, NULL) != GPUSERVE_OK)
        n = 0;
    for (size_t i = 0; i < n && i < MAX_DEVICES; i++)
        gsv_json_append(&list, describe_device(context, view, &devices[i]));
    free(devices);
    return list;
}

/* -------------------------------------------------------------------------------------- peers */

static json_t *describe_peers(const struct gsv_cuda_view *view)
{
    static const char *const links[] = { "unknown",     "self",       "nvlink",
                                         "board",       "pci-switch", "pci-bridges",
                                         "host-bridge", "numa-node",  "system" };
    json_t *rows = json_array();

    for (int32_t a = 0; a < view->n; a++) {
        for (int32_t b = 0; b < view->n; b++) {
            const int32_t i = view->all[a].gpu < 0 ? -1 : view->gpus->all[view->all[a].gpu].index;
            const int32_t j = view->all[b].gpu < 0 ? -1 : view->gpus->all[view->all[b].gpu].index;
            struct gsv_peer peer = { GSV_LINK_UNKNOWN, -1 };

            if (a == b)
                continue;
            if (i >= 0 && j >= 0 && i < view->gpus->n_peers && j < view->gpus->n_peers)
                peer = view->gpus->peers[i][j];
            gsv_json_append(&rows,
                            json_pack("{s:i, s:i, s:s, s:o}", "from", a, "to", b, "link",
                                      links[peer.link], "access",
                                      peer.access < 0 ? json_null() : json_boolean(peer.access)));
        }
    }
    return rows;
}

void gsv_report_auto(struct gsv_json *json, gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_device_choice choice;
    char selector[64] = "";

    if (gsv_device_choose(context, "auto", &choice, &why) == GPUSERVE_OK)
        gsv_device_selector(&choice, selector, sizeof(selector));
    add_known_text(json, "auto", selector);
    gsv_json_add_string(json, "reason", selector[0] ? choice.reason : why.message);
}

/* The toolkit's libraries that the plugin finds; null if they cannot be searched. */
static void add_libraries(struct gsv_json *json, gpuserve_context *context)
{
    struct gsv_machine *machine;

    if (gsv_machine_find_toolkit(&machine, context, NULL) == GPUSERVE_OK)
        gsv_json_add_object(json, "libraries", gsv_machine_libraries_json(machine));
    else
        gsv_json_add_string(json, "libraries", NULL);
    gsv_machine_free(&machine);
}

/* The build of the plugin that lists devices, and why those for newer drivers do not; nothing
 * without CUDA devices. */
static void add_plugin(struct gsv_json *json, gpuserve_context *context)
{
    const struct gsv_plugin *const plugin = context->cuda;
    struct gsv_json one;
    bool is_chosen;

    pthread_mutex_lock(&context->lock);
    is_chosen = plugin->chosen != NULL;
    pthread_mutex_unlock(&context->lock);
    if (!is_chosen)
        return;
    one = gsv_json_begin();
    gsv_json_add_string(&one, "path", plugin->path);
    add_known_text(&one, "reason", plugin->refusal);
    gsv_json_add_object(json, "plugin", one);
}

GPUSERVE_API gpuserve_status gpuserve_device_report(gpuserve_context *context, char *text,
                                                    size_t capacity, size_t *size,
                                                    gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_cuda_view *view = NULL;
    struct gsv_gpus *gpus = NULL;
    struct gsv_json json;
    gpuserve_status st = gsv_context_check(context, error);

    if (st != GPUSERVE_OK)
        return st;
    if (gsv_cuda_view_make(&view, context, GSV_VIEW_ALL, NULL) == GPUSERVE_OK)
        why = view->no_gpus;
    else
        (void)gsv_context_gpus(context, &gpus, true,
                               &why); /* on failure the report contains `why` */
    json = gsv_json_begin();
    gsv_json_add_value(&json, "devices", describe_devices(context, view));
    gsv_report_auto(&json, context);
    gsv_json_add_object(&json, "driver", gsv_report_driver(view ? view->gpus : gpus, view, &why));
    if (view && view->gpus && view->n > 1)
        gsv_json_add_value(&json, "peers", describe_peers(view));
    add_plugin(&json, context);
    add_libraries(&json, context);
    gsv_json_add_object(&json, "environment", gsv_report_environment());
    free(gpus);
    gsv_cuda_view_free(&view);
    return gsv_json_write(&json, text, capacity, size, error);
}
