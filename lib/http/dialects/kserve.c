/*
 * kserve.c - Open Inference Protocol except inference: health, metadata, model repository.
 *
 * Load and unload need the server's model_control. They run in the load queue (load_queue.h) while
 * the connection is suspended.
 */
#include "lib/http/dialects/kserve.h"
#include "lib/http/dialects/health.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

bool gsv_kserve_model(struct gsv_exchange *exchange)
{
    if (exchange->version && strcmp(exchange->version, "1") != 0)
        return gsv_refuse(exchange, GSV_P_NO_MODEL, NULL,
                          "model \"%.100s\" has no version \"%.20s\", only 1", exchange->model_name,
                          exchange->version);
    return gsv_request_model(exchange, exchange->model_name);
}

static void put_bool(struct gsv_exchange *exchange, const char *name, bool boolean)
{
    gsv_buffer_format(&exchange->reply, "{\"%s\":%s}", name, boolean ? "true" : "false");
    gsv_reply(exchange, boolean ? 200 : 503, "application/json");
}

static void live(struct gsv_exchange *exchange)
{
    put_bool(exchange, "live", true);
}

static void ready(struct gsv_exchange *exchange)
{
    put_bool(exchange, "ready", gsv_http_ready(exchange->server, NULL));
}

static bool is_ready(const struct gsv_served *served)
{
    return served && gpuserve_model_ready(served->model, NULL) == GPUSERVE_OK;
}

static void model_ready(struct gsv_exchange *exchange)
{
    if (gsv_kserve_model(exchange))
        put_bool(exchange, "ready",
                 !atomic_load(&exchange->server->draining) && is_ready(exchange->served));
}

/* ------------------------------------------------------------------------------------ metadata */

static void server_metadata(struct gsv_exchange *exchange)
{
    gsv_buffer_format(&exchange->reply,
                      "{\"name\":\"gpuserve\",\"version\":\"%s\",\"extensions\":["
                      "\"binary_tensor_data\",\"classification\",\"model_configuration\","
                      "\"model_repository\",\"model_repository(unload_dependents)\","
                      "\"statistics\"]}",
                      gpuserve_version());
    gsv_reply_json(exchange);
}

struct tensor_row {
    const char *name, *datatype;
    int64_t columns; /* 0: one-dimensional */
};

static void put_tensors(struct gsv_buffer *to, const struct tensor_row *rows, size_t n,
                        bool as_config)
{
    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n; i++) {
        const bool is_text = strcmp(rows[i].datatype, "BYTES") == 0;

        gsv_buffer_format(to, "%s{\"name\":\"%s\",", i > 0 ? "," : "", rows[i].name);
        if (as_config)
            gsv_buffer_format(to, "\"data_type\":\"TYPE_%s\",\"dims\":[-1",
                              is_text ? "STRING" : rows[i].datatype);
        else
            gsv_buffer_format(to, "\"datatype\":\"%s\",\"shape\":[-1", rows[i].datatype);
        if (rows[i].columns)
            gsv_buffer_format(to, ",%lld", (long long)rows[i].columns);
        gsv_buffer_text(to, "]}");
    }
    gsv_buffer_text(to, "]");
}

static void put_model(struct gsv_exchange *exchange, bool as_config)
{
    const struct gsv_served *served = exchange->served;
    const struct tensor_row inputs[] = { { "TEXT", "BYTES", 0 },
                                         { "TEXT_PAIR", "BYTES", 0 },
                                         { "input_ids", "INT64", -1 },
                                         { "attention_mask", "INT64", -1 } };
    const struct tensor_row embedding[] = { { "embedding", "FP32", (int64_t)served->dim } };
    const struct tensor_row scores[] = { { "scores", "FP32", (int64_t)served->n_labels },
                                         { "labels", "BYTES", 0 } };
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"name\":");
    gsv_put_text(to, exchange->model_name);
    gsv_buffer_text(to, ",\"versions\":[\"1\"],\"platform\":\"gpuserve\"");
    gsv_buffer_text(to, as_config ? ",\"max_batch_size\":0,\"input\":" : ",\"inputs\":");
    put_tensors(to, inputs, 4, as_config);
    gsv_buffer_text(to, as_config ? ",\"output\":" : ",\"outputs\":");
    if (served->n_labels > 0)
        put_tensors(to, scores, 2, as_config);
    else
        put_tensors(to, embedding, 1, as_config);
    gsv_buffer_text(to, "}");
    gsv_reply_json(exchange);
}

static void model_metadata(struct gsv_exchange *exchange)
{
    if (gsv_kserve_model(exchange))
        put_model(exchange, false);
}

static void model_config(struct gsv_exchange *exchange)
{
    if (gsv_kserve_model(exchange))
        put_model(exchange, true);
}

/* ---------------------------------------------------------------------------------- repository */

static void repository_index(struct gsv_exchange *exchange)
{
    struct gsv_models *models = exchange->server->models;
    struct gsv_buffer *to = &exchange->reply;
    bool only_ready = false;
    const char *comma = "";

    if (exchange->body.size > 0 &&
        (!gsv_request_parse(exchange, exchange->body.bytes, exchange->body.size) ||
         !gsv_member_flag(exchange, exchange->json, "ready", &only_ready)))
        return;
    gsv_buffer_text(to, "[");
    pthread_rwlock_rdlock(&models->lock);
    for (size_t i = 0; i < models->n; i++) {
        const struct gsv_entry *entry = &models->entries[i];

        if (only_ready && !is_ready(entry->served))
            continue;
        gsv_buffer_format(to, "%s{\"name\":", comma);
        gsv_put_text(to, entry->name);
        gsv_buffer_format(to, ",\"version\":\"1\",\"state\":\"%s\",\"reason\":",
                          is_ready(entry->served) ? "READY" : "UNAVAILABLE");
        gsv_put_text(to, entry->reason ? entry->reason : "");
        gsv_buffer_text(to, "}");
        comma = ",";
    }
    pthread_rwlock_unlock(&models->lock);
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

/* The entry named in the path, if model_control allows clients to load and unload. NULL after
 * gsv_refuse. */
static struct gsv_entry *controlled_entry(struct gsv_exchange *exchange)
{
    struct gsv_entry *entry = gsv_models_entry(exchange->server->models, exchange->model_name);

    if (!exchange->server->options.model_control)
        gsv_refuse(
            exchange, GSV_P_UNSUPPORTED, NULL,
            "this server does not let clients load and unload models (--model-control allows it)");
    else if (!entry)
        gsv_request_model(exchange, exchange->model_name); /* rejects and lists the known models */
    return exchange->status == 0 ? entry : NULL;
}

static void say_done(struct gsv_exchange *exchange)
{
    gsv_buffer_text(&exchange->reply, "{}");
    gsv_reply_json(exchange);
}

/* Rejects load parameters: only the server's own options apply. The body may be empty. */
static bool check_load(struct gsv_exchange *exchange)
{
    const json_t *parameters;
    const char *key;
    json_t *value;

    if (exchange->body.size == 0)
        return true;
    if (!gsv_request_parse(exchange, exchange->body.bytes, exchange->body.size))
        return false;
    parameters = json_object_get(exchange->json, "parameters");
    json_object_foreach((json_t *)parameters, key, value)
    {
        if (strcmp(key, "config") == 0 || strncmp(key, "file:", 5) == 0)
            return gsv_refuse(exchange, GSV_P_INVALID, "parameters",
                              "`parameters` holds \"%.100s\", which is not supported: the server "
                              "loads models from its own files with its own options",
                              key);
    }
    return true;
}

static void control(struct gsv_exchange *exchange, enum gsv_load_kind kind)
{
    struct gsv_entry *entry = controlled_entry(exchange);

    if (entry && (kind != GSV_LOAD || check_load(exchange)))
        gsv_call_load(exchange, exchange->server->loads, entry, kind, say_done);
}

static void load(struct gsv_exchange *exchange)
{
    control(exchange, GSV_LOAD);
}

static void unload(struct gsv_exchange *exchange)
{
    control(exchange, GSV_UNLOAD);
}

#define MODEL "/v2/models/{model}"
#define VERSION "/v2/models/{model}/versions/{version}"

const struct gsv_route gsv_kserve_routes[] = {
    { "GET", "/v2/health/live", GSV_KSERVE, GSV_OPEN, live },
    { "GET", "/v2/health/ready", GSV_KSERVE, GSV_OPEN, ready },
    { "GET", "/v2", GSV_KSERVE, GSV_WITHOUT_BODY, server_metadata },
    { "POST", "/v2/repository/index", GSV_KSERVE, GSV_RAW_BODY, repository_index },
    { "POST", "/v2/repository/models/{model}/load", GSV_KSERVE, GSV_RAW_BODY, load },
    { "POST", "/v2/repository/models/{model}/unload", GSV_KSERVE, GSV_RAW_BODY, unload },
    { "POST", VERSION "/infer", GSV_KSERVE, GSV_RAW_BODY, gsv_kserve_infer },
    { "POST", MODEL "/infer", GSV_KSERVE, GSV_RAW_BODY, gsv_kserve_infer },
    { "GET", VERSION "/ready", GSV_KSERVE, GSV_WITHOUT_BODY, model_ready },
    { "GET", VERSION "/config", GSV_KSERVE, GSV_WITHOUT_BODY, model_config },
    { "GET", VERSION "/stats", GSV_KSERVE, GSV_WITHOUT_BODY, gsv_kserve_model_stats },
    { "GET", "/v2/models/stats", GSV_KSERVE, GSV_WITHOUT_BODY, gsv_kserve_stats },
    { "GET", VERSION, GSV_KSERVE, GSV_WITHOUT_BODY, model_metadata },
    { "GET", MODEL "/ready", GSV_KSERVE, GSV_WITHOUT_BODY, model_ready },
    { "GET", MODEL "/config", GSV_KSERVE, GSV_WITHOUT_BODY, model_config },
    { "GET", MODEL "/stats", GSV_KSERVE, GSV_WITHOUT_BODY, gsv_kserve_model_stats },
    { "GET", MODEL, GSV_KSERVE, GSV_WITHOUT_BODY, model_metadata },
    { 0 },
};
