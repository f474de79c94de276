/*
 * cuda_devices.h - the CUDA devices of this process beside what the driver knows of them.
 *
 *   backend's devices (CUDA's numbers) --UUID--> gsv_gpus (the driver's numbers, load, processes)
 *
 * Memory is what can really be had: of a MIG device its own share, under MPS no more than
 * CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows.
 */
#ifndef GSV_RUNTIME_CUDA_DEVICES_H
#define GSV_RUNTIME_CUDA_DEVICES_H

#include "lib/runtime/context.h"
#include "lib/runtime/devices/gpu_inventory.h"
#include "lib/runtime/devices/selector.h"

#include <gpuserve/sys/backend.h>

#define GSV_MAX_CUDA 64

struct gsv_cuda_device {
    bool works;
    struct gpuserve_device_facts facts; /* when it works */
    int32_t gpu;                        /* element of gpus->all; -1: not known there */
    uint64_t held_bytes;                /* by the models of this context */
    uint64_t mps_bytes;                 /* most that MPS lets a process have; 0: all */
    bool is_part;                       /* memory_bytes are less than the GPU has */
    char limit[64];                     /* what bounds it beside its size, or empty */
    char fault[GPUSERVE_ERROR_TEXT_BYTES];
};

struct gsv_cuda_view {
    const struct gpuserve_backend *backend;
    struct gsv_cuda_device all[GSV_MAX_CUDA];
    int32_t n;
    struct gsv_gpus *gpus;  /* owned; NULL when the driver could not be asked */
    gpuserve_error no_gpus; /* why not */
};

enum gsv_view_detail {
    GSV_VIEW_MEMORY, /* what choosing needs */
    GSV_VIEW_ALL     /* processes and peers as well */
};

/* Ask backend and driver. *view is owned; end it with gsv_cuda_view_free. GPUSERVE_E_DEVICE names
 * the missing layer when there is no CUDA device. */
gpuserve_status gsv_cuda_view_make(struct gsv_cuda_view **view, gpuserve_context *context,
                                   enum gsv_view_detail detail, gpuserve_error *error);
void gsv_cuda_view_free(struct gsv_cuda_view **view);

/* Ask the driver, unless it was found hanging in this context. *gpus is owned, freed with free().
 */
gpuserve_status gsv_context_gpus(gpuserve_context *context, struct gsv_gpus **gpus, bool detail,
                                 gpuserve_error *error);

/* A device as the selector sees it. `fault` lives in the view. */
struct gsv_candidate gsv_cuda_candidate(const struct gsv_cuda_view *view, int32_t index);

/* The entry for device `index` of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ("0=1G,1=512M"); false when
 * there is none. */
bool gsv_mps_limit(const char *list, int32_t index, uint64_t *bytes);

#endif
