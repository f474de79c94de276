/*
 * doctor.c - gpuserve_context_doctor(): what works on this machine and what does not, as JSON.
 *
 * The layers of the GPU stack (doctor_layers.h) of this machine or of another root; of this process
 * also host, backends, devices, driver, environment and limits. Everything missing is reported with
 * its reason and, if known, a remedy. Only reads; safe from any thread.
 */
#define _GNU_SOURCE
#include "lib/base/error.h"
#include "lib/base/host/cpu_allowance.h"
#include "lib/base/host/host.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/core/json_out.h"
#include "lib/runtime/devices/device.h"
#include "lib/runtime/models/weights_cache.h"
#include "lib/runtime/observe/device_report.h"
#include "lib/runtime/observe/doctor_layers.h"
#include "lib/runtime/plan/model_path.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

static struct gsv_json describe_host(const gpuserve_context *context)
{
    struct gsv_json json = gsv_json_begin();
    struct gsv_cpu_allowance allowance;
    struct utsname system;
    char name[128];

    gsv_cpu_allowance_read(&allowance, NULL);
    gsv_host_cpu_name(name, sizeof(name));
    gsv_json_add_string(&json, "processor", name);
    gsv_json_add_number(&json, "cpus_online", sysconf(_SC_NPROCESSORS_ONLN));
    gsv_json_add_number(&json, "cpus_usable", gsv_host_cpus());
    gsv_json_add_number(&json, "cores_usable", allowance.cores);
    gsv_json_add_number(&json, "threads", context->n_threads);
    gsv_json_add_number(&json, "core_groups", context->topology.n);
    gsv_json_add_number(&json, "memory_bytes", (int64_t)gsv_host_memory_bytes());
    gsv_json_add_number(&json, "memory_free_bytes", (int64_t)gsv_host_memory_free_bytes());
    if (uname(&system) == 0) {
        gsv_json_add_string(&json, "kernel", system.release);
        gsv_json_add_string(&json, "machine", system.machine);
    }
    return json;
}

static struct gsv_json describe_weights_cache(const gpuserve_context *context)
{
    struct gsv_json json = gsv_json_begin();
    uint64_t bytes = 0;
    int n = 0;

    if (context->weights_folder)
        n = gsv_weights_folder_size(context->weights_folder, &bytes);
    gsv_json_add_string(&json, "path", context->weights_folder);
    gsv_json_add_number(&json, "files", n);
    gsv_json_add_number(&json, "bytes", (int64_t)bytes);
    return json;
}

static void add_limit(struct gsv_json *json, const char *key, int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        gsv_json_add_string(json, key, NULL);
    else
        gsv_json_add_number(json, key, (int64_t)limit.rlim_cur);
}

static struct gsv_json describe_limits(void)
{
    struct gsv_json json = gsv_json_begin();

    add_limit(&json, "open_files", RLIMIT_NOFILE);
    add_limit(&json, "address_space_bytes", RLIMIT_AS);
    add_limit(&json, "locked_bytes", RLIMIT_MEMLOCK);
    add_limit(&json, "processes", RLIMIT_NPROC);
    return json;
}

static void add_reason(struct gsv_json *json, gpuserve_status status, const gpuserve_error *why)
{
    gsv_json_add_bool(json, "works", status == GPUSERVE_OK);
    if (status == GPUSERVE_OK)
        return;
    gsv_json_add_string(json, "reason", why->message);
    if (why->hint[0])
        gsv_json_add_string(json, "remedy", why->hint);
}

static struct gsv_json describe_backends(gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_json json = gsv_json_begin(), cpu = gsv_json_begin(), cuda = gsv_json_begin();
    const struct gpuserve_backend *backend;
    struct gsv_device_choice choice;
    int32_t count;
    gpuserve_status st = gsv_device_choose(context, "cpu", &choice, &why);

    add_reason(&cpu, st, &why);
    if (st == GPUSERVE_OK)
        gsv_json_add_string(&cpu, "isa", choice.facts.isa);
    st = gsv_device_cuda(context, &backend, &count, &why);
    add_reason(&cuda, st, &why);
    gsv_json_add_number(&cuda, "devices", count);
    gsv_json_add_object(&json, "cpu", cpu);
    gsv_json_add_object(&json, "cuda", cuda);
    return json;
}

static json_t *describe_device(const gpuserve_device_info *device)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "selector", device->selector);
    gsv_json_add_string(&json, "name", device->name);
    gsv_json_add_string(&json, "isa", device->isa);
    gsv_json_add_string(&json, "uuid", device->uuid);
    gsv_json_add_number(&json, "cores", device->n_cores);
    gsv_json_add_number(&json, "memory_bytes", (int64_t)device->memory_bytes);
    gsv_json_add_number(&json, "memory_free_bytes", (int64_t)device->memory_free_bytes);
    return json.object;
}

#define MAX_DEVICES 64

static json_t *describe_devices(gpuserve_context *context)
{
    gpuserve_device_info *devices = gsv_alloc_array(MAX_DEVICES, sizeof(*devices));
    json_t *array = json_array();
    size_t n = 0;

    if (!devices || !array)
        goto fail;
    devices->struct_size = sizeof(*devices);
    if (gpuserve_device_list(context, devices, MAX_DEVICES, &n, NULL) != GPUSERVE_OK)
        n = 0;
    for (size_t i = 0; i < n && i < MAX_DEVICES; i++) {
        if (json_array_append_new(array, describe_device(&devices[i])) != 0)
            goto fail;
    }
    free(devices);
    return array;
fail:
    free(devices);
    json_decref(array);
    return NULL;
}

static struct gsv_json describe_driver(gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_cuda_view *view = NULL;
    struct gsv_gpus *gpus = NULL;
    struct gsv_json json;

    if (gsv_cuda_view_make(&view, context, GSV_VIEW_MEMORY, NULL) == GPUSERVE_OK)
        why = view->no_gpus;
    else
        (void)gsv_context_gpus(context, &gpus, false,
                               &why); /* on failure the report contains `why` */
    json = gsv_report_driver(view ? view->gpus : gpus, view, &why);
    free(gpus);
    gsv_cuda_view_free(&view);
    return json;
}

/* The device that `auto` selects now, and the reason. */
static struct gsv_json describe_auto(gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_json json = gsv_json_begin();
    struct gsv_device_choice choice;
    char selector[64];

    if (gsv_device_choose(context, "auto", &choice, &why) != GPUSERVE_OK) {
        gsv_json_add_string(&json, "reason", why.message);
        return json;
    }
    gsv_device_selector(&choice, selector, sizeof(selector));
    gsv_json_add_string(&json, "selector", selector);
    gsv_json_add_string(&json, "reason", choice.reason);
    return json;
}

static void describe_process(struct gsv_json *json, gpuserve_context *context)
{
    gsv_json_add_object(json, "host", describe_host(context));
    gsv_json_add_object(json, "backends", describe_backends(context));
    gsv_json_add_value(json, "devices", describe_devices(context));
    gsv_json_add_object(json, "auto", describe_auto(context));
    gsv_json_add_object(json, "driver", describe_driver(context));
    gsv_json_add_object(json, "environment", gsv_report_environment());
    gsv_json_add_object(json, "limits", describe_limits());
    gsv_json_add_object(json, "weights_cache", describe_weights_cache(context));
    gsv_json_add_string(json, "model_cache", context->hub->cache);
    gsv_json_add_string(json, "own_models", context->hub->models);
}

GPUSERVE_API gpuserve_status gpuserve_context_doctor(gpuserve_context *context,
                                                     const gpuserve_doctor_options *options,
                                                     char *text, size_t capacity, size_t *size,
                                                     gpuserve_error *error)
{
    gpuserve_doctor_options own;
    struct gsv_machine *machine = NULL;
    struct gsv_json json;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&own, sizeof(own), options, "gpuserve_doctor_options", error);
    if (st == GPUSERVE_OK)
        st = gsv_machine_examine(&machine, context, own.root, own.device, error);
    if (st != GPUSERVE_OK)
        return st;
    json = gsv_json_begin();
    gsv_json_add_string(&json, "version", gpuserve_version());
    gsv_json_add_number(&json, "abi", gpuserve_abi_version());
    gsv_json_add_string(&json, "root", own.root);
    gsv_json_add_object(&json, "stack", gsv_machine_json(machine));
    if (!own.root)
        describe_process(&json, context);
    gsv_machine_free(&machine);
    return gsv_json_write(&json, text, capacity, size, error);
}
