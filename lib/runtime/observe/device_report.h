/*
 * device_report.h - what is known of devices as JSON, for gpuserve_device_report() and the doctor.
 */
#ifndef GSV_RUNTIME_DEVICE_REPORT_H
#define GSV_RUNTIME_DEVICE_REPORT_H

#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/core/json_out.h"

/* The driver and the GPUs that it sees; `gpus` may be NULL, then `why` says why. `view` may be
 * NULL: then CUDA's numbers are those that its environment variables give. */
struct gsv_json gsv_report_driver(const struct gsv_gpus *gpus, const struct gsv_cuda_view *view,
                                  const gpuserve_error *why);

/* The variables that CUDA and MPS read, null where unset. */
struct gsv_json gsv_report_environment(void);

/* What `auto` would choose now, and why, as "auto" and "reason". */
void gsv_report_auto(struct gsv_json *json, gpuserve_context *context);

#endif
