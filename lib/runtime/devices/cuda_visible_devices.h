/*
 * cuda_visible_devices.h - predicts from the environment which GPUs CUDA shows to this process, and
 * in which order.
 *
 * Used only to report hidden GPUs with the reason, and to list GPUs where CUDA cannot be queried.
 * The devices that CUDA itself reports take precedence.
 */
#ifndef GSV_RUNTIME_CUDA_VISIBLE_DEVICES_H
#define GSV_RUNTIME_CUDA_VISIBLE_DEVICES_H

#include "lib/runtime/devices/gpu_inventory.h"

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
