/*
 * device.h - from a selector to a device.
 */
#ifndef GSV_RUNTIME_DEVICE_H
#define GSV_RUNTIME_DEVICE_H

#include <gpuserve/gpuserve.h>
#include <gpuserve/sys/backend.h>

#include <stdbool.h>

struct gsv_device_choice {
    const struct gpuserve_backend *backend;
    struct gpuserve_device_facts facts;
    bool is_cpu;
    bool was_auto;                          /* nobody named it */
    uint64_t mps_bytes;                     /* most that MPS lets a process have there; 0: all */
    char reason[GPUSERVE_ERROR_TEXT_BYTES]; /* why this one */
};

/* See gpuserve_device_select(). */
gpuserve_status gsv_device_choose(gpuserve_context *context, const char *selector,
                                  struct gsv_device_choice *choice, gpuserve_error *error);

/* All that a selector names: several for "cuda:*" and "auto:limit=N". *choices is owned, freed with
 * free(); *n is at least 1 on success. leaves_out: "cuda:*" is without those that do not work,
 * while there is another, and a warning tells it; else it fails. */
gpuserve_status gsv_device_choose_all(gpuserve_context *context, const char *selector,
                                      bool leaves_out, struct gsv_device_choice **choices,
                                      size_t *n, gpuserve_error *error);

/* "cpu" or "cuda:0": what selects this device alone. */
void gsv_device_selector(const struct gsv_device_choice *choice, char *selector, size_t capacity);

/* How many devices the plugin's backend has; 0 and GPUSERVE_E_DEVICE with the missing layer. */
gpuserve_status gsv_device_cuda(gpuserve_context *context, const struct gpuserve_backend **backend,
                                int32_t *count, gpuserve_error *error);

#endif
