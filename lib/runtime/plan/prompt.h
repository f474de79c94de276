/*
 * prompt.h - prompt selection: the text before a job's texts, and the route of that name.
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

/* The route of `job` in a model with a Router: the one with the name of its prompt, else the
 * model's default route. 0 in other models. */
gpuserve_status gsv_route_of(const struct gsv_plan *plan, const gpuserve_job *job, int32_t *route,
                             gpuserve_error *error);

#endif
