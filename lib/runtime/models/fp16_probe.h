/*
 * fp16_probe.h - detects activations that overflow the range of float16.
 */
#ifndef GSV_RUNTIME_FP16_PROBE_H
#define GSV_RUNTIME_FP16_PROBE_H

#include "lib/runtime/plan/load_plan.h"

/* Runs the first calibration texts through `net`, which computes in float16. *overflows is true if
 * an output is NaN or infinite. Needs the device memory of one worker, so call it before the
 * workers start. */
gpuserve_status gsv_probe_overflow(bool *overflows, const struct gsv_plan *plan,
                                   const struct gsv_net *net, gpuserve_error *error);

#endif
