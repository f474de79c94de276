/*
 * cuda_devices.h - the CUDA devices of this process, with the driver's facts about each.
 *
 *   backend's devices (CUDA's numbers) --UUID--> gsv_gpus (the driver's numbers, load, processes)
 *
 * Memory is what the process can allocate: a MIG device's own share, and under MPS at most
 * CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.
 */
#ifndef GSV_RUNTIME_CUDA_DEVICES_H
#define GSV_RUNTIME_CUDA_DEVICES_H

#include "lib/runtime/core/context.h"
#include "lib/runtime/devices/gpu_inventory.h"
#include "lib/runtime/devices/selector.h"

#include <gpuserve/sys/backend.h>

#define GSV_MAX_CUDA 64

struct gsv_cuda_device {
    bool works;
    struct gpuserve_device_facts facts; /* valid if `works` */
    int32_t gpu;                        /* index in gpus->all; -1: not in the inventory */
    uint64_t held_bytes;                /* by the models of this context */
    uint64_t mps_bytes;                 /* maximum that MPS allows a process; 0: no limit */
    bool is_part;                       /* a MIG or vGPU share of a GPU */
    char limit[64];                     /* limits other than its size, or empty */
    char fault[GPUSERVE_ERROR_TEXT_BYTES];
};

struct gsv_cuda_view {
    const struct gpuserve_backend *backend;
    struct gsv_cuda_device all[GSV_MAX_CUDA];
    int32_t n;
    struct gsv_gpus *gpus;  /* owned; NULL if the driver query failed */
    gpuserve_error no_gpus; /* the error of that query */
};

enum gsv_view_detail {
    GSV_VIEW_MEMORY, /* facts for choosing a device */
    GSV_VIEW_ALL     /* processes and peers, too */
};

/* Query the backend and the driver. *view is owned; free it with gsv_cuda_view_free. Without a CUDA
 * device GPUSERVE_E_DEVICE names the missing layer. */
gpuserve_status gsv_cuda_view_make(struct gsv_cuda_view **view, gpuserve_context *context,
                                   enum gsv_view_detail detail, gpuserve_error *error);
void gsv_cuda_view_free(struct gsv_cuda_view **view);

/* Query the driver, unless it hung before in this context. *gpus is owned, freed with free(). */
gpuserve_status gsv_context_gpus(gpuserve_context *context, struct gsv_gpus **gpus, bool detail,
                                 gpuserve_error *error);

/* A device in the form that the selector uses. `fault` is borrowed from the view. */
struct gsv_candidate gsv_cuda_candidate(const struct gsv_cuda_view *view, int32_t index);

/* The entry for device `index` in CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ("0=1G,1=512M"); false if it has
 * none. */
bool gsv_mps_limit(const char *list, int32_t index, uint64_t *bytes);

/*
 * Predicts from the environment which GPUs CUDA shows to this process, and
 * in which order.
 *
 * Used only to report hidden GPUs with the reason, and to list GPUs where CUDA cannot be queried.
 * The devices that CUDA itself reports take precedence.
 */

struct gsv_visible {
    int32_t gpus[GSV_MAX_GPUS]; /* indices in gsv_gpus.all; CUDA numbers them 0, 1, ... */
    int32_t n;
    bool is_exact;    /* false: a guess, because of MIG or of CUDA's order of unlike GPUs */
    char stopped[96]; /* first word that names no GPU; CUDA ignores it and the rest */
    bool repeated;    /* a GPU is listed twice: CUDA then shows none */
};

/*
 * Resolve the list as CUDA does. Its words are numbers in CUDA's order, or UUIDs or unique prefixes
 * of them, or MIG UUIDs. The first word that names no GPU ends the list, and a repeated GPU empties
 * it. `devices` and `order` are the values of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, NULL if
 * unset.
 */
void gsv_visible_resolve(struct gsv_visible *visible, const struct gsv_gpus *gpus,
                         const char *devices, const char *order);

#endif
