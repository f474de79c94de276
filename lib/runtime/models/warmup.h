/*
 * warmup.h - runs a model's first batches before it serves requests.
 */
#ifndef GSV_RUNTIME_WARMUP_H
#define GSV_RUNTIME_WARMUP_H

#include "lib/runtime/model.h"

/*
 * Runs batches through the queue of a loaded model, as requests do: one short text, one of maximum
 * length, then batches that fill every worker. options->warmup sets the rounds, or `otherwise` if
 * it is 0. A model with non-finite results fails here with GPUSERVE_E_NUMERIC.
 */
gpuserve_status gsv_model_warm(struct gsv_model *model, const gpuserve_model_options *options,
                               uint32_t otherwise, gpuserve_error *error);

#endif
