/*
 * device_report.h - devices and driver as JSON, for gpuserve_device_report() and the doctor.
 */
#ifndef GSV_RUNTIME_DEVICE_REPORT_H
#define GSV_RUNTIME_DEVICE_REPORT_H

#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/core/json_out.h"

/* The driver and the GPUs it reports. `gpus` may be NULL; `why` then holds the reason. `view` may
 * be NULL; the CUDA numbers are then derived from CUDA's environment variables. */
struct gsv_json gsv_report_driver(const struct gsv_gpus *gpus, const struct gsv_cuda_view *view,
                                  const gpuserve_error *why);

/* The environment variables that CUDA and MPS read; null if unset. */
struct gsv_json gsv_report_environment(void);

/* Adds what `auto` would choose now and why, as "auto" and "reason". */
void gsv_report_auto(struct gsv_json *json, gpuserve_context *context);

#endif
