/*
 * dialect_tei.c - text-embeddings-inference: /embed, /embed_all, /embed_sparse, /predict.
 *
 * These paths name no model: the server's first one answers.
 */
#include "lib/http/inputs.h"
#include "lib/http/models.h"
#include "lib/http/options.h"
#include "lib/http/request.h"
#include "lib/http/route.h"
#include "lib/http/scores.h"
#include "lib/http/tei.h"
#include "lib/http/work.h"

static void write_vectors(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_put_rows(to, exchange->work.job.output, exchange->work.job.n_items, exchange->work.columns);
    gsv_reply_json(exchange);
}

static void embed(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (gsv_request_model(exchange, NULL) && gsv_require_embedder(exchange) &&
        gsv_option_truncation(exchange, body, &job) && gsv_option_prompt(exchange, body, &job) &&
        gsv_option_vector(exchange, body, &job) &&
        gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &inputs))
        gsv_work_start(exchange, &job, &inputs, write_vectors);
}

/* ----------------------------------------------------------------------------------- per token */

static void write_token_vectors(struct gsv_exchange *exchange)
{
    const struct gsv_work *work = &exchange->work;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < work->job.n_items; i++) {
        const size_t first = work->job.token_offsets[i], end = work->job.token_offsets[i + 1];

        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_rows(to, work->job.output + first * work->columns, end - first, work->columns);
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

/* The number of rows is known before only when the ids are. */
static void embed_all(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!gsv_request_model(exchange, NULL) || !gsv_option_truncation(exchange, body, &job) ||
        !gsv_option_prompt(exchange, body, &job) ||
        !gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &inputs) ||
        !gsv_inputs_prompt(exchange, &inputs, job.prompt_name) ||
        !gsv_inputs_tokenize(exchange, &inputs, job.truncation))
        return;
    job.prompt_name = NULL;
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    gsv_work_start(exchange, &job, &inputs, write_token_vectors);
}

/* -------------------------------------------------------------------------------------- sparse */

/* [{"index":1037,"value":0.5},...] of one row */
static void put_sparse(struct gsv_exchange *exchange, const float *row, uint32_t *indices,
                       float *values)
{
    struct gsv_buffer *to = &exchange->reply;
    const size_t n = gpuserve_sparse_compact(row, exchange->work.columns, indices, values,
                                             exchange->work.columns);

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_format(to, "%s{\"index\":%u,\"value\":", i > 0 ? "," : "", indices[i]);
        gsv_put_float(to, values[i]);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
}

static void write_sparse(struct gsv_exchange *exchange)
{
    uint32_t *indices = gsv_keep(exchange, exchange->work.columns, sizeof(*indices));
    float *values = gsv_keep(exchange, exchange->work.columns, sizeof(*values));
    struct gsv_buffer *to = &exchange->reply;

    if (!indices || !values)
        return;
    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        put_sparse(exchange, gsv_work_row(exchange, i), indices, values);
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

static void embed_sparse(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!gsv_request_model(exchange, NULL))
        return;
    if (gpuserve_model_sparse_dim(exchange->served->model) == 0) {
        gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                   "model \"%s\" makes no sparse embeddings: it is no masked language model",
                   exchange->served->name);
        return;
    }
    job.task = GPUSERVE_TASK_SPARSE;
    if (gsv_option_truncation(exchange, body, &job) && gsv_option_prompt(exchange, body, &job) &&
        gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &inputs))
        gsv_work_start(exchange, &job, &inputs, write_sparse);
}

/* ------------------------------------------------------------------------------------- predict */

struct predict {
    bool nested;
};

static void write_predictions(struct gsv_exchange *exchange)
{
    const struct predict *predict = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, predict->nested ? "[" : "");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_labels(exchange, gsv_work_row(exchange, i), 0);
    }
    gsv_buffer_text(to, predict->nested ? "]" : "");
    gsv_reply_json(exchange);
}

/* One input of /predict: a text, or a list of one text or two. */
static bool set_predict_input(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i,
                              const json_t *value)
{
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    const json_t *second = json_array_get(value, 1); /* NULL for a text */

    if (!json_is_string(first) || (second && !json_is_string(second)) ||
        (json_is_array(value) && json_array_size(value) > 2))
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "`inputs`: input %zu is neither a text nor a list of one text or two", i);
    if (!second != !inputs->pairs)
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "`inputs` mixes texts and pairs of texts: input %zu", i);
    if (json_string_length(first) == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, "inputs",
                          "`inputs` cannot be empty: input %zu is an empty text", i);
    gsv_inputs_set(inputs, i, json_string_value(first), json_string_length(first));
    if (second)
        gsv_inputs_set_pair(inputs, i, json_string_value(second), json_string_length(second));
    return true;
}

static bool read_predict_inputs(struct gsv_exchange *exchange, const json_t *value,
                                struct predict *predict, struct gsv_inputs *inputs)
{
    const json_t *first = json_array_get(value, 0);

    predict->nested = json_is_array(first);
    if (!predict->nested)
        return gsv_inputs_make(exchange, 1, json_array_size(value) == 2, inputs) &&
               set_predict_input(exchange, inputs, 0, value);
    if (!gsv_inputs_count(exchange, json_array_size(value), "inputs") ||
        !gsv_inputs_make(exchange, json_array_size(value), json_array_size(first) == 2, inputs))
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        if (!set_predict_input(exchange, inputs, i, json_array_get(value, i)))
            return false;
    }
    return true;
}

static void predict(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    struct predict *predict = gsv_keep(exchange, 1, sizeof(*predict));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    bool raw = false;

    exchange->state = predict;
    if (!predict || !gsv_request_model(exchange, NULL) || !gsv_require_classifier(exchange) ||
        !gsv_option_truncation(exchange, body, &job) ||
        !gsv_member_flag(exchange, body, "raw_scores", &raw) ||
        !read_predict_inputs(exchange, json_object_get(body, "inputs"), predict, &inputs))
        return;
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.score = raw ? GPUSERVE_SCORE_RAW : GPUSERVE_SCORE_DEFAULT;
    gsv_work_start(exchange, &job, &inputs, write_predictions);
}

const struct gsv_route gsv_tei_routes[] = {
    { "POST", "/embed", GSV_TEI, GSV_JSON_BODY, embed },
    { "POST", "/embed_all", GSV_TEI, GSV_JSON_BODY, embed_all },
    { "POST", "/embed_sparse", GSV_TEI, GSV_JSON_BODY, embed_sparse },
    { "POST", "/predict", GSV_TEI, GSV_JSON_BODY, predict },
    { "GET", "/info", GSV_TEI, GSV_WITHOUT_BODY, gsv_tei_info },
    { 0 },
};
