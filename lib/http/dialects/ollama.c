/*
 * ollama.c - Ollama's /api/embed, /api/embeddings, /api/show, /api/ps, /api/tags, /api/version.
 *
 * /api/generate and /api/chat are refused as Ollama refuses them of an embedding model.
 *
 * A model name may end in ":latest", which is ignored. Of `options` only num_ctx affects an
 * embedding, as in Ollama. `keep_alive` suspends the model when it is idle for that time, if
 * clients may control models (--model-control); the next request resumes it.
 */
#include "lib/base/clock.h"
#include "lib/base/prometheus.h"
#include "lib/http/core/encoding.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>
#include <time.h>

/* A longer time is "never". */
static const double max_keep_s = 1e9;

/* Holds the model that field `key` names, or the default one. */
static bool take_model_of(struct gsv_exchange *exchange, const char *key)
{
    static const char latest[] = ":latest";
    const size_t n = sizeof(latest) - 1;
    const char *name = NULL;

    if (!gsv_member_text(exchange, exchange->json, key, &name))
        return false;
    if (name && strlen(name) > n && strcmp(name + strlen(name) - n, latest) == 0)
        name = gsv_exchange_copy_text(exchange, name, strlen(name) - n);
    return exchange->status == 0 && gsv_request_model(exchange, name);
}

static bool take_model(struct gsv_exchange *exchange)
{
    return take_model_of(exchange, "model") && gsv_require_embedder(exchange);
}

/* A number of seconds, or a duration such as "5m"; negative: never. */
static bool read_keep_alive(struct gsv_exchange *exchange, int64_t *ms, bool *is_given)
{
    const json_t *value = json_object_get(exchange->json, "keep_alive");
    const double seconds = json_number_value(value);

    *is_given = value && !json_is_null(value);
    if (!*is_given)
        return true;
    if (json_is_string(value) && gsv_duration_read(json_string_value(value), ms))
        return true;
    if (!json_is_number(value))
        return gsv_refuse(exchange, GSV_P_INVALID, "keep_alive",
                          "`keep_alive` is neither a number of seconds nor a duration such as "
                          "\"5m\"");
    if (!(seconds < max_keep_s))
        *ms = -1;
    else
        *ms = seconds < 0 ? -1 : (int64_t)(seconds * 1000);
    return true;
}

/* After the job has begun, so that the model is not suspended before it. */
static void keep_alive(struct gsv_exchange *exchange, int64_t ms, bool is_given)
{
    struct gpuserve_http *server = exchange->server;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (is_given && server->options.model_control &&
        gsv_idle_keep(server->idle_models, exchange->served, ms, &error) != GPUSERVE_OK)
        gsv_http_log(server, GPUSERVE_LOG_WARNING, "%s", error.message);
}

static void write_embeddings(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;
    const char *name = json_string_value(json_object_get(exchange->json, "model"));

    gsv_buffer_text(to, "{\"model\":");
    gsv_put_text(to, name ? name : exchange->served->name);
    gsv_buffer_text(to, ",\"embeddings\":");
    gsv_put_rows(to, exchange->work.job.output, exchange->work.job.n_items, exchange->work.columns);
    gsv_buffer_format(to, ",\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%zu}",
                      (unsigned long long)(gsv_now_ns() - exchange->begun_ns),
                      exchange->usage.n_tokens);
    gsv_reply_json(exchange);
}

/* Reads `options.num_ctx`, the number of tokens to truncate at; 0: not given. */
static bool read_cut(struct gsv_exchange *exchange, struct gsv_cut *cut)
{
    const json_t *options = json_object_get(exchange->json, "options");
    int64_t limit = 0;

    if (options && !json_is_null(options) && !json_is_object(options))
        return gsv_refuse(exchange, GSV_P_INVALID, "options", "`options` is not an object");
    if (!gsv_member_count(exchange, options, "num_ctx", 1, (int64_t)exchange->served->max_tokens,
                          &limit))
        return false;
    *cut = (struct gsv_cut){ "num_ctx", (size_t)limit };
    return true;
}

static void start(struct gsv_exchange *exchange, gpuserve_job *job, struct gsv_inputs *inputs,
                  gsv_handler finish)
{
    struct gsv_cut cut;
    bool is_given;
    int64_t ms = 0;

    if (read_keep_alive(exchange, &ms, &is_given) && read_cut(exchange, &cut) &&
        gsv_inputs_cut(exchange, inputs, job, &cut) &&
        gsv_call_start(exchange, job, inputs, finish))
        keep_alive(exchange, ms, is_given);
}

static void embed(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    int64_t dimensions = 0;
    bool truncate = true; /* Ollama's default */

    if (!take_model(exchange) ||
        !gsv_member_flag(exchange, exchange->json, "truncate", &truncate) ||
        !gsv_member_count(exchange, exchange->json, "dimensions", 0, (int64_t)exchange->served->dim,
                          &dimensions) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "input"), "input",
                         GSV_INPUTS_EMPTY_TEXTS | GSV_INPUTS_NO_IDS, NULL, &inputs))
        return;
    job.dimensions = (uint32_t)dimensions;
    job.normalize = GPUSERVE_NORMALIZE_YES;
    job.truncation = truncate ? GPUSERVE_TRUNCATE_DEFAULT : GPUSERVE_TRUNCATE_STRICT;
    exchange->cut_by = "`truncate`: true";
    start(exchange, &job, &inputs, write_embeddings);
}

/* The older path: one text, one vector, not normalized. */
static void write_embedding(struct gsv_exchange *exchange)
{
    gsv_buffer_text(&exchange->reply, "{\"embedding\":");
    gsv_put_floats(&exchange->reply, exchange->work.job.output, exchange->work.columns);
    gsv_buffer_text(&exchange->reply, "}");
    gsv_reply_json(exchange);
}

static void embed_one(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    const json_t *prompt = json_object_get(exchange->json, "prompt");
    struct gsv_inputs inputs;
    bool is_given;
    int64_t ms = 0;

    if (!take_model(exchange))
        return;
    if (!json_is_string(prompt)) {
        gsv_refuse(exchange, GSV_P_INVALID, "prompt", "`prompt` is not a string");
        return;
    }
    if (json_string_length(prompt) == 0) { /* as in Ollama, where it unloads a model */
        if (!read_keep_alive(exchange, &ms, &is_given))
            return;
        keep_alive(exchange, ms, is_given);
        gsv_buffer_text(&exchange->reply, "{\"embedding\":[]}");
        gsv_reply_json(exchange);
        return;
    }
    job.normalize = GPUSERVE_NORMALIZE_NO;
    if (gsv_inputs_read(exchange, prompt, "prompt", 0, NULL, &inputs))
        start(exchange, &job, &inputs, write_embedding);
}

enum { MAX_TIME = sizeof("9999-12-31T23:59:59Z") };

/* RFC 3339, as Ollama's clients parse it. */
static bool format_time(time_t at, char text[MAX_TIME])
{
    struct tm utc;

    text[0] = '\0';
    return gmtime_r(&at, &utc) && strftime(text, MAX_TIME, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0;
}

/* "22.7M" parameters, as Ollama prints them; "" if unknown. */
static void put_parameter_size(struct gsv_buffer *to, const struct gsv_served *served)
{
    const int64_t n = json_integer_value(json_object_get(served->facts, "parameters"));
    const int64_t unit = n >= 1000000000 ? 1000000000 : n >= 1000000 ? 1000000 : 1000;
    const char *suffix = n >= 1000000000 ? "B" : n >= 1000000 ? "M" : "K";

    gsv_buffer_text(to, "\"");
    if (n > 0) {
        gsv_page_decimal(to, (uint64_t)((n + unit / 20) / (unit / 10)), 1);
        gsv_buffer_text(to, suffix);
    }
    gsv_buffer_text(to, "\"");
}

static const char *fact(const struct gsv_served *served, const char *key)
{
    const char *text = json_string_value(json_object_get(served->facts, key));

    return text ? text : "";
}

/* The `details` of a model, which clients print. */
static void put_details(struct gsv_buffer *to, const struct gsv_served *served)
{
    gsv_buffer_text(to,
                    "\"details\":{\"parent_model\":\"\",\"format\":\"safetensors\",\"family\":");
    gsv_put_text(to, fact(served, "model_type"));
    gsv_buffer_text(to, ",\"families\":[");
    gsv_put_text(to, fact(served, "model_type"));
    gsv_buffer_text(to, "],\"parameter_size\":");
    put_parameter_size(to, served);
    gsv_buffer_text(to, ",\"quantization_level\":");
    gsv_put_text(to, served->dtype);
    gsv_buffer_text(to, "}");
}

/* The facts of a loaded model. `size` is the bytes of its weights, `modified_at` the time of its
 * files. Of a model that is not loaded only its name is known. */
static void put_tag(struct gsv_buffer *to, const struct gsv_served *served)
{
    char modified[MAX_TIME];

    format_time(served->modified, modified);
    gsv_buffer_format(to, ",\"modified_at\":\"%s\",\"size\":%lld,\"digest\":", modified,
                      (long long)json_integer_value(json_object_get(served->facts, "file_bytes")));
    gsv_put_text(to, served->space);
    gsv_buffer_text(to, ",");
    put_details(to, served);
}

static void tags(struct gsv_exchange *exchange)
{
    struct gsv_models *models = exchange->server->models;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"models\":[");
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_served *served = gsv_models_hold(models, &models->entries[i]);

        gsv_buffer_text(to, i > 0 ? ",{\"name\":" : "{\"name\":");
        gsv_put_text(to, models->entries[i].name);
        gsv_buffer_text(to, ",\"model\":");
        gsv_put_text(to, models->entries[i].name);
        if (served)
            put_tag(to, served);
        gsv_buffer_text(to, "}");
        gsv_served_release(served);
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static void show(struct gsv_exchange *exchange)
{
    const struct gsv_served *served;
    struct gsv_buffer *to = &exchange->reply;
    const char *family;

    /* `name` is the older field. */
    if (!take_model_of(exchange, json_object_get(exchange->json, "model") ? "model" : "name"))
        return;
    served = exchange->served;
    family = fact(served, "model_type");
    gsv_buffer_text(to, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
    put_details(to, served);
    gsv_buffer_text(to, ",\"model_info\":{\"general.architecture\":");
    gsv_put_text(to, family);
    gsv_buffer_format(to, ",\"%.64s.context_length\":%zu,\"%.64s.embedding_length\":%zu},", family,
                      served->max_tokens, family, served->can_embed ? served->dim : 0);
    gsv_buffer_format(to, "\"capabilities\":[%s]}", served->can_embed ? "\"embedding\"" : "");
    gsv_reply_json(exchange);
}

/* When the model is suspended if no job comes; far away if it stays until it is unloaded. */
static void put_expiry(struct gsv_buffer *to, const struct gsv_served *served)
{
    const int64_t keep_ms = atomic_load(&served->keep_ms);
    const uint64_t used = atomic_load(&served->used_ns), now = gsv_now_ns(); /* in this order */
    time_t at = time(NULL) + (time_t)(keep_ms / 1000) - (time_t)((now - used) / 1000000000u);
    char text[MAX_TIME];

    if (keep_ms < 0 || !format_time(at, text))
        memcpy(text, "9999-12-31T23:59:59Z", MAX_TIME);
    gsv_buffer_format(to, ",\"expires_at\":\"%s\"}", text);
}

/* The models in memory. */
static void running(struct gsv_exchange *exchange)
{
    struct gsv_models *models = exchange->server->models;
    struct gsv_buffer *to = &exchange->reply;
    const char *comma = "";

    gsv_buffer_text(to, "{\"models\":[");
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_served *served = gsv_models_hold(models, &models->entries[i]);

        if (!served || atomic_load(&served->is_suspended)) {
            gsv_served_release(served);
            continue;
        }
        gsv_buffer_format(to, "%s{\"name\":", comma);
        gsv_put_text(to, models->entries[i].name);
        gsv_buffer_text(to, ",\"model\":");
        gsv_put_text(to, models->entries[i].name);
        gsv_buffer_text(to, ",\"digest\":");
        gsv_put_text(to, served->space);
        gsv_buffer_text(to, ",");
        put_details(to, served);
        put_expiry(to, served);
        gsv_served_release(served);
        comma = ",";
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static void generate(struct gsv_exchange *exchange)
{
    if (take_model_of(exchange, "model"))
        gsv_refuse(exchange, GSV_P_INVALID, "model", "\"%s\" does not support %s",
                   exchange->served->name,
                   strcmp(exchange->path, "/api/chat") == 0 ? "chat" : "generate");
}

static void version(struct gsv_exchange *exchange)
{
    gsv_buffer_format(&exchange->reply, "{\"version\":\"%s\"}", gpuserve_version());
    gsv_reply_json(exchange);
}

const struct gsv_route gsv_ollama_routes[] = {
    { "POST", "/api/embed", GSV_KSERVE, GSV_JSON_BODY, embed },
    { "POST", "/api/embeddings", GSV_KSERVE, GSV_JSON_BODY, embed_one },
    { "POST", "/api/show", GSV_KSERVE, GSV_JSON_BODY, show },
    { "GET", "/api/ps", GSV_KSERVE, GSV_WITHOUT_BODY, running },
    { "POST", "/api/generate", GSV_KSERVE, GSV_JSON_BODY, generate },
    { "POST", "/api/chat", GSV_KSERVE, GSV_JSON_BODY, generate },
    { "GET", "/api/tags", GSV_KSERVE, GSV_WITHOUT_BODY, tags },
    { "GET", "/api/version", GSV_KSERVE, GSV_WITHOUT_BODY, version },
    { 0 },
};
