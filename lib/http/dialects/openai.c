/*
 * openai.c - OpenAI's /v1/embeddings and /v1/models, compatible with the `openai` package.
 *
 * The same is at /embeddings and /models (text-embeddings-inference, llama.cpp, infinity) and at
 * Azure's path of a deployment, which names the model; its `api-version` has no effect.
 * The package requests base64 of little-endian float32 by default. Lists of token ids are used
 * unchanged. Other services use the same path. Their fields are supported where the library can do
 * the same, and rejected by name where they would change the result:
 *
 *   truncate, truncation, truncate_prompt_tokens   NVIDIA NIM, Jina, Voyage, vLLM: truncation
 *   input_type, task, prompt_name                  one of the model's prompts
 *   output_dimension, normalize, normalized,
 *   use_activation (vLLM)                          the form of the vector
 *   embedding_type, output_dtype, embed_dtype      its element type: float16, int8, binary ...
 *   outputs                                        own field: several outputs of one pass
 *   late_chunking                                  Jina: the inputs are chunks of one text
 *
 * `input` has llama.cpp's forms too (inputs.c).
 *
 * `chunking` is gpuserve's own: windows or late chunking of texts over the token limit.
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

struct embeddings {
    struct gsv_compact compact;
    struct gsv_output_set outputs;
    struct gsv_long long_texts;
    struct gsv_row_stream rows; /* of a streamed reply */
    uint32_t precision;
    bool base64;
};

/* Ends the object of a reply. */
static void put_usage(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "\"model\":");
    gsv_put_text(to, exchange->served->name);
    gsv_buffer_format(to, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}",
                      exchange->usage.n_tokens, exchange->usage.n_tokens);
}

/* The lines of a streamed reply: the elements of `data`, then model and usage. */
static void put_streamed(struct gsv_exchange *exchange, size_t i, size_t index)
{
    const struct embeddings *wanted = exchange->state;

    gsv_buffer_format(&exchange->reply,
                      "{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", index);
    gsv_put_compact(exchange, &wanted->compact, i, wanted->precision, wanted->base64);
    gsv_buffer_text(&exchange->reply, "}");
}

static void put_streamed_end(struct gsv_exchange *exchange)
{
    gsv_buffer_text(&exchange->reply, "{\"object\":\"list\",");
    put_usage(exchange);
}

static void write_embeddings(struct gsv_exchange *exchange)
{
    const struct embeddings *wanted = exchange->state;
    const struct gsv_call *work = &exchange->work;
    struct gsv_buffer *to = &exchange->reply;
    size_t n_chunks = 0;

    gsv_buffer_text(to, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < work->job.n_items; i++) {
        gsv_buffer_format(to, "%s{\"object\":\"embedding\",\"index\":%zu", i > 0 ? "," : "", i);
        gsv_put_chunks(exchange, &wanted->long_texts, i, &n_chunks);
        if (wanted->outputs.has_dense) {
            gsv_buffer_text(to, ",\"embedding\":");
            gsv_put_compact(exchange, &wanted->compact, i, wanted->precision, wanted->base64);
        }
        gsv_put_output_set(exchange, &wanted->outputs, i, wanted->base64);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "],");
    put_usage(exchange);
    gsv_reply_json(exchange);
}

/* ------------------------------------------------------------------------------------- options */

/* Checks fields of which only one meaning is supported; rejects other values. */
static bool check_form(struct gsv_exchange *exchange)
{
    static const struct gsv_unoffered unoffered[] = {
        { "messages", "the server embeds only `input`" },
        { "instruction", "use `prompt_name` with one of the model's prompts" },
        { "truncation_side", "use `truncation_direction`" },
        { "return_multivector", "use `outputs`: [\"colbert\"]" },
        { 0 },
    };
    static const struct {
        const char *key, *const values[3];
    } fixed[] = {
        { "endianness", { "native", "little", NULL } },
        { "modality", { "text", NULL } },
        { "padding", { "do_not_pad", NULL } },
    };
    bool special = true;

    if (!gsv_option_unoffered(exchange, exchange->json, unoffered) ||
        !gsv_member_flag(exchange, exchange->json, "add_special_tokens", &special))
        return false;
    if (!special)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "add_special_tokens",
                          "`add_special_tokens`: false is not supported: send token ids instead");
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        uint32_t value;

        if (!gsv_member_choice(exchange, exchange->json, fixed[i].key, fixed[i].values, &value))
            return false;
    }
    return true;
}

/* A field that names the element type, and in some services also base64. */
static bool read_precision(struct gsv_exchange *exchange, const char *key,
                           struct embeddings *wanted)
{
    const char *name = NULL;
    uint32_t precision = GPUSERVE_PRECISION_FLOAT32;

    if (!gsv_member_text(exchange, exchange->json, key, &name))
        return false;
    if (name && strcmp(name, "base64") == 0 && strcmp(key, "output_dtype") != 0) {
        wanted->base64 = true;
        return true;
    }
    if (name && strcmp(name, "float32") != 0 && !gsv_precision_named(name, &precision))
        return gsv_refuse(exchange, GSV_P_INVALID, key,
                          "`%s` is \"%.40s\": float, base64, float16, int8, uint8, binary and "
                          "ubinary are supported",
                          key, name);
    if (precision == GPUSERVE_PRECISION_FLOAT32) /* absent, or "float": the default */
        return true;
    if (wanted->precision != GPUSERVE_PRECISION_FLOAT32 && precision != wanted->precision)
        return gsv_refuse(exchange, GSV_P_INVALID, key,
                          "`%s` is \"%.40s\", but another field names another type", key, name);
    wanted->precision = precision;
    return true;
}

/* `encoding_format` (OpenAI; Mixedbread: also a type), `embedding_type` (Jina), `output_dtype`
 * (Voyage), `embed_dtype` (vLLM). */
static bool read_encoding(struct gsv_exchange *exchange, struct embeddings *wanted)
{
    static const char *const keys[] = { "embedding_type", "encoding_format", "output_dtype",
                                        "embed_dtype" };
    const char *user = NULL;

    if (!gsv_member_text(exchange, exchange->json, "user", &user))
        return false;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!read_precision(exchange, keys[i], wanted))
            return false;
    if (wanted->precision == GPUSERVE_PRECISION_FLOAT16 && !wanted->base64 &&
        !wanted->rows.is_arrow)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "encoding_format",
                          "float16 needs `encoding_format`: \"base64\"");
    wanted->compact.precisions = 1u << wanted->precision;
    return true;
}

/* `truncate` is a flag (Jina) or an end (NVIDIA NIM), `truncation` a flag (Voyage), and
 * `truncate_prompt_tokens` a limit (vLLM); -1: the model's limit. */
static bool read_cut(struct gsv_exchange *exchange, gpuserve_job *job, struct gsv_cut *cut)
{
    const json_t *body = exchange->json;
    const json_t *truncate = json_object_get(body, "truncate");
    bool cuts = exchange->server->options.auto_truncate;
    int64_t limit = 0;

    if (!gsv_member_count(exchange, body, "truncate_prompt_tokens", -1,
                          (int64_t)exchange->served->max_tokens, &limit))
        return false;
    cuts = cuts || limit != 0;
    if (!gsv_member_flag(exchange, body, "truncation", &cuts))
        return false;
    if (json_is_string(truncate)) {
        job->truncation = cuts ? GPUSERVE_TRUNCATE_DEFAULT : GPUSERVE_TRUNCATE_STRICT;
        if (!gsv_option_truncated_end(exchange, body, job))
            return false;
    } else if (!gsv_option_truncation_or(exchange, body, cuts, job)) {
        return false;
    }
    *cut = (struct gsv_cut){ "truncate_prompt_tokens", limit > 0 ? (size_t)limit : 0 };
    return true;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Maps the purpose in field `key` to one of the model's prompts. A model without prompts accepts
 * and ignores the known purposes. */
static bool read_purpose(struct gsv_exchange *exchange, const char *key, gpuserve_job *job)
{
    static const char *const queries[] = { "query", "search_query", "retrieval.query", NULL };
    static const char *const documents[] = { "document", "passage", "search_document",
                                             "retrieval.passage", NULL };
    static const char *const others[] = { "classification", "clustering", "text-matching",
                                          "separation", NULL };
    const json_t *prompts = gsv_served_prompts(exchange->served);
    const char *name = NULL;

    if (!gsv_member_text(exchange, exchange->json, key, &name))
        return false;
    if (!name || job->prompt_name)
        return true;
    if (json_object_get(prompts, name))
        job->prompt_name = name;
    else if (is_one_of(name, queries))
        job->prompt_name = gsv_prompt_named(exchange, gsv_query_prompts);
    else if (is_one_of(name, documents))
        job->prompt_name = gsv_prompt_named(exchange, gsv_document_prompts);
    else if (!is_one_of(name, others) || json_object_size(prompts) > 0)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, key,
                          "`%s` is \"%.64s\", but the model has no prompt of that name; query and "
                          "document are always valid",
                          key, name);
    return true;
}

static bool read_vector(struct gsv_exchange *exchange, gpuserve_job *job)
{
    static const char *const flags[] = { "normalize", "normalized", "use_activation" };
    static const char *const counts[] = { "dimensions", "output_dimension" };
    int64_t dimensions = 0;

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        bool normalize = true;

        if (!gsv_member_flag(exchange, exchange->json, flags[i], &normalize))
            return false;
        if (gsv_member_given(exchange->json, flags[i]))
            job->normalize = normalize ? GPUSERVE_NORMALIZE_YES : GPUSERVE_NORMALIZE_NO;
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        int64_t n = dimensions;

        if (!gsv_member_count(exchange, exchange->json, counts[i], 1,
                              (int64_t)exchange->served->dim, &n))
            return false;
        if (dimensions != 0 && n != dimensions)
            return gsv_refuse(exchange, GSV_P_INVALID, counts[i], "`%s` is %lld, but `%s` is %lld",
                              counts[i], (long long)n, counts[0], (long long)dimensions);
        dimensions = n;
    }
    job->dimensions = (uint32_t)dimensions;
    return true;
}

/* Long texts have the dense output alone. */
static bool check_long(struct gsv_exchange *exchange, const struct embeddings *wanted)
{
    return !wanted->outputs.is_given || !wanted->long_texts.is_asked ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "outputs",
                      "`outputs` is not supported with `chunking` or `late_chunking`");
}

/* The element type is that of the dense output. */
static bool check_type(struct gsv_exchange *exchange, const struct embeddings *wanted)
{
    return wanted->outputs.has_dense || wanted->precision == GPUSERVE_PRECISION_FLOAT32 ||
           gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                      "`outputs` does not have the dense output, whose element type the request "
                      "names");
}

/* Azure's path names the model, which its clients may also send as `model`. */
static bool take_model(struct gsv_exchange *exchange)
{
    return exchange->model_name ? gsv_request_model(exchange, exchange->model_name)
                                : gsv_request_body_model(exchange);
}

/* Texts over the token limit, which are not cut. */
static void start_long(struct gsv_exchange *exchange, struct embeddings *wanted,
                       const gpuserve_job *job, const struct gsv_inputs *inputs,
                       const struct gsv_cut *cut)
{
    if (cut->limit > 0)
        gsv_refuse(exchange, GSV_P_INVALID, cut->name,
                   "`%s` cuts texts, which `chunking` and `late_chunking` keep whole", cut->name);
    else
        gsv_long_start(exchange, &wanted->long_texts, &wanted->compact, job, inputs,
                       write_embeddings);
}

/* A streamed reply has the dense output of texts that fit. */
static bool check_stream(struct gsv_exchange *exchange, const struct embeddings *wanted)
{
    const char *given = wanted->outputs.is_given ? "outputs" : "chunking";

    return !exchange->stream || (!wanted->outputs.is_given && !wanted->long_texts.is_asked) ||
           gsv_row_stream_refuse(exchange, &wanted->rows, given);
}

static void start(struct gsv_exchange *exchange, struct embeddings *wanted, const gpuserve_job *job,
                  const struct gsv_inputs *inputs)
{
    if (!exchange->stream) {
        gsv_compact_start(exchange, &wanted->compact, job, inputs, write_embeddings);
        return;
    }
    wanted->rows.put_row = put_streamed;
    wanted->rows.put_end = put_streamed_end;
    wanted->rows.precision = wanted->precision;
    gsv_row_stream_start(exchange, &wanted->rows, &wanted->compact, job, inputs);
}

static void embeddings(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    struct embeddings *wanted = gsv_exchange_alloc(exchange, 1, sizeof(*wanted));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    struct gsv_cut cut;

    exchange->state = wanted;
    if (json_object_get(body, "truncation")) /* voyageai sends it always, and reads `detail` */
        exchange->dialect = GSV_VOYAGE;
    if (wanted)
        gsv_row_stream_read(exchange, &wanted->rows);
    if (!wanted || !take_model(exchange) || !check_form(exchange) ||
        !read_encoding(exchange, wanted) ||
        !gsv_output_set_read(exchange, &wanted->outputs, &job) || !check_type(exchange, wanted) ||
        !read_cut(exchange, &job, &cut) || !gsv_option_prompt(exchange, body, &job) ||
        !read_purpose(exchange, "input_type", &job) || !read_purpose(exchange, "task", &job) ||
        !read_vector(exchange, &job) || !gsv_output_set_form(exchange, &wanted->outputs, &job) ||
        !gsv_long_read(exchange, body, &wanted->long_texts) || !check_long(exchange, wanted) ||
        !check_stream(exchange, wanted) || !gsv_inputs_from_llama(exchange, "input") ||
        !gsv_inputs_read(exchange, json_object_get(body, "input"), "input",
                         wanted->long_texts.is_asked ? GSV_INPUTS_NO_IDS : 0, &job, &inputs))
        return;
    if (wanted->long_texts.is_asked)
        start_long(exchange, wanted, &job, &inputs, &cut);
    else if (gsv_inputs_cut(exchange, &inputs, &job, &cut) &&
             gsv_output_set_count(exchange, &wanted->outputs, &job, &inputs))
        start(exchange, wanted, &job, &inputs);
}

/* -------------------------------------------------------------------------------------- models */

static void begin_model(struct gsv_buffer *to, const char *name)
{
    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, name);
    gsv_buffer_text(to, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"gpuserve\"");
}

/* infinity's member of a model at /models, which its client requires: jobs in progress. */
static void put_load(struct gsv_exchange *exchange, struct gsv_entry *entry)
{
    struct gsv_served *served = gsv_models_hold(exchange->server->models, entry);

    gsv_buffer_format(&exchange->reply, ",\"stats\":{\"results_pending\":%zu}",
                      served ? atomic_load(&served->n_active) : 0);
    gsv_served_release(served);
}

static void list_entry(struct gsv_exchange *exchange, struct gsv_entry *entry, const char *name)
{
    begin_model(&exchange->reply, name);
    if (strcmp(exchange->path, "/models") == 0)
        put_load(exchange, entry);
    gsv_buffer_text(&exchange->reply, "}");
}

static void list_models(struct gsv_exchange *exchange)
{
    const struct gsv_models *models = exchange->server->models;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_entry *entry = &models->entries[i];

        gsv_buffer_text(to, i > 0 ? "," : "");
        list_entry(exchange, entry, entry->name);
        for (size_t j = 0; j < entry->n_aliases; j++) {
            gsv_buffer_text(to, ",");
            list_entry(exchange, entry, entry->aliases[j]);
        }
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

/* The number of labels of each head. */
static void put_heads(struct gsv_exchange *exchange)
{
    const json_t *heads = json_object_get(exchange->served->facts, "classifier_heads");
    struct gsv_buffer *to = &exchange->reply;
    json_t *head;
    size_t i;

    gsv_buffer_text(to, ",\"heads\":{");
    json_array_foreach(heads, i, head)
    {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_text(to, json_string_value(json_object_get(head, "name")));
        gsv_buffer_format(to, ":%zu", json_array_size(json_object_get(head, "labels")));
    }
    gsv_buffer_text(to, "}");
}

static void one_model(struct gsv_exchange *exchange)
{
    const struct gsv_served *served;
    struct gsv_buffer *to = &exchange->reply;

    if (!gsv_request_model(exchange, exchange->model_name))
        return;
    served = exchange->served;
    begin_model(to, exchange->model_name);
    gsv_buffer_format(
        to, ",\"dim\":%zu,\"labels\":%zu,\"token_labels\":%zu,\"max_tokens\":%zu,\"dtype\":",
        served->can_embed ? served->dim : 0, served->n_labels, served->n_token_labels,
        served->max_tokens);
    gsv_put_text(to, served->dtype);
    gsv_buffer_text(to, ",\"device\":");
    gsv_put_text(to, served->device);
    gsv_buffer_text(to, ",\"space\":");
    gsv_put_text(to, served->space);
    put_heads(exchange);
    gsv_buffer_text(to, "}");
    gsv_reply_json(exchange);
}

const struct gsv_route gsv_openai_routes[] = {
    { "POST", "/v1/embeddings", GSV_OPENAI, GSV_JSON_BODY, embeddings },
    { "POST", "/embeddings", GSV_OPENAI, GSV_JSON_BODY, embeddings },
    { "POST", "/openai/deployments/{model}/embeddings", GSV_OPENAI, GSV_JSON_BODY, embeddings,
      "Azure OpenAI" },
    { "GET", "/v1/models", GSV_OPENAI, GSV_WITHOUT_BODY | GSV_ALWAYS, list_models },
    { "GET", "/models", GSV_OPENAI, GSV_WITHOUT_BODY | GSV_ALWAYS, list_models },
    { "GET", "/v1/models/{model}", GSV_OPENAI, GSV_WITHOUT_BODY | GSV_ALWAYS, one_model },
    { 0 },
};
