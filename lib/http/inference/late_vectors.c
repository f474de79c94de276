/*
 * late_vectors.c - jobs of token vectors, and of their MaxSim with a query. Texts of the former are
 * tokenized here, since the capacity of the output depends on the number of tokens.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"

#include <string.h>

size_t gsv_late_limit(const struct gsv_exchange *exchange, uint32_t role)
{
    const gpuserve_model_properties *properties = &exchange->served->properties;

    return role == GPUSERVE_ROLE_QUERY ? properties->query_tokens : properties->document_tokens;
}

static bool is_query(const gpuserve_job *job)
{
    return job->prompt_name && strcmp(job->prompt_name, "query") == 0;
}

uint32_t gsv_late_role(const gpuserve_job *job, const struct gsv_inputs *inputs)
{
    if (!inputs->texts)
        return GPUSERVE_ROLE_DEFAULT;
    return is_query(job) ? GPUSERVE_ROLE_QUERY : GPUSERVE_ROLE_DOCUMENT;
}

size_t gsv_late_expansion(const struct gsv_exchange *exchange, const gpuserve_job *job)
{
    return job->role == GPUSERVE_ROLE_QUERY || (job->role == GPUSERVE_ROLE_DEFAULT && is_query(job))
               ? exchange->served->properties.expanded_tokens
               : 0;
}

bool gsv_late_vectors_start(struct gsv_exchange *exchange, const struct gsv_inputs *texts,
                            uint32_t role, uint32_t truncation, gsv_handler done)
{
    const char *prompt = gsv_prompt_named(
        exchange, role == GPUSERVE_ROLE_QUERY ? gsv_query_prompts : gsv_document_prompts);
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.role = role;
    job.truncation = truncation;
    if (!gsv_inputs_make(exchange, texts->n, false, &inputs))
        return false;
    for (size_t i = 0; i < texts->n; i++)
        gsv_inputs_set(&inputs, i, texts->texts[i], texts->sizes[i]);
    return gsv_inputs_prompt(exchange, &inputs, prompt) &&
           gsv_inputs_tokenize(exchange, &inputs, gsv_late_limit(exchange, role), truncation) &&
           gsv_call_start(exchange, &job, &inputs, done);
}

float *gsv_late_vectors(const struct gsv_exchange *exchange, size_t i, size_t *n)
{
    const size_t *offsets = exchange->work.job.token_offsets;
    const size_t skipped = exchange->served->properties.first_vector;

    *n = offsets[i + 1] - offsets[i];
    *n = *n > skipped ? *n - skipped : 0;
    return exchange->work.job.output + (offsets[i] + skipped) * exchange->work.columns;
}

bool gsv_scores_max_sim(const struct gsv_exchange *exchange, size_t n_query)
{
    return n_query <= GPUSERVE_MAX_QUERY_VECTORS &&
           json_integer_value(json_object_get(exchange->served->facts, "cache_bytes")) == 0;
}

bool gsv_max_sim_start(struct gsv_exchange *exchange, const struct gsv_inputs *documents,
                       const float *query, size_t n_query, uint32_t truncation, gsv_handler done)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.task = GPUSERVE_TASK_MAX_SIM;
    job.role = GPUSERVE_ROLE_DOCUMENT;
    job.truncation = truncation;
    job.prompt_name = gsv_prompt_named(exchange, gsv_document_prompts);
    job.query_vectors = query;
    job.n_query_vectors = n_query;
    return gsv_call_start(exchange, &job, documents, done);
}
