/*
 * evict.h - suspending an idle model in favour of one that loads.
 */
#ifndef GSV_RUNTIME_EVICT_H
#define GSV_RUNTIME_EVICT_H

#include "lib/runtime/memory/budget.h"

/*
 * Suspend the idle model that was used longest ago, of those that hold memory of a device
 * (NULL: any memory) and may be evicted. False when there is none. The budget's lock is held before
 * and after, not meanwhile.
 */
bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device);

#endif
