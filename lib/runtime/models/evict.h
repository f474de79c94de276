/*
 * evict.h - suspending an idle model in favour of one that loads.
 */
#ifndef GSV_RUNTIME_EVICT_H
#define GSV_RUNTIME_EVICT_H

#include "lib/runtime/memory/budget.h"

/* A gsv_evict_fn: see budget.h. */
bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device);

#endif
