/*
 * options.c - see options.h.
 */
#include "lib/http/options.h"

#include "lib/http/models.h"
#include "lib/http/request.h"
#include "lib/http/server.h"

uint32_t gsv_server_truncation(const struct gsv_exchange *exchange)
{
    return exchange->server->options.auto_truncate ? GPUSERVE_TRUNCATE_DEFAULT
                                                   : GPUSERVE_TRUNCATE_STRICT;
}

bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    static const char *const directions[] = { "right", "left", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_DEFAULT };
    bool truncate = exchange->server->options.auto_truncate;
    uint32_t direction = 2;

    if (!gsv_member_flag(exchange, object, "truncate", &truncate) ||
        !gsv_member_choice(exchange, object, "truncation_direction", directions, &direction))
        return false;
    job->truncation = truncate ? truncations[direction] : (uint32_t)GPUSERVE_TRUNCATE_STRICT;
    exchange->cut_by =
        object == exchange->json ? "`truncate`: true" : "`truncate`: true in `parameters`";
    return true;
}

/* In the words that tei-client looks for. */
static bool refuse_prompt(struct gsv_exchange *exchange, const char *name)
{
    struct gsv_buffer known = { .maximum = 512 };
    const json_t *prompts = gsv_served_prompts(exchange->served);
    const char *key;
    json_t *value;

    /* Of "[]" it would make one prompt without a name. */
    if (json_object_size(prompts) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
                          "there is no prompt \"%.100s\": the model has none", name);
    json_object_foreach((json_t *)prompts, key, value)
        gsv_buffer_format(&known, "%s\"%s\"", known.size ? ", " : "", key);
    gsv_buffer_add(&known, "", 1);
    gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
               "there is no prompt \"%.100s\". Available prompts: [%s]", name,
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

bool gsv_require_embedder(struct gsv_exchange *exchange)
{
    return exchange->served->can_embed ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" makes no embeddings: it is a classifier",
                      exchange->served->name);
}

bool gsv_require_classifier(struct gsv_exchange *exchange)
{
    if (exchange->served->n_token_labels > 0)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                          "model \"%s\" labels the tokens of a text, not texts: ask at /",
                          exchange->served->name);
    return exchange->served->n_labels > 0 ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" has no classifier: it makes embeddings",
                      exchange->served->name);
}
