/*
 * request_options.c - parses and validates the JSON fields that several dialects share.
 */
#include "lib/http/inference/request_options.h"

#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <string.h>

uint32_t gsv_server_truncation(const struct gsv_exchange *exchange)
{
    return exchange->server->options.auto_truncate ? GPUSERVE_TRUNCATE_DEFAULT
                                                   : GPUSERVE_TRUNCATE_STRICT;
}

bool gsv_option_truncation_or(struct gsv_exchange *exchange, const json_t *object, bool truncate,
                              gpuserve_job *job)
{
    static const char *const directions[] = { "right", "left", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_DEFAULT };
    uint32_t direction = 2;

    if (!gsv_member_flag(exchange, object, "truncate", &truncate) ||
        !gsv_member_choice(exchange, object, "truncation_direction", directions, &direction))
        return false;
    job->truncation = truncate ? truncations[direction] : (uint32_t)GPUSERVE_TRUNCATE_STRICT;
    exchange->cut_by =
        object == exchange->json ? "`truncate`: true" : "`truncate`: true in `parameters`";
    return true;
}

bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    return gsv_option_truncation_or(exchange, object, exchange->server->options.auto_truncate, job);
}

bool gsv_option_truncated_end(struct gsv_exchange *exchange, const json_t *object,
                              gpuserve_job *job)
{
    static const char *const names[] = { "END", "START", "NONE", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_STRICT };
    uint32_t truncate = UINT32_MAX;

    if (!gsv_member_choice(exchange, object, "truncate", names, &truncate))
        return false;
    if (truncate != UINT32_MAX)
        job->truncation = truncations[truncate];
    return true;
}

/* Uses the words that tei-client parses. */
static bool refuse_prompt(struct gsv_exchange *exchange, const char *name)
{
    struct gsv_buffer known = { .maximum = 512 };
    const json_t *prompts = gsv_served_prompts(exchange->served);
    const char *key;
    json_t *value;

    /* tei-client would parse "[]" as one prompt without a name. */
    if (json_object_size(prompts) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
                          "unknown prompt \"%.100s\": the model has no prompts", name);
    json_object_foreach((json_t *)prompts, key, value)
        gsv_buffer_format(&known, "%s\"%s\"", known.size ? ", " : "", key);
    gsv_buffer_add(&known, "", 1);
    gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
               "unknown prompt \"%.100s\". Available prompts: [%s]", name,
               known.failed ? "too many to list" : known.bytes);
    gsv_buffer_reset(&known);
    return false;
}

bool gsv_option_prompt(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    const char *name = NULL;

    if (!gsv_member_text(exchange, object, "prompt_name", &name))
        return false;
    if (name && !json_object_get(gsv_served_prompts(exchange->served), name))
        return refuse_prompt(exchange, name);
    job->prompt_name = name;
    return true;
}

bool gsv_option_vector(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    bool normalize = true;
    int64_t dimensions = 0;

    if (!gsv_member_flag(exchange, object, "normalize", &normalize) ||
        !gsv_member_count(exchange, object, "dimensions", 1, (int64_t)exchange->served->dim,
                          &dimensions))
        return false;
    job->normalize = normalize ? GPUSERVE_NORMALIZE_YES : GPUSERVE_NORMALIZE_NO;
    job->dimensions = (uint32_t)dimensions;
    return true;
}

/* --------------------------------------------------------------------------- unsupported fields */

static bool has_no_effect(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

bool gsv_option_unoffered(struct gsv_exchange *exchange, const json_t *object,
                          const struct gsv_unoffered *list)
{
    for (; list->name; list++) {
        if (!has_no_effect(json_object_get(object, list->name)))
            return gsv_refuse(exchange, GSV_P_UNSUPPORTED, list->name, "`%s` is not supported: %s",
                              list->name, list->why);
    }
    return true;
}

static bool refuse_member(struct gsv_exchange *exchange, const char *name, const char *key,
                          const char *const *known)
{
    struct gsv_buffer names = { .maximum = 512 };

    for (const char *const *one = known; *one; one++)
        gsv_buffer_format(&names, "%s%s", names.size ? ", " : "", *one);
    gsv_buffer_add(&names, "", 1);
    gsv_refuse(exchange, GSV_P_UNSUPPORTED, key,
               "`%s` holds `%.64s`, which is not supported for this task, only %s", name, key,
               names.failed ? "others" : names.bytes);
    gsv_buffer_reset(&names);
    return false;
}

bool gsv_option_known(struct gsv_exchange *exchange, const json_t *object, const char *name,
                      const char *const *known)
{
    const char *key;
    json_t *value;

    if (!object || json_is_null(object))
        return true;
    if (!json_is_object(object))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not an object", name);
    json_object_foreach((json_t *)object, key, value)
    {
        const char *const *one = known;

        while (*one && strcmp(*one, key) != 0)
            one++;
        if (!*one && !json_is_null(value))
            return refuse_member(exchange, name, key, known);
    }
    return true;
}

/* --------------------------------------------------------------------------------------- models */

bool gsv_require_embedder(struct gsv_exchange *exchange)
{
    const struct gsv_served *served = exchange->served;
    const char *what = "makes token vectors or sparse vectors";

    if (served->is_reranker)
        what = "is a reranker";
    else if (served->n_labels > 0 || served->n_token_labels > 0)
        what = "is a classifier";
    return served->can_embed ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" makes no embeddings: it %s", served->name, what);
}

bool gsv_require_classifier(struct gsv_exchange *exchange)
{
    if (exchange->served->n_token_labels > 0)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                          "model \"%s\" labels tokens, not texts: use the route /",
                          exchange->served->name);
    return exchange->served->n_labels > 0 ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" has no classifier: it makes embeddings",
                      exchange->served->name);
}
