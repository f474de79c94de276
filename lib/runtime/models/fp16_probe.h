/*
 * fp16_probe.h - whether a model's numbers leave the range of float16.
 */
#ifndef GSV_RUNTIME_FP16_PROBE_H
#define GSV_RUNTIME_FP16_PROBE_H

#include "lib/runtime/plan/load_plan.h"

/* Run some ordinary texts through `net`, which computes in float16: *overflows when an answer holds
 * NaN or infinity. Takes on the device what one worker takes, so before there are any. */
gpuserve_status gsv_probe_overflow(bool *overflows, const struct gsv_plan *plan,
                                   const struct gsv_net *net, gpuserve_error *error);

#endif
