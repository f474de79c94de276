/*
 * prompt.h - prompt selection: the text before a job's texts.
 */
#ifndef GSV_RUNTIME_PROMPT_H
#define GSV_RUNTIME_PROMPT_H

#include "lib/runtime/plan/load_plan.h"

/* Set the plan's default prompt: from the options, else from the model. */
gpuserve_status gsv_prompt_choose(struct gsv_plan *plan, const gpuserve_model_options *options,
                                  gpuserve_error *error);

/* The prompt of `job`, borrowed from the job or the plan; NULL or empty: none. `adapter` is as in
 * gsv_run. */
gpuserve_status gsv_prompt_of(const struct gsv_plan *plan, const gpuserve_job *job,
                              const char **prompt, int32_t *adapter, gpuserve_error *error);

#endif
