/*
 * tei.c - text-embeddings-inference: /embed, /embed_all, /embed_sparse, /invocations, and the route
 * table.
 *
 * TEI's paths name no model. Here a body may have a field `model`; without it the default model
 * answers.
 */
#include "lib/http/dialects/tei.h"
#include "lib/http/inference/embedding.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

static void write_vectors(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_put_rows(to, exchange->work.job.output, exchange->work.job.n_items, exchange->work.columns);
    gsv_reply_json(exchange);
}

/* Of each text an object with its outputs. */
static void write_output_sets(struct gsv_exchange *exchange)
{
    const struct gsv_output_set *set = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_format(to, "%s{\"index\":%zu", i > 0 ? "," : "", i);
        if (set->has_dense) {
            gsv_buffer_text(to, ",\"embedding\":");
            gsv_put_floats(to, gsv_call_row(exchange, i), exchange->work.columns);
        }
        gsv_put_output_set(exchange, set, i, false);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

/* A line of a streamed reply: a vector. */
static void put_streamed(struct gsv_exchange *exchange, size_t i, size_t index)
{
    (void)index;
    gsv_put_floats(&exchange->reply, gsv_call_row(exchange, i), exchange->work.columns);
}

struct tei_embed {
    struct gsv_output_set set; /* first: exchange->state points to it */
    struct gsv_row_stream rows;
};

static bool check_stream(struct gsv_exchange *exchange, const struct tei_embed *embed)
{
    return !exchange->stream || !embed->set.is_given ||
           gsv_row_stream_refuse(exchange, &embed->rows, "outputs");
}

static void start(struct gsv_exchange *exchange, struct tei_embed *embed, const gpuserve_job *job,
                  const struct gsv_inputs *inputs)
{
    if (!exchange->stream) {
        gsv_call_start(exchange, job, inputs,
                       embed->set.is_given ? write_output_sets : write_vectors);
        return;
    }
    embed->rows.put_row = put_streamed;
    gsv_row_stream_start(exchange, &embed->rows, NULL, job, inputs);
}

static void embed(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    struct tei_embed *embed = gsv_exchange_alloc(exchange, 1, sizeof(*embed));
    struct gsv_output_set *set = embed ? &embed->set : NULL;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    exchange->state = set;
    if (embed)
        gsv_row_stream_read(exchange, &embed->rows);
    if (set && gsv_request_body_model(exchange) && gsv_output_set_read(exchange, set, &job) &&
        gsv_option_truncation(exchange, body, &job) && gsv_option_prompt(exchange, body, &job) &&
        gsv_option_vector(exchange, body, &job) && gsv_output_set_form(exchange, set, &job) &&
        check_stream(exchange, embed) &&
        gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &job, &inputs) &&
        gsv_output_set_count(exchange, set, &job, &inputs))
        start(exchange, embed, &job, &inputs);
}

/* -------------------------------------------------------------------------------- token vectors */

static void write_token_vectors(struct gsv_exchange *exchange)
{
    const struct gsv_call *work = &exchange->work;
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

/* Tokenizes before the job, because the number of output rows must be known. */
static void embed_all(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    uint32_t role;

    if (!gsv_request_body_model(exchange) || !gsv_option_truncation(exchange, body, &job) ||
        !gsv_option_prompt(exchange, body, &job) ||
        !gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &job, &inputs) ||
        !gsv_inputs_prompt(exchange, &inputs, job.prompt_name))
        return;
    role = gsv_late_role(&job, &inputs);
    if (!gsv_inputs_tokenize(exchange, &inputs,
                             job.prompt_name ? gsv_late_limit(exchange, role) : 0, job.truncation))
        return;
    job.role = role;
    job.prompt_name = NULL;
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    gsv_call_start(exchange, &job, &inputs, write_token_vectors);
}

/* -------------------------------------------------------------------------------------- sparse */

struct tei_sparse {
    uint32_t *indices; /* [columns] */
    float *values;
};

/* The arrays of the exchange for the entries of one row, in exchange->state; NULL after gsv_refuse.
 */
static struct tei_sparse *sparse_entries(struct gsv_exchange *exchange)
{
    const size_t n = exchange->work.columns;
    struct tei_sparse *entries = exchange->state;

    if (entries)
        return entries;
    entries = gsv_exchange_alloc(exchange, 1, sizeof(*entries));
    if (!entries)
        return NULL;
    entries->indices = gsv_exchange_alloc(exchange, n, sizeof(*entries->indices));
    entries->values = gsv_exchange_alloc(exchange, n, sizeof(*entries->values));
    if (!entries->indices || !entries->values)
        return NULL;
    exchange->state = entries;
    return entries;
}

bool gsv_tei_put_sparse(struct gsv_exchange *exchange, size_t i)
{
    const struct tei_sparse *entries = sparse_entries(exchange);
    struct gsv_buffer *to = &exchange->reply;
    size_t n;

    if (!entries)
        return false;
    n = gpuserve_sparse_compact(gsv_call_row(exchange, i), exchange->work.columns, entries->indices,
                                entries->values, exchange->work.columns);
    gsv_buffer_text(to, "[");
    for (size_t j = 0; j < n; j++) {
        gsv_buffer_format(to, "%s{\"index\":%u,\"value\":", j > 0 ? "," : "", entries->indices[j]);
        gsv_put_float(to, entries->values[j]);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
    return true;
}

static void write_sparse(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        if (!gsv_tei_put_sparse(exchange, i))
            return;
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

static void embed_sparse(struct gsv_exchange *exchange)
{
    const json_t *body = exchange->json;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!gsv_request_body_model(exchange))
        return;
    if (!gsv_served_has(exchange->served, GPUSERVE_TASK_SPARSE)) {
        gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                   "model \"%s\" makes no sparse embeddings: it is not a masked language model",
                   exchange->served->name);
        return;
    }
    job.task = GPUSERVE_TASK_SPARSE;
    if (gsv_option_truncation(exchange, body, &job) && gsv_option_prompt(exchange, body, &job) &&
        gsv_inputs_read(exchange, json_object_get(body, "inputs"), "inputs", 0, &job, &inputs))
        gsv_call_start(exchange, &job, &inputs, write_sparse);
}

/* Classification. A body with `instances` is Vertex AI's, of any model. */
static void predict(struct gsv_exchange *exchange)
{
#if GSV_HAS_VERTEX
    if (json_object_get(exchange->json, "instances")) {
        gsv_vertex(exchange);
        return;
    }
#endif
    gsv_tei_predict(exchange);
}

/* SageMaker's path: the request and the model select one of the others. */
static void invoke(struct gsv_exchange *exchange)
{
    const struct gsv_served *served;

    if (json_object_get(exchange->json, "query")) {
        gsv_tei_rerank(exchange);
        return;
    }
    if (!gsv_request_body_model(exchange))
        return;
    served = exchange->served;
    if (served->n_labels > 0)
        gsv_tei_predict(exchange);
    else if (!served->can_embed && gsv_served_has(served, GPUSERVE_TASK_SPARSE))
        embed_sparse(exchange);
    else
        embed(exchange);
}

const struct gsv_route gsv_tei_routes[] = {
    { "POST", "/embed", GSV_TEI, GSV_JSON_BODY, embed },
    { "POST", "/embed_all", GSV_TEI, GSV_JSON_BODY, embed_all },
    { "POST", "/embed_sparse", GSV_TEI, GSV_JSON_BODY, embed_sparse },
    { "POST", "/predict", GSV_TEI, GSV_JSON_BODY, predict, "text-embeddings-inference, Vertex AI" },
    { "POST", "/invocations", GSV_TEI, GSV_JSON_BODY, invoke, "SageMaker" },
    { "GET", "/info", GSV_TEI, GSV_WITHOUT_BODY, gsv_tei_info },
    { 0 },
};
