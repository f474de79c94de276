/*
 * prompt.c - chooses what a job's prompt decides: the text before its texts (by text, by name, or
 * the default), the route of the same name, and the role of its texts in late interaction.
 *
 * A job's own prompt or prompt name comes before the plan's default. Jobs of token ids have no
 * prompt, unless it is in the ids. A prompt name also chooses the adapter of that name; token ids
 * without a prompt have the adapter of the default.
 */
#include "lib/runtime/plan/load_plan.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <stdio.h>
#include <string.h>

static gpuserve_status fail_unknown(const struct gsv_spec_facts *facts, const char *name,
                                    gpuserve_error *error)
{
    char names[300];
    size_t length = 0;

    names[0] = '\0';
    for (size_t i = 0; i < facts->n_prompts && length < sizeof(names); i++) {
        const int n = snprintf(names + length, sizeof(names) - length, "%s\"%s\"",
                               i > 0 ? ", " : "", facts->prompts[i].name);

        length += n > 0 ? (size_t)n : 0;
    }
    if (facts->n_prompts == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "unknown prompt \"%.100s\": the model has no prompts", name);
    return gsv_fail(error, GPUSERVE_E_INVALID, "unknown prompt \"%.100s\": the model has %s", name,
                    names);
}

/* NULL if the model has no prompt of this name. */
static const struct gsv_prompt *find(const struct gsv_spec_facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->n_prompts; i++) {
        if (strcmp(facts->prompts[i].name, name) == 0)
            return &facts->prompts[i];
    }
    return NULL;
}

/* The index of a route; -1 if the model has none of this name. */
static int32_t find_route(const struct gsv_spec_facts *facts, const char *name)
{
    for (int32_t i = 0; i < facts->n_routes; i++) {
        if (strcmp(facts->routes[i], name) == 0)
            return i;
    }
    return -1;
}

static gpuserve_status choose_text(struct gsv_plan *plan, const char *text, gpuserve_error *error)
{
    const size_t size = strlen(text);

    if (gsv_utf8_valid_length(text, size) != size)
        return gsv_fail(error, GPUSERVE_E_INVALID, "default_prompt is not UTF-8");
    if (size == 0)
        return GPUSERVE_OK;
    plan->prompt_text = gsv_copy_text(text, size);
    if (!plan->prompt_text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the default prompt");
    plan->default_prompt = plan->prompt_text;
    return GPUSERVE_OK;
}

gpuserve_status gsv_prompt_choose(struct gsv_plan *plan, const gpuserve_model_options *options,
                                  gpuserve_error *error)
{
    const struct gsv_prompt *prompt;
    const char *name = options->default_prompt_name;

    if (name && options->default_prompt)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "default_prompt and default_prompt_name are both set");
    if (options->default_prompt)
        return choose_text(plan, options->default_prompt, error);
    if (!name)
        name = plan->facts->default_prompt;
    if (!name)
        return GPUSERVE_OK;
    prompt = find(plan->facts, name);
    if (!prompt)
        return gsv_fail_in(error, fail_unknown(plan->facts, name, error), "default_prompt_name");
    plan->default_prompt = prompt->text;
    plan->default_prompt_name = prompt->name;
    plan->default_adapter = prompt->adapter;
    return GPUSERVE_OK;
}

gpuserve_status gsv_prompt_of(const struct gsv_plan *plan, const gpuserve_job *job,
                              const char **prompt, int32_t *adapter, gpuserve_error *error)
{
    const struct gsv_prompt *named;

    *prompt = job->prompt ? job->prompt : plan->default_prompt;
    *adapter = job->prompt ? 0 : plan->default_adapter;
    if (job->ids && !job->prompt_in_ids)
        *prompt = NULL;
    if ((job->ids && !job->prompt_in_ids) || !job->prompt_name)
        return GPUSERVE_OK;
    named = find(plan->facts, job->prompt_name);
    if (!named)
        return fail_unknown(plan->facts, job->prompt_name, error);
    *prompt = named->text;
    *adapter = named->adapter;
    return GPUSERVE_OK;
}

gpuserve_status gsv_route_of(const struct gsv_plan *plan, const gpuserve_job *job, int32_t *route,
                             gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    const char *name = job->prompt_name;

    if (!name && !job->prompt && (!job->ids || job->prompt_in_ids))
        name = plan->default_prompt_name;
    *route = name ? find_route(facts, name) : -1;
    if (*route < 0)
        *route = facts->n_routes > 0 ? facts->default_route : 0;
    if (*route >= 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_INVALID,
             "the model has %d routes and no default: the job names none", facts->n_routes);
    return gsv_hint(error, GPUSERVE_E_INVALID, "name a route as prompt_name, such as \"%.64s\"",
                    facts->routes[0]);
}

/* ----------------------------------------------------------------------------------------- roles
 */

enum gsv_role gsv_role_of(const gpuserve_job *job)
{
    if (job->role != GPUSERVE_ROLE_DEFAULT)
        return job->role == GPUSERVE_ROLE_QUERY ? GSV_ROLE_QUERY : GSV_ROLE_DOCUMENT;
    if (job->prompt_name && strcmp(job->prompt_name, "query") == 0)
        return GSV_ROLE_QUERY;
    if (job->prompt_name && strcmp(job->prompt_name, "document") == 0)
        return GSV_ROLE_DOCUMENT;
    return GSV_ROLE_NONE;
}

int32_t gsv_role_limit(const struct gsv_plan *plan, enum gsv_role role)
{
    const int32_t limit = plan->facts->late->limits[role];

    return limit > 0 && limit < plan->max_tokens ? limit : plan->max_tokens;
}

static bool reads_vectors(uint32_t task)
{
    return task == GPUSERVE_TASK_TOKEN_VECTORS || task == GPUSERVE_TASK_MAX_SIM;
}

static bool has_vectors(const gpuserve_job *job)
{
    bool found = reads_vectors(job->task);

    for (size_t i = 0; i < job->n_more; i++)
        found = found || reads_vectors(job->more[i].task);
    return found;
}

bool gsv_job_fills(const struct gsv_plan *plan, const gpuserve_job *job)
{
    return plan->facts->late->length > 0 && gsv_role_of(job) == GSV_ROLE_QUERY && has_vectors(job);
}

bool gsv_job_skips(const struct gsv_plan *plan, const gpuserve_job *job)
{
    const enum gsv_role role = gsv_role_of(job);

    if (plan->late.n_skipped == 0 || !has_vectors(job) || (job->ids && role == GSV_ROLE_NONE))
        return false;
    return plan->facts->late->skips[role == GSV_ROLE_NONE ? GSV_ROLE_DOCUMENT : role];
}
