/*
 * tfserving.c - TensorFlow Serving's REST API and KServe v1: :predict and :classify.
 *
 * An instance is a text, or an object with one field that is a text. :predict returns the vectors
 * of an embedder or the scores of a classifier. The only version is 1 and the only signature
 * "serving_default". Other versions and signatures, and version labels (/labels/NAME), are rejected
 * with TensorFlow Serving's statuses and messages.
 */
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

static void write_predictions(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"predictions\":");
    gsv_put_rows(to, exchange->work.job.output, exchange->work.job.n_items, exchange->work.columns);
    gsv_buffer_text(to, "}");
    gsv_reply_json(exchange);
}

/* Writes {"result":[[["label",0.9],...]]}. */
static void write_result(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;
    const struct gsv_served *served = exchange->served;

    gsv_buffer_text(to, "{\"result\":[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        const struct gsv_ranked *ranked =
            gsv_rank_labels(exchange, gsv_call_row(exchange, i), served->n_labels);

        if (!ranked)
            return;
        gsv_buffer_text(to, i > 0 ? ",[" : "[");
        for (size_t j = 0; j < served->n_labels; j++) {
            gsv_buffer_text(to, j > 0 ? ",[" : "[");
            gsv_put_text(to, gsv_served_label(served, ranked[j].index));
            gsv_buffer_text(to, ",");
            gsv_put_float(to, ranked[j].score);
            gsv_buffer_text(to, "]");
        }
        gsv_buffer_text(to, "]");
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static const json_t *instance_text(const json_t *instance)
{
    return json_is_object(instance) && json_object_size(instance) == 1
               ? json_object_iter_value(json_object_iter((json_t *)instance))
               : instance;
}

static bool read_instances(struct gsv_exchange *exchange, const char *name,
                           struct gsv_inputs *inputs)
{
    const json_t *list = json_object_get(exchange->json, name);

    if (!json_is_array(list))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not a list", name);
    if (!gsv_inputs_count(exchange, json_array_size(list), name) ||
        !gsv_inputs_make(exchange, json_array_size(list), false, inputs))
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        const json_t *text = instance_text(json_array_get(list, i));

        if (!json_is_string(text))
            return gsv_refuse(exchange, GSV_P_INVALID, name,
                              "`%s`: item %zu is neither a string nor an object with one string",
                              name, i);
        gsv_inputs_set(inputs, i, json_string_value(text), json_string_length(text));
    }
    return true;
}

static bool take_model(struct gsv_exchange *exchange)
{
    static const struct gsv_unoffered unoffered[] = {
        { "inputs", "only the row format is supported: send `instances`" },
        { "context", "repeat its features in each of the `examples`" },
        { 0 },
    };
    static const char served[] = "serving_default";
    const char *signature = NULL;

    if (exchange->version && strcmp(exchange->version, "1") != 0)
        return gsv_refuse(exchange, GSV_P_NO_MODEL, "version",
                          "Servable not found for request: Specific(%.100s, %.20s): the only "
                          "version is 1",
                          exchange->model_name, exchange->version);
    if (!gsv_option_unoffered(exchange, exchange->json, unoffered) ||
        !gsv_member_text(exchange, exchange->json, "signature_name", &signature))
        return false;
    if (signature && signature[0] && strcmp(signature, served) != 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "signature_name",
                          "Serving signature name: \"%.100s\" not found in signature def: the "
                          "only `signature_name` is \"%s\"",
                          signature, served);
    return gsv_request_model(exchange, exchange->model_name);
}

static void predict(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!take_model(exchange) || !read_instances(exchange, "instances", &inputs))
        return;
    job.task = exchange->served->n_labels > 0 ? GPUSERVE_TASK_CLASSIFY : GPUSERVE_TASK_EMBED;
    job.truncation = gsv_server_truncation(exchange);
    gsv_call_start(exchange, &job, &inputs, write_predictions);
}

static void classify(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!take_model(exchange) || !gsv_require_classifier(exchange) ||
        !read_instances(exchange, "examples", &inputs))
        return;
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.truncation = gsv_server_truncation(exchange);
    gsv_call_start(exchange, &job, &inputs, write_result);
}

/* A version label is a name for a version in TensorFlow Serving's configuration. No version has one
 * here; TensorFlow Serving refuses such a label with 400. */
static void refuse_label(struct gsv_exchange *exchange)
{
    gsv_refuse(
        exchange, GSV_P_INVALID, "version",
        "Unrecognized servable version label: %.100s: the only version is 1, without a label",
        exchange->version);
}

const struct gsv_route gsv_tfserving_routes[] = {
    { "POST", "/v1/models/{model}/labels/{version}:predict", GSV_KSERVE, GSV_JSON_BODY,
      refuse_label },
    { "POST", "/v1/models/{model}/labels/{version}:classify", GSV_KSERVE, GSV_JSON_BODY,
      refuse_label },
    { "POST", "/v1/models/{model}/versions/{version}:predict", GSV_KSERVE, GSV_JSON_BODY, predict },
    { "POST", "/v1/models/{model}/versions/{version}:classify", GSV_KSERVE, GSV_JSON_BODY,
      classify },
    { "POST", "/v1/models/{model}:predict", GSV_KSERVE, GSV_JSON_BODY, predict },
    { "POST", "/v1/models/{model}:classify", GSV_KSERVE, GSV_JSON_BODY, classify },
    { 0 },
};
