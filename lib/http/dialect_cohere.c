/*
 * dialect_cohere.c - /v1/embed and /v2/embed of Cohere.
 *
 * `input_type` chooses the model's prompt for queries or documents where it has one. Of
 * `embedding_types` float and base64 are given; the others are refused by name.
 */
#include "lib/http/options.h"
#include "lib/http/request.h"
#include "lib/http/rerank.h"
#include "lib/http/route.h"
#include "lib/http/server.h"
#include "lib/http/work.h"

#include <string.h>

struct cohere {
    struct gsv_inputs inputs;
    bool v2, floats, base64;
};

static void write_base64(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_base64(to, gsv_work_row(exchange, i), exchange->work.columns);
    }
    gsv_buffer_text(to, "]");
}

static void write_floats(struct gsv_exchange *exchange)
{
    gsv_put_rows(&exchange->reply, exchange->work.job.output, exchange->work.job.n_items,
                 exchange->work.columns);
}

static void write_embeddings(struct gsv_exchange *exchange)
{
    const struct cohere *cohere = exchange->state;
    struct gsv_buffer *to = &exchange->reply;
    const bool by_type = cohere->v2 || cohere->base64;

    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, exchange->id);
    gsv_buffer_text(to, by_type ? ",\"embeddings\":{" : ",\"embeddings\":");
    if (by_type && cohere->floats)
        gsv_buffer_text(to, "\"float\":");
    if (cohere->floats)
        write_floats(exchange);
    if (cohere->base64) {
        gsv_buffer_text(to, cohere->floats ? ",\"base64\":" : "\"base64\":");
        write_base64(exchange);
    }
    gsv_buffer_text(to, by_type ? "},\"texts\":[" : ",\"texts\":[");
    for (size_t i = 0; i < cohere->inputs.n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_bytes(to, cohere->inputs.texts[i], cohere->inputs.sizes[i]);
    }
    gsv_buffer_format(to,
                      "],\"meta\":{\"api_version\":{\"version\":\"%d\"},\"billed_units\":{"
                      "\"input_tokens\":%zu}},\"response_type\":\"%s\"}",
                      cohere->v2 ? 2 : 1, exchange->account.n_tokens,
                      by_type ? "embeddings_by_type" : "embeddings_floats");
    gsv_reply_json(exchange);
}

static bool read_types(struct gsv_exchange *exchange, struct cohere *cohere)
{
    const json_t *types = json_object_get(exchange->json, "embedding_types");
    json_t *type;
    size_t i;

    cohere->floats = json_array_size(types) == 0;
    if (types && !json_is_array(types) && !json_is_null(types))
        return gsv_refuse(exchange, GSV_P_INVALID, "embedding_types",
                          "`embedding_types` is no list");
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);

        if (name && strcmp(name, "float") == 0)
            cohere->floats = true;
        else if (name && strcmp(name, "base64") == 0)
            cohere->base64 = true;
        else
            return gsv_refuse(exchange, GSV_P_INVALID, "embedding_types",
                              "embedding type \"%.40s\" is not offered, only float and base64",
                              name ? name : "");
    }
    return true;
}

static bool read_input_type(struct gsv_exchange *exchange, gpuserve_job *job)
{
    static const char *const names[] = { "search_query", "search_document", "classification",
                                         "clustering",   "image",           NULL };
    uint32_t type = 2;

    if (!gsv_member_choice(exchange, exchange->json, "input_type", names, &type))
        return false;
    if (type == 4)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "input_type", "images cannot be embedded");
    if (type < 2)
        job->prompt_name =
            gsv_prompt_named(exchange, type == 0 ? gsv_query_prompts : gsv_document_prompts);
    return true;
}

static bool read_truncate(struct gsv_exchange *exchange, gpuserve_job *job)
{
    static const char *const names[] = { "END", "START", "NONE", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_STRICT };
    uint32_t truncate = 0; /* END is Cohere's default */

    if (!gsv_member_choice(exchange, exchange->json, "truncate", names, &truncate))
        return false;
    job->truncation = truncations[truncate];
    return true;
}

static void embed(struct gsv_exchange *exchange)
{
    struct cohere *cohere = gsv_keep(exchange, 1, sizeof(*cohere));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    int64_t dimensions = 0;

    exchange->state = cohere;
    if (!cohere || !gsv_request_body_model(exchange) || !gsv_require_embedder(exchange) ||
        !read_types(exchange, cohere) || !read_input_type(exchange, &job) ||
        !read_truncate(exchange, &job) ||
        !gsv_member_count(exchange, exchange->json, "output_dimension", 1,
                          (int64_t)exchange->served->dim, &dimensions) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "texts"), "texts",
                         GSV_INPUTS_NO_IDS, NULL, &cohere->inputs))
        return;
    cohere->v2 = exchange->path[2] == '2';
    job.dimensions = (uint32_t)dimensions;
    gsv_work_start(exchange, &job, &cohere->inputs, write_embeddings);
}

const struct gsv_route gsv_cohere_routes[] = {
    { "POST", "/v1/embed", GSV_COHERE, GSV_JSON_BODY, embed },
    { "POST", "/v2/embed", GSV_COHERE, GSV_JSON_BODY, embed },
    { 0 },
};
