/*
 * vertex.c - Google Vertex AI: prediction requests to a custom container.
 *
 *   {"instances": [...], "parameters": {...}}  ->  {"predictions": [...]}
 *
 * Vertex AI sends them to the path in AIP_PREDICT_ROUTE; text-embeddings-inference has /vertex. The
 * form of an instance selects that of its prediction:
 *
 *   "a text", {"text": "a text"}    the vector, the labels, or the sparse vector of the text
 *   {"inputs": ...}                 TEI: the reply that /embed, /predict or /embed_sparse gives
 *   {"query", "texts": [...]}       TEI: the reply that /rerank gives
 *   {"content": "a text"}           Google's text embeddings, if all instances have this form:
 *                                   {"embeddings":{"values","statistics"}}; else as "a text"
 *
 * All instances run as one job, so an option that instances have must have one value. Instances
 * with a query run as one job, or two, each, in sequence.
 *
 * Data flow: gsv_vertex -> options are merged into `parameters` -> a job -> a writer, which walks
 * `instances` again: the request's JSON lives as long as the reply is written.
 */
#include "lib/http/dialects/tei.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

enum vertex_form { VERTEX_STRING, VERTEX_CONTENT, VERTEX_INPUTS, VERTEX_QUERY, VERTEX_INVALID };

/* The form of an instance and its field with the text; *value is NULL for a query. */
static enum vertex_form form_of(const json_t *instance, const json_t **value)
{
    static const struct {
        const char *name;
        enum vertex_form form;
    } fields[] = { { "query", VERTEX_QUERY },
                   { "inputs", VERTEX_INPUTS },
                   { "content", VERTEX_CONTENT },
                   { "text", VERTEX_STRING } };
    enum vertex_form form = VERTEX_INVALID;

    *value = json_is_string(instance) ? instance : NULL;
    if (*value)
        return VERTEX_STRING;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const json_t *found = json_object_get(instance, fields[i].name);

        if (!found || json_is_null(found))
            continue;
        if (form != VERTEX_INVALID)
            return VERTEX_INVALID;
        form = fields[i].form;
        *value = form == VERTEX_QUERY ? NULL : found;
        if (form != VERTEX_QUERY && !json_is_string(found) &&
            !(form == VERTEX_INPUTS && json_is_array(found)))
            return VERTEX_INVALID;
    }
    return form;
}

static const json_t *instance_at(const struct gsv_exchange *exchange, size_t i)
{
    return json_array_get(json_object_get(exchange->json, "instances"), i);
}

static size_t n_instances(const struct gsv_exchange *exchange)
{
    return json_array_size(json_object_get(exchange->json, "instances"));
}

/* --------------------------------------------------------------------------------------- reply */

/* Writes the prediction of row i. False after gsv_refuse. */
typedef bool (*put_prediction)(struct gsv_exchange *exchange, size_t i);

/* True if `inputs` of an instance is one input: a text, token ids, or a classifier's list of one or
 * two texts. False: a list of these. */
static bool is_one_input(const json_t *inputs, bool is_classifier)
{
    const json_t *first = json_array_get(inputs, 0);

    if (!json_is_array(inputs))
        return true;
    return is_classifier ? !json_is_array(first) : json_is_integer(first);
}

static void write_predictions(struct gsv_exchange *exchange, put_prediction put)
{
    const bool is_classifier = exchange->served->n_labels > 0;
    struct gsv_buffer *to = &exchange->reply;
    size_t row = 0;

    gsv_buffer_text(to, "{\"predictions\":[");
    for (size_t i = 0; i < n_instances(exchange); i++) {
        const json_t *value;
        const bool is_tei = form_of(instance_at(exchange, i), &value) == VERTEX_INPUTS;
        const bool is_one = !is_tei || is_one_input(value, is_classifier);
        const bool as_list = is_tei && !(is_one && is_classifier); /* TEI's /embed replies a list */
        const size_t end = row + (is_one ? 1 : json_array_size(value));

        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_buffer_text(to, as_list ? "[" : "");
        for (const size_t first = row; row < end; row++) {
            gsv_buffer_text(to, row > first ? "," : "");
            if (!put(exchange, row))
                return;
        }
        gsv_buffer_text(to, as_list ? "]" : "");
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static bool put_vector(struct gsv_exchange *exchange, size_t i)
{
    gsv_put_floats(&exchange->reply, gsv_call_row(exchange, i), exchange->work.columns);
    return true;
}

/* Google's form, of requests in which each instance has `content`. */
static bool put_embedding(struct gsv_exchange *exchange, size_t i)
{
    const gpuserve_item *item = &exchange->work.items[i];
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"embeddings\":{\"values\":");
    put_vector(exchange, i);
    gsv_buffer_format(to, ",\"statistics\":{\"truncated\":%s,\"token_count\":%u}}}",
                      item->truncated ? "true" : "false", item->n_tokens);
    return true;
}

static bool put_labels(struct gsv_exchange *exchange, size_t i)
{
    gsv_put_labels(exchange, gsv_tei_predict_row(exchange, i), 0);
    return exchange->status == 0;
}

static void write_vectors(struct gsv_exchange *exchange)
{
    write_predictions(exchange, put_vector);
}

static void write_embeddings(struct gsv_exchange *exchange)
{
    write_predictions(exchange, put_embedding);
}

static void write_sparse(struct gsv_exchange *exchange)
{
    write_predictions(exchange, gsv_tei_put_sparse);
}

static void write_labels(struct gsv_exchange *exchange)
{
    write_predictions(exchange, put_labels);
}

/* ------------------------------------------------------------------------------------- options */

static bool refuse_memory(struct gsv_exchange *exchange)
{
    return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the instances");
}

/* Options that an instance may have. */
static const char *const instance_options[] = { "truncate",    "truncation_direction", "normalize",
                                                "prompt_name", "dimensions",           "raw_scores",
                                                "task_type" };
enum { N_OPTIONS = sizeof(instance_options) / sizeof(instance_options[0]) };

static const json_t *option_of(const json_t *object, const char *name, const json_t *otherwise)
{
    const json_t *value = json_object_get(object, name);

    return value && !json_is_null(value) ? value : otherwise;
}

/* Sets the options of the instances in `parameters`; they override what is there. */
static bool merge_options(struct gsv_exchange *exchange, json_t *parameters)
{
    for (size_t j = 0; j < N_OPTIONS; j++) {
        const char *name = instance_options[j];
        const json_t *given = option_of(parameters, name, NULL);
        const json_t *first = option_of(instance_at(exchange, 0), name, given);

        for (size_t i = 1; i < n_instances(exchange); i++) {
            const json_t *value = option_of(instance_at(exchange, i), name, given);

            if (value != first && !json_equal(value, first))
                return gsv_refuse(exchange, GSV_P_UNSUPPORTED, name,
                                  "`instances`: instance %zu has another `%s` than instance 0: "
                                  "send it in a request of its own",
                                  i, name);
        }
        if (first != given && json_object_set(parameters, name, (json_t *)first) != 0)
            return refuse_memory(exchange);
    }
    return true;
}

/* Google's names, as those of text-embeddings-inference. */
static bool translate(struct gsv_exchange *exchange, json_t *parameters)
{
    static const char *const names[][2] = { { "autoTruncate", "truncate" },
                                            { "outputDimensionality", "dimensions" } };

    for (size_t i = 0; i < 2; i++) {
        const json_t *value = option_of(parameters, names[i][0], NULL);

        if (value && !option_of(parameters, names[i][1], NULL) &&
            json_object_set(parameters, names[i][1], (json_t *)value) != 0)
            return refuse_memory(exchange);
    }
    return true;
}

/* The object `parameters` of the request, with the options of its instances unless they have a
 * query. NULL after gsv_refuse. */
static json_t *read_parameters(struct gsv_exchange *exchange, bool have_query)
{
    static const char *const known[] = {
        "truncate",    "truncation_direction", "normalize",
        "prompt_name", "dimensions",           "raw_scores",
        "task_type",   "autoTruncate",         "outputDimensionality",
        NULL
    };
    static const char *const known_of_queries[] = { "truncate",   "truncation_direction",
                                                    "raw_scores", "return_text",
                                                    "top_n",      NULL };
    json_t *parameters = json_object_get(exchange->json, "parameters");

    if (!gsv_option_known(exchange, parameters, "parameters",
                          have_query ? known_of_queries : known))
        return NULL;
    if (!json_is_object(parameters)) {
        parameters = json_object();
        if (json_object_set_new(exchange->json, "parameters", parameters) != 0) {
            refuse_memory(exchange);
            return NULL;
        }
    }
    if (!have_query && (!translate(exchange, parameters) || !merge_options(exchange, parameters)))
        return NULL;
    return parameters;
}

/* Google's `task_type`: the model's prompt for queries or documents, or the one of that name. */
static bool read_task_type(struct gsv_exchange *exchange, const json_t *parameters,
                           gpuserve_job *job)
{
    static const char *const types[] = { "RETRIEVAL_QUERY",
                                         "QUESTION_ANSWERING",
                                         "FACT_VERIFICATION",
                                         "CODE_RETRIEVAL_QUERY",
                                         "RETRIEVAL_DOCUMENT",
                                         "CLASSIFICATION",
                                         "CLUSTERING",
                                         "SEMANTIC_SIMILARITY",
                                         "TASK_TYPE_UNSPECIFIED",
                                         NULL };
    static const char *const classify[] = { "classification", NULL };
    static const char *const cluster[] = { "clustering", NULL };
    static const char *const compare[] = { "text-matching", "similarity", "STS", NULL };
    static const char *const none[] = { NULL };
    const char *const *const prompts[] = { gsv_document_prompts, classify, cluster, compare, none };
    uint32_t type = UINT32_MAX;

    if (!gsv_member_choice(exchange, parameters, "task_type", types, &type))
        return false;
    if (type != UINT32_MAX && !job->prompt_name)
        job->prompt_name =
            gsv_prompt_named(exchange, type < 4 ? gsv_query_prompts : prompts[type - 4]);
    return true;
}

/* ------------------------------------------------------------------------------------- requests */

/* Appends the inputs of an instance to the list of all. A classifier's become lists of one or two
 * texts. */
static bool append_inputs(json_t *all, const json_t *value, bool is_classifier)
{
    json_t *texts;

    if (!is_one_input(value, is_classifier))
        return json_array_extend(all, (json_t *)value) == 0;
    if (!is_classifier || json_is_array(value))
        return json_array_append(all, (json_t *)value) == 0;
    texts = json_array();
    return json_array_append(texts, (json_t *)value) == 0 && json_array_append_new(all, texts) == 0;
}

/* Sets the inputs of all instances as the body's field `inputs`, for the readers of TEI's paths. */
static const json_t *gather_inputs(struct gsv_exchange *exchange)
{
    json_t *all = json_array();

    if (json_object_set_new(exchange->json, "inputs", all) != 0) {
        refuse_memory(exchange);
        return NULL;
    }
    for (size_t i = 0; i < n_instances(exchange); i++) {
        const json_t *value;

        form_of(instance_at(exchange, i), &value);
        if (json_is_array(value) && json_array_size(value) == 0) {
            gsv_refuse(exchange, GSV_P_EMPTY, "inputs",
                       "`instances`: `inputs` of instance %zu cannot be empty", i);
            return NULL;
        }
        if (!append_inputs(all, value, exchange->served->n_labels > 0)) {
            refuse_memory(exchange);
            return NULL;
        }
    }
    return all;
}

static void classify(struct gsv_exchange *exchange, const json_t *parameters)
{
    const json_t *all = gather_inputs(exchange);

    if (all)
        gsv_tei_predict_start(exchange, all, parameters, write_labels);
}

static void embed(struct gsv_exchange *exchange, const json_t *parameters, bool is_google)
{
    const bool is_sparse =
        !exchange->served->can_embed && gsv_served_has(exchange->served, GPUSERVE_TASK_SPARSE);
    const bool truncate = is_google || exchange->server->options.auto_truncate;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    const json_t *all;

    if ((!is_sparse && !gsv_require_embedder(exchange)) ||
        !gsv_option_truncation_or(exchange, parameters, truncate, &job) ||
        !gsv_option_prompt(exchange, parameters, &job) ||
        !read_task_type(exchange, parameters, &job) ||
        (!is_sparse && !gsv_option_vector(exchange, parameters, &job)))
        return;
    if (is_sparse)
        job.task = GPUSERVE_TASK_SPARSE;
    all = gather_inputs(exchange);
    if (!all || !gsv_inputs_read(exchange, all, "instances", 0, &job, &inputs))
        return;
    if (is_sparse)
        gsv_call_start(exchange, &job, &inputs, write_sparse);
    else
        gsv_call_start(exchange, &job, &inputs, is_google ? write_embeddings : write_vectors);
}

/* Ranks the texts of one instance after the other; runs after each of them. */
static void rank_next(struct gsv_exchange *exchange)
{
    size_t *next = exchange->state;

    if (*next > 0)
        gsv_tei_put_ranking(exchange);
    if (*next == n_instances(exchange)) {
        gsv_buffer_text(&exchange->reply, "]}");
        gsv_reply_json(exchange);
        return;
    }
    gsv_buffer_text(&exchange->reply, *next > 0 ? "," : "{\"predictions\":[");
    gsv_tei_rerank_start(exchange, instance_at(exchange, (*next)++), rank_next);
}

/* Each instance gets the parameters that it has not. */
static void rank(struct gsv_exchange *exchange, json_t *parameters)
{
    for (size_t i = 0; i < n_instances(exchange); i++) {
        if (json_object_update_missing((json_t *)instance_at(exchange, i), parameters) != 0) {
            refuse_memory(exchange);
            return;
        }
    }
    exchange->state = gsv_exchange_alloc(exchange, 1, sizeof(size_t));
    if (exchange->state)
        rank_next(exchange);
}

/* Checks the forms of all instances and counts each. */
static bool read_forms(struct gsv_exchange *exchange, size_t n_of[VERTEX_INVALID])
{
    static const struct gsv_unoffered unoffered[] = {
        { "title", "the server embeds `content` alone" }, { 0 }
    };

    for (size_t i = 0; i < n_instances(exchange); i++) {
        const json_t *instance = instance_at(exchange, i), *value;
        const enum vertex_form form = form_of(instance, &value);

        if (form == VERTEX_INVALID)
            return gsv_refuse(exchange, GSV_P_INVALID, "instances",
                              "`instances`: instance %zu is neither a string nor an object with "
                              "one of `inputs` (a string or a list), `query`, `content` and "
                              "`text` (strings)",
                              i);
        if (form == VERTEX_CONTENT && !gsv_option_unoffered(exchange, instance, unoffered))
            return false;
        n_of[form]++;
    }
    return true;
}

void gsv_vertex(struct gsv_exchange *exchange)
{
    const json_t *instances = json_object_get(exchange->json, "instances");
    const size_t n = json_array_size(instances);
    size_t n_of[VERTEX_INVALID] = { 0 };
    json_t *parameters;

    if (!json_is_array(instances)) {
        gsv_refuse(exchange, GSV_P_INVALID, "instances", "`instances` is not a list");
        return;
    }
    if (!gsv_inputs_count(exchange, n, "instances") || !gsv_request_body_model(exchange) ||
        !read_forms(exchange, n_of))
        return;
    if (n_of[VERTEX_QUERY] > 0 && n_of[VERTEX_QUERY] < n) {
        gsv_refuse(exchange, GSV_P_UNSUPPORTED, "instances",
                   "`instances`: %zu of %zu have a `query`: send them in a request of their own",
                   n_of[VERTEX_QUERY], n);
        return;
    }
    parameters = read_parameters(exchange, n_of[VERTEX_QUERY] > 0);
    if (!parameters)
        return;
    if (n_of[VERTEX_QUERY] > 0)
        rank(exchange, parameters);
    else if (exchange->served->n_labels > 0)
        classify(exchange, parameters);
    else
        embed(exchange, parameters, n_of[VERTEX_CONTENT] == n);
}

const struct gsv_route gsv_vertex_routes[] = {
    { "POST", "/vertex", GSV_TEI, GSV_JSON_BODY, gsv_vertex },
    { 0 },
};
