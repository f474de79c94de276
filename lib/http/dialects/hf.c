/*
 * hf.c - POST / of Hugging Face: InferenceClient sends every task there. The request's shape and
 * the model select the task:
 *
 *   inputs {source_sentence, sentences}       sentence similarity
 *   parameters.candidate_labels               zero-shot classification
 *   other inputs, to a token classifier       token classification, as [{entity_group,...}]
 *   other inputs, to a GLiNER model           the same, of the labels in parameters.labels
 *   other inputs, to a classifier             text classification, as [[{label,score}]]
 *   other inputs, to an embedder              feature extraction, as [[f]]
 *
 * Unknown fields of `parameters` are rejected by name. `options` (`use_cache`, `wait_for_model`)
 * has no effect: it controls how Hugging Face's own servers load a model.
 */
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

static void write_vectors(struct gsv_exchange *exchange)
{
    gsv_put_rows(&exchange->reply, exchange->work.job.output, exchange->work.job.n_items,
                 exchange->work.columns);
    gsv_reply_json(exchange);
}

/* Options are fields of the body, as InferenceClient sends them, or of `parameters`. */
static void extract(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "normalize",   "truncate",   "truncation_direction",
                                         "prompt_name", "dimensions", "encoding_format",
                                         NULL };
    static const char *const formats[] = { "float", NULL };
    json_t *body = exchange->json;
    json_t *parameters = json_object_get(body, "parameters");
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    uint32_t format;

    if (!gsv_option_known(exchange, parameters, "parameters", known))
        return;
    if (json_object_update(body, parameters) != 0 && json_object_size(parameters) > 0) {
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the parameters");
        return;
    }
    if (gsv_member_choice(exchange, body, "encoding_format", formats, &format) &&
        gsv_option_truncation(exchange, body, &job) && gsv_option_prompt(exchange, body, &job) &&
        gsv_option_vector(exchange, body, &job) &&
        gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &job, &inputs))
        gsv_call_start(exchange, &job, &inputs, write_vectors);
}

static void write_labels(struct gsv_exchange *exchange)
{
    const size_t *top_k = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_labels(exchange, gsv_call_row(exchange, i), *top_k);
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

static void classify(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "function_to_apply", "top_k", "truncate",
                                         "truncation_direction", NULL };
    static const char *const functions[] = { "sigmoid", "softmax", "none", NULL };
    static const uint32_t scores[] = { GPUSERVE_SCORE_SIGMOID, GPUSERVE_SCORE_SOFTMAX,
                                       GPUSERVE_SCORE_RAW, GPUSERVE_SCORE_DEFAULT };
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    size_t *top_k = gsv_exchange_alloc(exchange, 1, sizeof(*top_k));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    uint32_t function = 3;
    int64_t max_labels = 0;

    exchange->state = top_k;
    if (!top_k || !gsv_option_known(exchange, parameters, "parameters", known) ||
        !gsv_option_truncation(exchange, parameters, &job) ||
        !gsv_member_choice(exchange, parameters, "function_to_apply", functions, &function) ||
        !gsv_member_count(exchange, parameters, "top_k", 1, INT32_MAX, &max_labels) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "inputs"), "inputs",
                         GSV_INPUTS_NO_IDS, NULL, &inputs))
        return;
    *top_k = (size_t)max_labels;
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.score = scores[function];
    gsv_call_start(exchange, &job, &inputs, write_labels);
}

static void any_task(struct gsv_exchange *exchange)
{
    const json_t *parameters = json_object_get(exchange->json, "parameters");

    if (exchange->model_name ? !gsv_request_model(exchange, exchange->model_name)
                             : !gsv_request_body_model(exchange))
        return;
    if (json_object_get(json_object_get(exchange->json, "inputs"), "source_sentence"))
        gsv_similarity(exchange);
    else if (json_object_get(parameters, "candidate_labels"))
        gsv_zero_shot(exchange);
    else if (exchange->served->finds_entities)
        gsv_label_entities(exchange);
    else if (exchange->served->n_token_labels > 0)
        gsv_entities(exchange);
    else if (exchange->served->n_labels > 0)
        classify(exchange);
    else
        extract(exchange);
}

static void similarity(struct gsv_exchange *exchange)
{
    if (gsv_request_body_model(exchange))
        gsv_similarity(exchange);
}

const struct gsv_route gsv_hf_routes[] = {
    { "POST", "/", GSV_TEI, GSV_JSON_BODY, any_task },
    { "POST", "/models/{model}", GSV_TEI, GSV_JSON_BODY, any_task },
    { "POST", "/similarity", GSV_TEI, GSV_JSON_BODY, similarity, "text-embeddings-inference" },
    { 0 },
};
