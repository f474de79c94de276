/*
 * cuda_devices.c - combines the CUDA devices of the backend with the GPU inventory of the driver.
 *
 * gsv_cuda_view_make() queries both and matches them by UUID. It then applies the memory limits of
 * MIG, vGPU and MPS. A driver that hung once is not queried again in this context.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/cuda_devices.h"

#include "lib/base/error.h"
#include "lib/runtime/devices/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gpuserve_status gsv_context_gpus(gpuserve_context *context, struct gsv_gpus **gpus, bool detail,
                                 gpuserve_error *error)
{
    bool hangs = false;
    gpuserve_status st;

    *gpus = NULL;
    if (atomic_load(&context->driver_hangs))
        return gsv_fail(
            error, GPUSERVE_E_DEVICE,
            "the NVIDIA driver did not answer an earlier query; gpuserve does not query it again");
    st = gsv_gpus_read(gpus, detail, &hangs, error);
    if (hangs) {
        atomic_store(&context->driver_hangs, true);
        gsv_log(context, GPUSERVE_LOG_ERROR, "the NVIDIA driver does not answer");
    }
    return st;
}

/* ------------------------------------------------------------------------------------- limits */

bool gsv_mps_limit(const char *list, int32_t index, uint64_t *bytes)
{
    while (list && *list) {
        char *end;
        const long number = strtol(list, &end, 10);
        unsigned long long size = 0;
        int shift = 0;

        if (end == list || *end != '=')
            return false;
        list = end + 1;
        size = strtoull(list, &end, 10);
        if (end == list)
            return false;
        switch (*end | 32) {
        case 'k':
            shift = 10;
            break;
        case 'm':
            shift = 20;
            break;
        case 'g':
            shift = 30;
            break;
        default:
            break;
        }
        if (number == index) {
            *bytes = size > UINT64_MAX >> shift ? UINT64_MAX : (uint64_t)size << shift;
            return true;
        }
        end += strcspn(end, ",");
        list = *end ? end + 1 : end;
    }
    return false;
}

static void keep_below(uint64_t *bytes, uint64_t limit)
{
    *bytes = *bytes < limit ? *bytes : limit;
}

/* Percentage of a device's threads that MPS lets a process use at a time; 0: no limit. */
static int mps_percentage(void)
{
    const char *text = secure_getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const long percentage = text ? strtol(text, NULL, 10) : 0;

    return percentage > 0 && percentage <= 100 ? (int)percentage : 0;
}

static void tell_limits(struct gsv_cuda_device *device, const char *part)
{
    const int percentage = mps_percentage();
    char memory[48] = "", threads[32] = "", all[128];

    if (device->mps_bytes > 0)
        snprintf(memory, sizeof(memory), "%llu MiB per process",
                 (unsigned long long)(device->mps_bytes >> 20));
    if (percentage > 0)
        snprintf(threads, sizeof(threads), "%d %% of its threads", percentage);
    snprintf(all, sizeof(all), "%s%s%s%s%s%s", part, *part && (*memory || *threads) ? ", " : "",
             *memory || *threads ? "MPS: " : "", memory, *memory && *threads ? ", " : "", threads);
    snprintf(device->limit, sizeof(device->limit), "%.63s", all);
}

static void apply_limits(struct gsv_cuda_view *view, int32_t index)
{
    struct gsv_cuda_device *device = &view->all[index];
    struct gpuserve_device_facts *facts = &device->facts;
    const struct gsv_gpu *gpu = device->gpu >= 0 ? &view->gpus->all[device->gpu] : NULL;
    uint64_t mps;

    keep_below(&facts->memory_free_bytes, facts->memory_bytes);
    if (gpu && gpu->memory_bytes > 0) { /* the backend may report the whole GPU's memory */
        keep_below(&facts->memory_bytes, gpu->memory_bytes);
        keep_below(&facts->memory_free_bytes, gpu->memory_free_bytes);
    }
    device->is_part = gpu && (gpu->instance >= 0 || gpu->is_virtual);
    if (gsv_mps_limit(secure_getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), index, &mps)) {
        device->mps_bytes = mps;
        keep_below(&facts->memory_free_bytes,
                   mps > device->held_bytes ? mps - device->held_bytes : 0);
    }
    tell_limits(device, !device->is_part ? "" : gpu->is_virtual ? "vGPU" : "MIG");
}

/* --------------------------------------------------------------------------------------- view */

/* Use the driver's UUID: CUDA reports a MIG device's without the "MIG-" prefix. */
static void name_as_driver(struct gpuserve_device_facts *facts, const struct gsv_gpu *gpu)
{
    if (gpu->instance >= 0)
        snprintf(facts->uuid, sizeof(facts->uuid), "%.63s", gpu->uuid);
}

static void read_device(struct gsv_cuda_view *view, gpuserve_context *context, int32_t index)
{
    struct gsv_cuda_device *device = &view->all[index];
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    char selector[64];

    device->gpu = -1;
    device->facts.struct_size = sizeof(device->facts);
    if (view->backend->device_facts(index, &device->facts, &why) != GPUSERVE_OK) {
        snprintf(device->fault, sizeof(device->fault), "%s", why.message);
        return;
    }
    device->works = true;
    if (view->gpus)
        device->gpu = gsv_gpus_find(view->gpus, device->facts.uuid);
    if (device->gpu >= 0)
        name_as_driver(&device->facts, &view->gpus->all[device->gpu]);
    snprintf(selector, sizeof(selector), "%s:%d", view->backend->name, index);
    device->held_bytes = gsv_metrics_held(&context->metrics, selector);
    apply_limits(view, index);
}

gpuserve_status gsv_cuda_view_make(struct gsv_cuda_view **out, gpuserve_context *context,
                                   enum gsv_view_detail detail, gpuserve_error *error)
{
    const struct gpuserve_backend *backend;
    struct gsv_cuda_view *view;
    int32_t count;
    gpuserve_status st = gsv_device_cuda(context, &backend, &count, error);

    *out = NULL;
    if (st != GPUSERVE_OK)
        return st;
    view = gsv_alloc_array(1, sizeof(*view));
    if (!view)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the list of devices");
    view->backend = backend;
    view->no_gpus = (gpuserve_error)GPUSERVE_ERROR_INIT;
    view->n = count < GSV_MAX_CUDA ? count : GSV_MAX_CUDA;
    st = gsv_context_gpus(context, &view->gpus, detail == GSV_VIEW_ALL, &view->no_gpus);
    if (st == GPUSERVE_E_NOMEM) {
        gsv_cuda_view_free(&view);
        return gsv_fail(error, st, "out of memory for the list of devices");
    }
    for (int32_t i = 0; i < view->n; i++)
        read_device(view, context, i);
    *out = view;
    return GPUSERVE_OK;
}

void gsv_cuda_view_free(struct gsv_cuda_view **view)
{
    if (*view)
        free((*view)->gpus);
    free(*view);
    *view = NULL;
}

struct gsv_candidate gsv_cuda_candidate(const struct gsv_cuda_view *view, int32_t index)
{
    const struct gsv_cuda_device *device = &view->all[index];
    const struct gpuserve_device_facts *facts = &device->facts;
    struct gsv_candidate candidate = { .id = index, .load_percent = GSV_GPU_UNKNOWN };

    if (!device->works) {
        candidate.fault = device->fault;
        return candidate;
    }
    snprintf(candidate.uuid, sizeof(candidate.uuid), "%s", facts->uuid);
    candidate.memory_bytes = facts->memory_bytes;
    candidate.memory_free_bytes = facts->memory_free_bytes;
    candidate.memory_used_bytes = facts->memory_bytes - facts->memory_free_bytes;
    if (device->gpu >= 0) {
        const struct gsv_gpu *gpu = &view->gpus->all[device->gpu];

        candidate.load_percent = gpu->load_percent;
        if (gpu->memory_bytes > 0 && !device->is_part && device->mps_bytes == 0) {
            candidate.memory_bytes = gpu->memory_bytes;
            candidate.memory_used_bytes = gpu->memory_used_bytes;
            candidate.memory_free_bytes = gpu->memory_free_bytes;
        }
        if (gpu->is_lost)
            candidate.fault = "lost";
        else if (gpu->compute_mode == 2)
            candidate.fault = "compute mode PROHIBITED";
        else if (gpu->compute_mode == 3 && device->held_bytes == 0 && gpu->n_processes > 0)
            candidate.fault = "used by another process (EXCLUSIVE_PROCESS)";
    }
    return candidate;
}
