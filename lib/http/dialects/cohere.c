/*
 * cohere.c - Cohere's /v1/embed and /v2/embed.
 *
 * `input_type` selects the model's prompt for queries or documents, if it has one. All of
 * `embedding_types` are supported: float, int8, uint8, binary, ubinary and base64 (of float32). The
 * reply is keyed by type in v2 and, as in Cohere's API, in v1 if the request has `embedding_types`.
 */
#include "lib/http/inference/embedding.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

/* In the order of the reply. */
static const struct {
    const char *name;
    uint32_t precision;
    bool base64;
} types[] = {
    { "float", GPUSERVE_PRECISION_FLOAT32, false },
    { "int8", GPUSERVE_PRECISION_INT8, false },
    { "uint8", GPUSERVE_PRECISION_UINT8, false },
    { "binary", GPUSERVE_PRECISION_BINARY, false },
    { "ubinary", GPUSERVE_PRECISION_UBINARY, false },
    { "base64", GPUSERVE_PRECISION_FLOAT32, true },
};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

struct cohere {
    struct gsv_inputs inputs;
    struct gsv_compact compact;
    bool by_type, v2, has[N_TYPES];
};

static void write_type(struct gsv_exchange *exchange, size_t type)
{
    struct cohere *cohere = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_compact(exchange, &cohere->compact, i, types[type].precision, types[type].base64);
    }
    gsv_buffer_text(to, "]");
}

static void write_types(struct gsv_exchange *exchange)
{
    const struct cohere *cohere = exchange->state;
    const char *separator = "";

    for (size_t type = 0; type < N_TYPES; type++) {
        if (!cohere->has[type])
            continue;
        if (cohere->by_type)
            gsv_buffer_format(&exchange->reply, "%s\"%s\":", separator, types[type].name);
        write_type(exchange, type);
        separator = ",";
    }
}

static void write_embeddings(struct gsv_exchange *exchange)
{
    const struct cohere *cohere = exchange->state;
    struct gsv_buffer *to = &exchange->reply;
    const bool by_type = cohere->by_type;

    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, exchange->id);
    gsv_buffer_text(to, by_type ? ",\"embeddings\":{" : ",\"embeddings\":");
    write_types(exchange);
    gsv_buffer_text(to, by_type ? "},\"texts\":[" : ",\"texts\":[");
    for (size_t i = 0; i < cohere->inputs.n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_bytes(to, cohere->inputs.texts[i], cohere->inputs.sizes[i]);
    }
    gsv_buffer_format(to,
                      "],\"meta\":{\"api_version\":{\"version\":\"%d\"},\"billed_units\":{"
                      "\"input_tokens\":%zu}},\"response_type\":\"%s\"}",
                      cohere->v2 ? 2 : 1, exchange->usage.n_tokens,
                      by_type ? "embeddings_by_type" : "embeddings_floats");
    gsv_reply_json(exchange);
}

static bool add_type(struct gsv_exchange *exchange, struct cohere *cohere, const char *name)
{
    for (size_t type = 0; name && type < N_TYPES; type++) {
        if (strcmp(name, types[type].name) == 0) {
            cohere->has[type] = true;
            cohere->compact.precisions |= 1u << types[type].precision;
            return true;
        }
    }
    return gsv_refuse(exchange, GSV_P_INVALID, "embedding_types",
                      "embedding type \"%.40s\" is not supported: float, int8, uint8, binary, "
                      "ubinary and base64 are",
                      name ? name : "");
}

static bool read_types(struct gsv_exchange *exchange, struct cohere *cohere)
{
    const json_t *list = json_object_get(exchange->json, "embedding_types");
    json_t *type;
    size_t i;

    cohere->v2 = exchange->path[2] == '2';
    cohere->has[0] = json_array_size(list) == 0;
    cohere->by_type = cohere->v2 || !cohere->has[0];
    if (list && !json_is_array(list) && !json_is_null(list))
        return gsv_refuse(exchange, GSV_P_INVALID, "embedding_types",
                          "`embedding_types` is not a list");
    json_array_foreach(list, i, type)
    {
        if (!add_type(exchange, cohere, json_string_value(type)))
            return false;
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
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "input_type",
                          "image input is not supported");
    if (type < 2)
        job->prompt_name =
            gsv_prompt_named(exchange, type == 0 ? gsv_query_prompts : gsv_document_prompts);
    return true;
}

static bool read_cut(struct gsv_exchange *exchange, gpuserve_job *job, struct gsv_cut *cut)
{
    const json_t *body = exchange->json;
    int64_t limit = 0;

    job->truncation = GPUSERVE_TRUNCATE_RIGHT; /* Cohere's default is END */
    if (!gsv_option_truncated_end(exchange, body, job) ||
        !gsv_member_count(exchange, body, "max_tokens", 1, INT32_MAX, &limit))
        return false;
    *cut = (struct gsv_cut){ "max_tokens", (size_t)limit };
    return true;
}

static bool read_options(struct gsv_exchange *exchange, gpuserve_job *job, struct gsv_cut *cut)
{
    static const struct gsv_unoffered unoffered[] = {
        { "images", "only text input is supported" },
        { "inputs", "only text input is supported, in `texts`" },
        { 0 },
    };
    int64_t dimensions = 0;

    if (!gsv_option_unoffered(exchange, exchange->json, unoffered) ||
        !read_types(exchange, exchange->state) || !read_input_type(exchange, job) ||
        !read_cut(exchange, job, cut) ||
        !gsv_member_count(exchange, exchange->json, "output_dimension", 1,
                          (int64_t)exchange->served->dim, &dimensions))
        return false;
    job->dimensions = (uint32_t)dimensions;
    return true;
}

static void embed(struct gsv_exchange *exchange)
{
    struct cohere *cohere = gsv_exchange_alloc(exchange, 1, sizeof(*cohere));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    struct gsv_cut cut;

    exchange->state = cohere;
    if (!cohere || !gsv_request_body_model(exchange) || !gsv_require_embedder(exchange) ||
        !read_options(exchange, &job, &cut) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "texts"), "texts",
                         GSV_INPUTS_NO_IDS, NULL, &cohere->inputs))
        return;
    inputs = cohere->inputs; /* the reply repeats the full texts */
    if (gsv_inputs_cut(exchange, &inputs, &job, &cut))
        gsv_compact_start(exchange, &cohere->compact, &job, &inputs, write_embeddings);
}

const struct gsv_route gsv_cohere_routes[] = {
    { "POST", "/v1/embed", GSV_COHERE, GSV_JSON_BODY, embed },
    { "POST", "/v2/embed", GSV_COHERE, GSV_JSON_BODY, embed },
    { 0 },
};
