/*
 * warmup.h - the first batches of a model, run before anybody waits for them.
 */
#ifndef GSV_RUNTIME_WARMUP_H
#define GSV_RUNTIME_WARMUP_H

#include "lib/runtime/model.h"

/*
 * Run batches through the queue of a loaded model, as requests do: one short text, one of the
 * longest, then batches that fill every worker, as options->warmup says or, where it says nothing,
 * `otherwise`. A model whose results are not numbers fails here with GPUSERVE_E_NUMERIC.
 */
gpuserve_status gsv_model_warm(struct gsv_model *model, const gpuserve_model_options *options,
                               uint32_t otherwise, gpuserve_error *error);

#endif
