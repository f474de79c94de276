/*
 * tei_info.c - TEI's GET /info with all keys that its clients read, plus `space` and `poolings`.
 */
#include "lib/http/dialects/tei.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <string.h>

/* Writes {"id2label":{"0":"NEG"},"label2id":{"NEG":0}}. */
static void put_labels(struct gsv_buffer *to, const struct gsv_served *served)
{
    const size_t n = gpuserve_model_label_count(served->model);

    gsv_buffer_text(to, "{\"id2label\":{");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_format(to, "%s\"%zu\":", i > 0 ? "," : "", i);
        gsv_put_text(to, gsv_served_label(served, i));
    }
    gsv_buffer_text(to, "},\"label2id\":{");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_text(to, gsv_served_label(served, i));
        gsv_buffer_format(to, ":%zu", i);
    }
    gsv_buffer_text(to, "}}");
}

/* Maps to one of TEI's four poolings, because its clients reject others. `poolings` has the real
 * ones. */
static const char *tei_pooling(const struct gsv_served *served, const json_t *poolings)
{
    static const char *const names[][2] = { { "cls", "cls" },
                                            { "mean", "mean" },
                                            { "last", "last_token" } };
    json_t *one;
    size_t i;

    json_array_foreach(poolings, i, one)
    {
        for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
            if (json_is_string(one) && strcmp(json_string_value(one), names[j][0]) == 0)
                return names[j][1];
        }
    }
    return served->can_embed ? "mean" : "splade";
}

static void put_poolings(struct gsv_buffer *to, const json_t *poolings)
{
    json_t *one;
    size_t i;

    gsv_buffer_text(to, ",\"poolings\":[");
    json_array_foreach(poolings, i, one)
    {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_text(to, json_string_value(one));
    }
    gsv_buffer_text(to, "]");
}

static void put_model_type(struct gsv_buffer *to, const struct gsv_served *served,
                           const json_t *poolings)
{
    if (gpuserve_model_label_count(served->model) > 0 &&
        (served->is_reranker || !served->can_embed)) {
        gsv_buffer_text(to, served->is_reranker ? "{\"reranker\":" : "{\"classifier\":");
        put_labels(to, served);
    } else {
        gsv_buffer_text(to, "{\"embedding\":{\"pooling\":");
        gsv_put_text(to, tei_pooling(served, poolings));
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "}");
}

void gsv_tei_info(struct gsv_exchange *exchange)
{
    const gpuserve_http_options *options = &exchange->server->options;
    struct gsv_buffer *to = &exchange->reply;
    const struct gsv_served *served;
    json_int_t batch_tokens;

    if (!gsv_request_model(exchange, NULL))
        return;
    served = exchange->served;
    batch_tokens = json_integer_value(json_object_get(served->facts, "max_batch_tokens"));
    gsv_buffer_text(to, "{\"model_id\":");
    gsv_put_text(to, served->name);
    gsv_buffer_text(to, ",\"model_sha\":null,\"model_dtype\":");
    gsv_put_text(to, served->dtype);
    gsv_buffer_text(to, ",\"served_model_name\":");
    gsv_put_text(to, served->name);
    gsv_buffer_text(to, ",\"model_type\":");
    put_model_type(to, served, json_object_get(served->facts, "pooling"));
    gsv_buffer_format(to, ",\"max_concurrent_requests\":%u,\"max_input_length\":%zu",
                      options->max_connections, served->max_tokens);
    gsv_buffer_format(to, ",\"max_batch_tokens\":%lld,\"max_batch_requests\":null",
                      (long long)batch_tokens);
    gsv_buffer_format(to, ",\"max_client_batch_size\":%u,\"auto_truncate\":%s",
                      options->max_client_batch, options->auto_truncate ? "true" : "false");
    gsv_buffer_format(to,
                      ",\"tokenization_workers\":%lld,\"version\":\"%s\",\"sha\":null,"
                      "\"docker_label\":null,\"device\":",
                      (long long)json_integer_value(json_object_get(served->facts, "threads")),
                      gpuserve_version());
    gsv_put_text(to, served->device);
    gsv_buffer_format(to, ",\"deterministic\":%s,\"space\":",
                      json_is_true(json_object_get(served->facts, "deterministic")) ? "true"
                                                                                    : "false");
    gsv_put_text(to, served->space);
    put_poolings(to, json_object_get(served->facts, "pooling"));
    gsv_buffer_text(to, "}");
    gsv_reply_json(exchange);
}
