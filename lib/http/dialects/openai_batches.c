/*
 * openai_batches.c - OpenAI's /v1/batches: create, list, describe, cancel.
 *
 * A client sees the batches of its own API key. `completion_window` is a duration such as "24h",
 * the only value that OpenAI accepts.
 */
#include "lib/base/json_tree.h"
#include "lib/http/batch/batch.h"
#include "lib/http/core/encoding.h"
#include "lib/http/dialects/openai_batch.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_METADATA = 16, MAX_KEY_BYTES = 64, MAX_VALUE_BYTES = 512 };

static const int64_t min_window_ms = 1000, max_window_ms = INT64_C(14) * 86400000;

static void reply_with(struct gsv_exchange *exchange, json_t *json)
{
    char *text = gsv_json_dump(json, JSON_COMPACT);

    json_decref(json);
    if (text)
        gsv_buffer_text(&exchange->reply, text);
    else
        exchange->reply.failed = true;
    free(text);
    gsv_reply_json(exchange);
}

/* --------------------------------------------------------------------------------------- create */

static bool copy_required(struct gsv_exchange *exchange, const char *key, char *to, size_t size)
{
    const char *text = NULL;

    if (!gsv_member_text(exchange, exchange->json, key, &text))
        return false;
    if (!text)
        return gsv_refuse(exchange, GSV_P_INVALID, key, "Missing required parameter: '%s'.", key);
    if (strlen(text) >= size)
        return gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is longer than %zu bytes", key,
                          size - 1);
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool read_endpoint(struct gsv_exchange *exchange, struct gsv_batch_job *batch)
{
    static const char *const endpoints[] = { "/v1/embeddings", "/v1/rerank",   "/v1/reranking",
                                             "/v1/score",      "/v1/classify", "/v1/embed" };

    if (!copy_required(exchange, "endpoint", batch->endpoint, sizeof(batch->endpoint)))
        return false;
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        if (strcmp(batch->endpoint, endpoints[i]) == 0)
            return true;
    }
    return gsv_refuse(exchange, GSV_P_INVALID, "endpoint",
                      "`endpoint` is \"%s\", not one of /v1/embeddings, /v1/rerank, "
                      "/v1/reranking, /v1/score, /v1/classify, /v1/embed",
                      batch->endpoint);
}

static bool read_window(struct gsv_exchange *exchange, struct gsv_batch_job *batch)
{
    int64_t ms = 0;

    if (!copy_required(exchange, "completion_window", batch->window, sizeof(batch->window)))
        return false;
    if (!gsv_duration_read(batch->window, &ms) || ms < min_window_ms || ms > max_window_ms)
        return gsv_refuse(exchange, GSV_P_INVALID, "completion_window",
                          "`completion_window` is \"%s\", not a duration from 1s to 14d such as "
                          "24h",
                          batch->window);
    batch->expires = (int64_t)time(NULL) + (ms + 999) / 1000;
    return true;
}

static bool read_output_expiry(struct gsv_exchange *exchange, struct gsv_batch_job *batch)
{
    const json_t *expiry = json_object_get(exchange->json, "output_expires_after");
    const json_t *seconds = json_object_get(expiry, "seconds");
    const char *anchor = NULL;

    if (!expiry || json_is_null(expiry))
        return true;
    if (!json_is_integer(seconds))
        return gsv_refuse(exchange, GSV_P_INVALID, "output_expires_after",
                          "`output_expires_after.seconds` is not a whole number");
    batch->output_seconds = json_integer_value(seconds);
    return gsv_member_text(exchange, expiry, "anchor", &anchor) &&
           gsv_read_expiry(exchange, "output_expires_after", anchor, batch->output_seconds);
}

static bool read_metadata(struct gsv_exchange *exchange, struct gsv_batch_job *batch)
{
    json_t *metadata = json_object_get(exchange->json, "metadata"), *value;
    const char *key;

    if (!metadata || json_is_null(metadata))
        return true;
    if (!json_is_object(metadata) || json_object_size(metadata) > MAX_METADATA)
        return gsv_refuse(exchange, GSV_P_INVALID, "metadata",
                          "`metadata` is not an object of at most %d fields", MAX_METADATA);
    json_object_foreach(metadata, key, value)
    {
        if (strlen(key) > MAX_KEY_BYTES || !json_is_string(value) ||
            json_string_length(value) > MAX_VALUE_BYTES)
            return gsv_refuse(
                exchange, GSV_P_INVALID, "metadata",
                "`metadata`: \"%.64s\" is not a key of at most %d bytes with a string "
                "of at most %d",
                key, MAX_KEY_BYTES, MAX_VALUE_BYTES);
    }
    batch->metadata = json_deep_copy(metadata); /* for another thread */
    return batch->metadata ||
           gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for `metadata`");
}

static bool check_input(struct gsv_exchange *exchange, struct gsv_batch_jobs *batches,
                        const struct gsv_batch_job *batch)
{
    struct gsv_stored_file file;

    if (!gsv_store_find(&batches->store, batch->input_id, exchange->key_name, &file))
        return gsv_refuse(exchange, GSV_P_INVALID, "input_file_id", "No such File object: %s",
                          batch->input_id);
    return strcmp(file.purpose, "batch") == 0 ||
           gsv_refuse(exchange, GSV_P_INVALID, "input_file_id",
                      "`input_file_id` is a file of purpose \"%s\", not \"batch\"", file.purpose);
}

static void create_batch(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_batch_job batch = { .id = "" };
    gpuserve_status st;
    json_t *json;

    if (!batches ||
        !copy_required(exchange, "input_file_id", batch.input_id, sizeof(batch.input_id)) ||
        !read_endpoint(exchange, &batch) || !read_window(exchange, &batch) ||
        !read_output_expiry(exchange, &batch) || !check_input(exchange, batches, &batch) ||
        !read_metadata(exchange, &batch))
        return;
    memcpy(batch.owner, exchange->key_name, sizeof(batch.owner));
    st = gsv_batch_jobs_create(batches, &batch, &json, &error);
    if (st == GPUSERVE_E_NOT_FOUND)
        gsv_refuse(exchange, GSV_P_INVALID, "input_file_id", "%s", error.message);
    else if (st != GPUSERVE_OK)
        gsv_refuse_storage(exchange, st, &error);
    else
        reply_with(exchange, json);
}

/* ----------------------------------------------------------------------------------------- read */

static void one_batch(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    json_t *json;

    if (!batches)
        return;
    json = gsv_batch_jobs_find(batches, exchange->version, exchange->key_name);
    if (json)
        reply_with(exchange, json);
    else
        gsv_refuse(exchange, GSV_P_NO_OBJECT, NULL, "No batch found with id '%.64s'.",
                   exchange->version);
}

static void cancel_batch(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;
    json_t *json;

    if (!batches)
        return;
    st = gsv_batch_jobs_cancel(batches, exchange->version, exchange->key_name, &json, &error);
    if (st == GPUSERVE_E_NOT_FOUND)
        gsv_refuse(exchange, GSV_P_NO_OBJECT, NULL, "%s", error.message);
    else if (st == GPUSERVE_E_MISMATCH)
        gsv_refuse(exchange, GSV_P_STATE, NULL, "%s", error.message);
    else if (st != GPUSERVE_OK)
        gsv_refuse_storage(exchange, st, &error);
    else
        reply_with(exchange, json);
}

static json_t *id_at(const json_t *list, size_t i)
{
    json_t *id = json_object_get(json_array_get(list, i), "id");

    return id ? json_incref(id) : json_null();
}

static void list_batches(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    const char *after = NULL;
    int64_t limit = 20;
    bool has_more;
    json_t *list;

    if (!batches || !gsv_query_text(exchange, "after", &after) ||
        !gsv_query_count(exchange, "limit", 1, 100, &limit))
        return;
    list = gsv_batch_jobs_list(batches, exchange->key_name, after, (size_t)limit, &has_more);
    if (!list) {
        gsv_refuse(exchange, GSV_P_INVALID, "after", "`after` names no batch of the list");
        return;
    }
    reply_with(exchange,
               json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "first_id", id_at(list, 0),
                         "last_id", id_at(list, json_array_size(list) - 1), "data", list,
                         "has_more", has_more));
}

const struct gsv_route gsv_batch_jobs_routes[] = {
    { "POST", "/v1/batches", GSV_OPENAI, GSV_JSON_BODY | GSV_BLOCKING, create_batch },
    { "GET", "/v1/batches", GSV_OPENAI, GSV_BLOCKING, list_batches },
    { "GET", "/v1/batches/{id}", GSV_OPENAI, GSV_BLOCKING, one_batch },
    { "POST", "/v1/batches/{id}/cancel", GSV_OPENAI, GSV_BLOCKING, cancel_batch },
    { 0 },
};
