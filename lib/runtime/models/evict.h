/*
 * evict.h - LRU eviction: suspends an idle model to free memory for a model that loads.
 */
#ifndef GSV_RUNTIME_EVICT_H
#define GSV_RUNTIME_EVICT_H

#include "lib/runtime/memory/budget.h"

/* A gsv_evict_fn (budget.h states its contract and its locks). */
bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device);

#endif
