/*
 * dialect_openai.c - /v1/embeddings and /v1/models, as the `openai` package speaks them.
 *
 * Its default for vectors is base64 of little-endian float32. Lists of token ids are used as they
 * are.
 */
#include "lib/http/options.h"
#include "lib/http/request.h"
#include "lib/http/route.h"
#include "lib/http/server.h"
#include "lib/http/work.h"

#include <string.h>

struct embeddings {
    bool base64;
};

static void write_embeddings(struct gsv_exchange *exchange)
{
    const struct embeddings *wanted = exchange->state;
    const struct gsv_work *work = &exchange->work;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < work->job.n_items; i++) {
        gsv_buffer_format(
            to, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i > 0 ? "," : "", i);
        if (wanted->base64)
            gsv_put_base64(to, gsv_work_row(exchange, i), work->columns);
        else
            gsv_put_floats(to, gsv_work_row(exchange, i), work->columns);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "],\"model\":");
    gsv_put_text(to, exchange->served->name);
    gsv_buffer_format(to, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}",
                      exchange->account.n_tokens, exchange->account.n_tokens);
    gsv_reply_json(exchange);
}

static void embeddings(struct gsv_exchange *exchange)
{
    static const char *const formats[] = { "float", "base64", NULL };
    const json_t *body = exchange->json;
    struct embeddings *wanted = gsv_keep(exchange, 1, sizeof(*wanted));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    const char *user = NULL;
    int64_t dimensions = 0;
    uint32_t format = 0;

    exchange->state = wanted;
    if (!gsv_option_truncation(exchange, body, &job)) /* an extension */
        return;
    if (!wanted || !gsv_request_body_model(exchange) ||
        !gsv_member_text(exchange, body, "user", &user) ||
        !gsv_member_choice(exchange, body, "encoding_format", formats, &format))
        return;
    if (!gsv_require_embedder(exchange) ||
        !gsv_member_count(exchange, body, "dimensions", 1, (int64_t)exchange->served->dim,
                          &dimensions) ||
        !gsv_inputs_read(exchange, json_object_get(body, "input"), "input", 0, &job, &inputs))
        return;
    wanted->base64 = format == 1;
    job.task = GPUSERVE_TASK_EMBED;
    job.dimensions = (uint32_t)dimensions;
    gsv_work_start(exchange, &job, &inputs, write_embeddings);
}

/* -------------------------------------------------------------------------------------- models */

/* Facts are those of a model that is loaded; NULL in a list, where none is held. */
static void write_model(struct gsv_buffer *to, const char *name, const struct gsv_served *facts)
{
    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, name);
    gsv_buffer_text(to, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"gpuserve\"");
    if (facts) {
        gsv_buffer_format(
            to, ",\"dim\":%zu,\"labels\":%zu,\"token_labels\":%zu,\"max_tokens\":%zu,\"dtype\":",
            facts->can_embed ? facts->dim : 0, facts->n_labels, facts->n_token_labels,
            facts->max_tokens);
        gsv_put_text(to, facts->dtype);
        gsv_buffer_text(to, ",\"device\":");
        gsv_put_text(to, facts->device);
        gsv_buffer_text(to, ",\"space\":");
        gsv_put_text(to, facts->space);
    }
    gsv_buffer_text(to, "}");
}

static void list_models(struct gsv_exchange *exchange)
{
    const struct gsv_models *models = &exchange->server->models;
    struct gsv_buffer *to = &exchange->reply;
    const char *comma = "";

    gsv_buffer_text(to, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < models->n; i++) {
        gsv_buffer_text(to, comma);
        write_model(to, models->entries[i].name, NULL);
        comma = ",";
        for (size_t j = 0; j < models->entries[i].n_aliases; j++) {
            gsv_buffer_text(to, comma);
            write_model(to, models->entries[i].aliases[j], NULL);
        }
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static void one_model(struct gsv_exchange *exchange)
{
    if (!gsv_request_model(exchange, exchange->model_name))
        return;
    write_model(&exchange->reply, exchange->model_name, exchange->served);
    gsv_reply_json(exchange);
}

const struct gsv_route gsv_openai_routes[] = {
    { "POST", "/v1/embeddings", GSV_OPENAI, GSV_JSON_BODY, embeddings },
    { "GET", "/v1/models", GSV_OPENAI, GSV_WITHOUT_BODY, list_models },
    { "GET", "/v1/models/{model}", GSV_OPENAI, GSV_WITHOUT_BODY, one_model },
    { 0 },
};
