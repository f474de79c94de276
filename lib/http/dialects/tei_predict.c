/*
 * tei_predict.c - TEI's classification of texts and pairs, the inputs of /predict.
 *
 *   "a"                    one text
 *   ["a"], ["a","b"]       one text, one pair
 *   [["a"],["a","b"]]      any number of both; the reply is nested
 *
 * A job of the library holds texts or pairs. A batch of both runs as two jobs in sequence.
 */
#include "lib/http/dialects/tei.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

/* The inputs of one job. */
struct tei_predict_part {
    struct gsv_inputs inputs;
    size_t *indices; /* [inputs.n] index in the request */
};

struct predict {
    struct tei_predict_part texts, pairs;
    const struct tei_predict_part *running;
    const float **rows; /* [n] scores in request order */
    size_t n;
    bool nested, raw;
    uint32_t truncation;
    gsv_handler finish;
};

/* ---------------------------------------------------------------------------------------- reply */

static void write_predictions(struct gsv_exchange *exchange)
{
    const struct predict *predict = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, predict->nested ? "[" : "");
    for (size_t i = 0; i < predict->n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_labels(exchange, predict->rows[i], 0);
    }
    gsv_buffer_text(to, predict->nested ? "]" : "");
    gsv_reply_json(exchange);
}

static void start(struct gsv_exchange *exchange, const struct tei_predict_part *part);

/* Collects the rows of a job; they live as long as the exchange. */
static void take_rows(struct gsv_exchange *exchange)
{
    struct predict *predict = exchange->state;
    const struct tei_predict_part *done = predict->running;

    for (size_t i = 0; i < done->inputs.n; i++)
        predict->rows[done->indices[i]] = gsv_call_row(exchange, i);
    if (done == &predict->texts && predict->pairs.inputs.n > 0)
        start(exchange, &predict->pairs);
    else
        predict->finish(exchange);
}

static void start(struct gsv_exchange *exchange, const struct tei_predict_part *part)
{
    struct predict *predict = exchange->state;
    gpuserve_job job = GPUSERVE_JOB_INIT;

    predict->running = part;
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.score = predict->raw ? GPUSERVE_SCORE_RAW : GPUSERVE_SCORE_DEFAULT;
    job.truncation = predict->truncation;
    gsv_call_start(exchange, &job, &part->inputs, take_rows);
}

/* -------------------------------------------------------------------------------------- request */

static bool is_pair(const json_t *value)
{
    return json_array_size(value) == 2;
}

/* One input: a text, or a list of one or two texts. */
static bool take_input(struct gsv_exchange *exchange, struct predict *predict, size_t i,
                       const json_t *value)
{
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    const json_t *second = json_array_get(value, 1); /* NULL for a text */
    struct tei_predict_part *part = second ? &predict->pairs : &predict->texts;
    const size_t at = part->inputs.n;

    if (!json_is_string(first) || (second && !json_is_string(second)) ||
        (json_is_array(value) && json_array_size(value) > 2))
        return gsv_refuse(
            exchange, GSV_P_INVALID, "inputs",
            "`inputs`: input %zu is neither a string nor a list of one or two strings", i);
    if (json_string_length(first) == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, "inputs",
                          "`inputs` cannot be empty: input %zu is an empty text", i);
    gsv_inputs_set(&part->inputs, at, json_string_value(first), json_string_length(first));
    if (second)
        gsv_inputs_set_pair(&part->inputs, at, json_string_value(second),
                            json_string_length(second));
    part->indices[at] = i;
    part->inputs.n = at + 1;
    return true;
}

/* Allocates for n inputs; the part starts empty. */
static bool make_part(struct gsv_exchange *exchange, struct tei_predict_part *part, size_t n,
                      bool pairs)
{
    part->indices = gsv_exchange_alloc(exchange, n, sizeof(*part->indices));
    if (!part->indices || !gsv_inputs_make(exchange, n, pairs, &part->inputs))
        return false;
    part->inputs.n = 0;
    return true;
}

static bool read_inputs(struct gsv_exchange *exchange, const json_t *value, struct predict *predict)
{
    size_t n_pairs = 0;

    predict->nested = json_is_array(json_array_get(value, 0));
    predict->n = predict->nested ? json_array_size(value) : 1;
    if (!gsv_inputs_count(exchange, predict->n, "inputs"))
        return false;
    for (size_t i = 0; predict->nested && i < predict->n; i++)
        n_pairs += is_pair(json_array_get(value, i));
    if (!predict->nested)
        n_pairs = is_pair(value);
    predict->rows = gsv_exchange_alloc(exchange, predict->n, sizeof(*predict->rows));
    if (!predict->rows || !make_part(exchange, &predict->texts, predict->n - n_pairs, false) ||
        !make_part(exchange, &predict->pairs, n_pairs, true))
        return false;
    for (size_t i = 0; i < predict->n; i++) {
        if (!take_input(exchange, predict, i, predict->nested ? json_array_get(value, i) : value))
            return false;
    }
    return true;
}

const float *gsv_tei_predict_row(const struct gsv_exchange *exchange, size_t i)
{
    return ((const struct predict *)exchange->state)->rows[i];
}

void gsv_tei_predict_start(struct gsv_exchange *exchange, const json_t *inputs,
                           const json_t *options, gsv_handler finish)
{
    struct predict *predict = gsv_exchange_alloc(exchange, 1, sizeof(*predict));
    gpuserve_job job = GPUSERVE_JOB_INIT;

    exchange->state = predict;
    if (!predict || !gsv_require_classifier(exchange) ||
        !gsv_option_truncation(exchange, options, &job) ||
        !gsv_member_flag(exchange, options, "raw_scores", &predict->raw) ||
        !read_inputs(exchange, inputs, predict))
        return;
    predict->finish = finish;
    predict->truncation = job.truncation;
    start(exchange, predict->texts.inputs.n > 0 ? &predict->texts : &predict->pairs);
}

void gsv_tei_predict(struct gsv_exchange *exchange)
{
    if (gsv_request_body_model(exchange))
        gsv_tei_predict_start(exchange, json_object_get(exchange->json, "inputs"), exchange->json,
                              write_predictions);
}
