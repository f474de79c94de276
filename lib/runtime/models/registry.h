/*
 * registry.h - the open models of a context, by name and version.
 *
 * The list is protected by the lock of the context's budget.
 */
#ifndef GSV_RUNTIME_REGISTRY_H
#define GSV_RUNTIME_REGISTRY_H

#include "lib/runtime/memory/budget.h"
#include "lib/runtime/models/handle.h"

/* Adds a handle. With `is_unique` another handle of that name and version is an error. */
gpuserve_status gsv_registry_add(gpuserve_model *handle, bool is_unique, gpuserve_error *error);

/* Accepts a handle that is not in the list. */
void gsv_registry_remove(gpuserve_model *handle);

/* Takes ownership of `version`. */
void gsv_registry_set_version(gpuserve_model *handle, char *version);

/* Counts the open models (without those still loading) and the suspended ones among them. */
void gsv_registry_count(gpuserve_context *context, uint32_t *n_open, uint64_t *n_suspended);

/* LRU eviction: suspends an idle model to free memory for a model that loads. */

/* A gsv_evict_fn (budget.h states its contract and its locks). */
bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device);

#endif
