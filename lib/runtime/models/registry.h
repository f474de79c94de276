/*
 * registry.h - the open models of a context, by name and version.
 */
#ifndef GSV_RUNTIME_REGISTRY_H
#define GSV_RUNTIME_REGISTRY_H

#include "lib/runtime/models/handle.h"

/* List a handle. With `is_unique` its name and version must be nobody else's. */
gpuserve_status gsv_registry_add(gpuserve_model *handle, bool is_unique, gpuserve_error *error);

/* Accepts a handle that is not listed. */
void gsv_registry_remove(gpuserve_model *handle);

/* Takes over `version`. */
void gsv_registry_set_version(gpuserve_model *handle, char *version);

/* How many models are open (not those still loading), and how many of them are suspended. */
void gsv_registry_count(gpuserve_context *context, uint32_t *n_open, uint64_t *n_suspended);

#endif
