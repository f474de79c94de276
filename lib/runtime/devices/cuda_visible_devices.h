/*
 * cuda_visible_devices.h - which GPUs CUDA shows to this process, and in what order, from its
 * environment.
 *
 * Only for telling what is hidden and why, and for listing where CUDA cannot be asked: what CUDA
 * itself shows is the truth.
 */
#ifndef GSV_RUNTIME_CUDA_VISIBLE_DEVICES_H
#define GSV_RUNTIME_CUDA_VISIBLE_DEVICES_H

#include "lib/runtime/devices/gpu_inventory.h"

struct gsv_visible {
    int32_t gpus[GSV_MAX_GPUS]; /* elements of gsv_gpus.all; CUDA calls them 0, 1, ... */
    int32_t n;
    bool is_exact;    /* false: CUDA's own order of unlike GPUs, or MIG, is a guess */
    char stopped[96]; /* the first word of the list that names no GPU: the rest does not count */
    bool repeated;    /* a GPU stands twice: CUDA then shows none */
};

/*
 * As CUDA reads CUDA_VISIBLE_DEVICES: numbers in CUDA's order, or UUIDs or unique beginnings of
 * them, or MIG UUIDs; the first word that names no GPU ends the list, and one GPU twice makes it
 * empty. `devices` and `order` are the values of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, NULL
 * when unset.
 */
void gsv_visible_resolve(struct gsv_visible *visible, const struct gsv_gpus *gpus,
                         const char *devices, const char *order);

#endif
