/*
 * device_list.c - public calls that list, select and refresh devices.
 *
 *   selector -> gsv_device_choose() -> facts of the backend --+
 *   NVML or nvidia-smi -> gsv_cuda_view, driver figures ------+-> gpuserve_device_info
 *
 * Driver figures (load, temperature, power) are optional: a missing value is -1. A call reads all
 * figures again; no state is kept between calls.
 */
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/devices/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill_facts(const struct gsv_device_choice *choice, gpuserve_device_info *info)
{
    const struct gpuserve_device_facts *facts = &choice->facts;
    const uint32_t size = info->struct_size;

    memset(info, 0, sizeof(*info));
    info->struct_size = size;
    info->index = facts->index;
    gsv_device_selector(choice, info->selector, sizeof(info->selector));
    snprintf(info->name, sizeof(info->name), "%s", facts->name);
    snprintf(info->uuid, sizeof(info->uuid), "%s", facts->uuid);
    snprintf(info->isa, sizeof(info->isa), "%s", facts->isa);
    info->memory_bytes = facts->memory_bytes;
    info->memory_free_bytes = facts->memory_free_bytes;
    info->n_cores = facts->n_cores;
    info->driver_index = info->load_percent = info->temperature_celsius = -1;
    info->power_milliwatts = info->n_processes = -1;
}

static void add_driver_facts(const struct gsv_cuda_view *view, gpuserve_device_info *info)
{
    const struct gsv_cuda_device *device = &view->all[info->index];
    const struct gsv_gpu *gpu;

    snprintf(info->limit, sizeof(info->limit), "%s", device->limit);
    if (device->gpu < 0)
        return;
    gpu = &view->gpus->all[device->gpu];
    info->driver_index = gpu->index;
    info->load_percent = gpu->load_percent;
    info->temperature_celsius = gpu->temperature_celsius;
    info->power_milliwatts = gpu->power_milliwatts;
    info->n_processes = gpu->n_processes;
    info->flags = (gpu->instance >= 0 ? GPUSERVE_DEVICE_MIG : 0) |
                  (gpu->is_virtual ? GPUSERVE_DEVICE_VIRTUAL : 0);
    snprintf(info->bus_id, sizeof(info->bus_id), "%s", gpu->bus_id);
}

/* `view` may be NULL. */
static void fill_info(gpuserve_context *context, const struct gsv_cuda_view *view,
                      const struct gsv_device_choice *choice, gpuserve_device_info *info)
{
    fill_facts(choice, info);
    info->held_bytes = gsv_metrics_held(&context->metrics, info->selector);
    if (view && !choice->is_cpu && choice->facts.index < view->n)
        add_driver_facts(view, info);
}

/* Element `i` of the caller's array; struct_size of the first element is the stride. */
static gpuserve_device_info *element(gpuserve_device_info *devices, size_t i)
{
    gpuserve_device_info *at =
        (gpuserve_device_info *)(void *)((char *)devices + i * devices->struct_size);

    at->struct_size = devices->struct_size;
    return at;
}

static gpuserve_status check_array(gpuserve_context *context, const gpuserve_device_info *devices,
                                   size_t capacity, gpuserve_error *error)
{
    const gpuserve_status st = gsv_context_check(context, error);

    return st != GPUSERVE_OK || capacity == 0
               ? st
               : gsv_check_struct(devices, sizeof(*devices), "gpuserve_device_info", error);
}

GPUSERVE_API gpuserve_status gpuserve_device_list(gpuserve_context *context,
                                                  gpuserve_device_info *devices, size_t capacity,
                                                  size_t *n, gpuserve_error *error)
{
    struct gsv_device_choice choice;
    struct gsv_cuda_view *view = NULL;
    gpuserve_status st = check_array(context, devices, capacity, error);

    if (st == GPUSERVE_OK && !n)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`n` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_device_choose(context, "cpu", &choice, error);
    if (st != GPUSERVE_OK)
        return st;
    if (capacity > 0)
        fill_info(context, NULL, &choice, element(devices, 0));
    *n = 1;
    st = gsv_cuda_view_make(&view, context, GSV_VIEW_MEMORY, NULL);
    if (st == GPUSERVE_E_NOMEM)
        return gsv_fail(error, st, "out of memory to list devices");
    if (st != GPUSERVE_OK) /* no CUDA device; gpuserve doctor reports why */
        return GPUSERVE_OK;
    choice.is_cpu = false;
    choice.backend = view->backend;
    for (int32_t i = 0; i < view->n; i++) {
        if (!view->all[i].works)
            continue;
        choice.facts = view->all[i].facts;
        if (*n < capacity)
            fill_info(context, view, &choice, element(devices, *n));
        ++*n;
    }
    gsv_cuda_view_free(&view);
    return GPUSERVE_OK;
}

/* Driver figures for the chosen device; NULL if unavailable, which does not fail the choice. */
static struct gsv_cuda_view *view_for(gpuserve_context *context,
                                      const struct gsv_device_choice *choice)
{
    struct gsv_cuda_view *view = NULL;

    if (choice->is_cpu || gsv_cuda_view_make(&view, context, GSV_VIEW_MEMORY, NULL) != GPUSERVE_OK)
        return NULL;
    return view;
}

GPUSERVE_API gpuserve_status gpuserve_device_select(gpuserve_context *context, const char *selector,
                                                    gpuserve_device_info *devices, size_t capacity,
                                                    size_t *n, char *reason, size_t reason_bytes,
                                                    gpuserve_error *error)
{
    struct gsv_device_choice *choices = NULL;
    struct gsv_cuda_view *view;
    size_t count = 0;
    gpuserve_status st = check_array(context, devices, capacity, error);

    if (st == GPUSERVE_OK && !reason && reason_bytes > 0)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`reason` is NULL but reason_bytes is not 0");
    if (st == GPUSERVE_OK)
        st = gsv_device_choose_all(context, selector, false, &choices, &count, error);
    if (st != GPUSERVE_OK)
        return st;
    view = view_for(context, &choices[0]);
    for (size_t i = 0; i < count && i < capacity; i++)
        fill_info(context, view, &choices[i], element(devices, i));
    gsv_cuda_view_free(&view);
    if (reason_bytes > 0)
        snprintf(reason, reason_bytes, "%s", choices[0].reason);
    free(choices);
    if (n)
        *n = count;
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_device_refresh(gpuserve_context *context,
                                                     gpuserve_device_info *device,
                                                     gpuserve_error *error)
{
    char selector[sizeof(device->selector)];
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(device, sizeof(*device), "gpuserve_device_info", error);
    if (st != GPUSERVE_OK)
        return st;
    snprintf(selector, sizeof(selector), "%.63s", device->selector);
    if (selector[0] == '\0')
        return gsv_fail(error, GPUSERVE_E_INVALID, "the device has no selector");
    return gpuserve_device_select(context, selector, device, 1, NULL, NULL, 0, error);
}
