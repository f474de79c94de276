/*
 * kserve_infer.c - one inference with JSON and binary tensors in both directions.
 *
 * With Inference-Header-Content-Length the body is that many bytes of JSON followed by the binary
 * tensors. The reply has the same form if a binary output was requested.
 *
 * A length of 0 is a raw binary request of Triton: the body is one text, the only element of TEXT,
 * without a length before it. All outputs of its reply are binary.
 */
#include "lib/http/dialects/kserve.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum output_kind { EMBEDDING, SCORES, LABELS, N_OUTPUTS };

static const char *const output_names[] = { "embedding", "scores", "labels" };

struct output {
    enum output_kind kind;
    bool binary;
    size_t classes; /* of scores: so many best labels as "score:index:label"; 0: all scores */
};

struct infer {
    struct output outputs[N_OUTPUTS];
    size_t n_outputs;
    const char *id;
};

/* ---------------------------------------------------------------------------------------- reply */

/* A string element of a BYTES tensor: JSON, or a little-endian 32-bit length and the bytes. */
static void put_element(struct gsv_buffer *to, bool binary, const char *text)
{
    const uint32_t size = htole32((uint32_t)strlen(text));

    if (!binary) {
        gsv_put_text(to, text);
        return;
    }
    gsv_buffer_add(to, &size, sizeof(size));
    gsv_buffer_text(to, text);
}

static const char *separator(const struct output *output, size_t i)
{
    return output->binary || i == 0 ? "" : ",";
}

/* The labels of one row: the best one, or the best `classes` with their scores. */
static bool put_row_labels(struct gsv_exchange *exchange, const struct output *output, size_t row,
                           struct gsv_buffer *to)
{
    const struct gsv_served *served = exchange->served;
    const size_t n = output->classes ? output->classes : 1;
    const struct gsv_ranked *ranked =
        gsv_rank_labels(exchange, gsv_call_row(exchange, row), served->n_labels);

    for (size_t i = 0; i < n && ranked; i++) {
        const char *label = gsv_served_label(served, ranked[i].index);

        gsv_buffer_text(to, separator(output, row * n + i));
        if (output->classes) {
            struct gsv_buffer text = { 0 };

            gsv_put_float(&text, ranked[i].score);
            gsv_buffer_format(&text, ":%zu:%s", ranked[i].index, label);
            gsv_buffer_add(&text, "", 1);
            if (text.failed)
                to->failed = true;
            else
                put_element(to, output->binary, text.bytes);
            gsv_buffer_reset(&text);
        } else {
            put_element(to, output->binary, label);
        }
    }
    return ranked != NULL;
}

static bool put_values(struct gsv_exchange *exchange, const struct output *output,
                       struct gsv_buffer *to)
{
    const struct gsv_call *work = &exchange->work;
    const size_t n = work->job.n_items * work->columns;

    if (output->kind == LABELS || output->classes) {
        for (size_t i = 0; i < work->job.n_items; i++) {
            if (!put_row_labels(exchange, output, i, to))
                return false;
        }
    } else if (output->binary) {
        gsv_buffer_add(to, work->job.output, n * sizeof(float)); /* little-endian, as the host */
    } else {
        for (size_t i = 0; i < n; i++) {
            gsv_buffer_text(to, i > 0 ? "," : "");
            gsv_put_float(to, work->job.output[i]);
        }
    }
    return true;
}

static void put_shape(struct gsv_exchange *exchange, const struct output *output)
{
    const size_t n = exchange->work.job.n_items;
    struct gsv_buffer *to = &exchange->reply;

    if (output->kind == LABELS)
        gsv_buffer_format(to, "[%zu]", n);
    else
        gsv_buffer_format(to, "[%zu,%zu]", n,
                          output->classes ? output->classes : exchange->work.columns);
}

/* Writes one output as JSON; binary data goes to `tail`. False if the request was refused: the
 * reply is then the error. */
static bool put_output(struct gsv_exchange *exchange, const struct output *output,
                       struct gsv_buffer *tail)
{
    const bool is_text = output->kind == LABELS || output->classes;
    struct gsv_buffer *to = &exchange->reply;
    const size_t before = tail->size;

    gsv_buffer_format(to,
                      "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":", output_names[output->kind],
                      is_text ? "BYTES" : "FP32");
    put_shape(exchange, output);
    if (output->binary) {
        if (!put_values(exchange, output, tail))
            return false;
        gsv_buffer_format(to, ",\"parameters\":{\"binary_data_size\":%zu}}", tail->size - before);
    } else {
        gsv_buffer_text(to, ",\"data\":[");
        if (!put_values(exchange, output, to))
            return false;
        gsv_buffer_text(to, "]}");
    }
    return true;
}

/* Completes the reply: the JSON and after it `tail`, whose position a header tells. */
static void reply_outputs(struct gsv_exchange *exchange, const struct gsv_buffer *tail)
{
    struct gsv_buffer *to = &exchange->reply;
    const char *json_size;

    to->failed |= tail->failed;
    if (tail->size == 0 || to->failed) {
        gsv_reply_json(exchange);
        return;
    }
    json_size = gsv_exchange_format(exchange, "%zu", to->size);
    if (!json_size)
        return;
    gsv_buffer_add(to, tail->bytes, tail->size);
    gsv_add_header(exchange, "Inference-Header-Content-Length", json_size);
    gsv_reply(exchange, 200, "application/octet-stream");
}

static void write_outputs(struct gsv_exchange *exchange)
{
    const struct infer *infer = exchange->state;
    struct gsv_buffer *to = &exchange->reply, tail = { 0 };
    bool good = true;

    gsv_buffer_text(to, "{");
    if (infer->id) {
        gsv_buffer_text(to, "\"id\":");
        gsv_put_text(to, infer->id);
        gsv_buffer_text(to, ",");
    }
    gsv_buffer_text(to, "\"model_name\":");
    gsv_put_text(to, exchange->served->name);
    gsv_buffer_text(to, ",\"model_version\":\"1\",\"outputs\":[");
    for (size_t i = 0; i < infer->n_outputs && good; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        good = put_output(exchange, &infer->outputs[i], &tail);
    }
    if (good) {
        gsv_buffer_text(to, "]}");
        reply_outputs(exchange, &tail);
    }
    gsv_buffer_reset(&tail);
}

/* -------------------------------------------------------------------------------------- request */

static bool read_output(struct gsv_exchange *exchange, const json_t *given, bool binary,
                        struct infer *infer)
{
    const char *name = json_string_value(json_object_get(given, "name"));
    const json_t *parameters = json_object_get(given, "parameters");
    struct output *output = &infer->outputs[infer->n_outputs];
    int64_t classes = 0;
    size_t kind = 0;

    while (kind < N_OUTPUTS && (!name || strcmp(name, output_names[kind]) != 0))
        kind++;
    if (kind == N_OUTPUTS)
        return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                          "unknown output \"%.40s\"; the outputs are embedding, scores and labels",
                          name ? name : "");
    for (size_t i = 0; i < infer->n_outputs; i++) {
        if ((size_t)infer->outputs[i].kind == kind)
            return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                              "output \"%s\" is requested twice", name);
    }
    output->kind = (enum output_kind)kind;
    output->binary = binary;
    if (!gsv_kserve_check_shared(exchange, parameters, "output", name) ||
        !gsv_member_flag(exchange, parameters, "binary_data", &output->binary) ||
        !gsv_member_count(exchange, parameters, "classification", 0, INT32_MAX, &classes))
        return false;
    if (classes > 0 && kind != SCORES)
        return gsv_refuse(exchange, GSV_P_INVALID, "classification",
                          "`classification` is valid only for the output scores");
    output->classes =
        (size_t)classes < exchange->served->n_labels ? (size_t)classes : exchange->served->n_labels;
    infer->n_outputs++;
    return true;
}

static bool read_outputs(struct gsv_exchange *exchange, const json_t *body, struct infer *infer)
{
    const json_t *list = json_object_get(body, "outputs");
    const bool classifies = exchange->served->n_labels > 0;
    bool binary = false;
    json_t *given;
    size_t i;

    if (!gsv_member_flag(exchange, json_object_get(body, "parameters"), "binary_data_output",
                         &binary))
        return false;
    if (list && !json_is_array(list) && !json_is_null(list))
        return gsv_refuse(exchange, GSV_P_INVALID, "outputs", "`outputs` is not a list");
    json_array_foreach(list, i, given)
    {
        if (!read_output(exchange, given, binary, infer))
            return false;
    }
    if (infer->n_outputs == 0) {
        infer->outputs[0] = (struct output){ classifies ? SCORES : EMBEDDING, binary, 0 };
        infer->outputs[1] = (struct output){ LABELS, binary, 0 };
        infer->n_outputs = classifies ? 2 : 1;
    }
    for (i = 1; i < infer->n_outputs; i++) {
        if ((infer->outputs[i].kind == EMBEDDING) != (infer->outputs[0].kind == EMBEDDING))
            return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                              "one request cannot return both the embedding and scores or labels: "
                              "send two requests");
    }
    return infer->outputs[0].kind == EMBEDDING ? gsv_require_embedder(exchange)
                                               : gsv_require_classifier(exchange);
}

/* Sequences are not supported. 0 is accepted: Triton's value for no sequence. */
static bool check_sequence(struct gsv_exchange *exchange, const json_t *parameters)
{
    const json_t *id = json_object_get(parameters, "sequence_id");

    return !id || json_is_null(id) || (json_is_integer(id) && json_integer_value(id) == 0) ||
           gsv_refuse(exchange, GSV_P_INVALID, "sequence_id",
                      "`sequence_id` is not supported: models keep no state between requests");
}

/* `timeout` is in microseconds. Priority 1 is the highest and 0 the default, as in Triton.
 * `truncate` is an extension. */
static bool read_parameters(struct gsv_exchange *exchange, const json_t *body, gpuserve_job *job)
{
    const json_t *parameters = json_object_get(body, "parameters");
    int64_t timeout_us = 0, priority = 0;
    uint64_t deadline_ns;

    if (!check_sequence(exchange, parameters) ||
        !gsv_option_truncation(exchange, parameters, job) ||
        !gsv_member_count(exchange, parameters, "timeout", 0, INT64_MAX / 2000, &timeout_us) ||
        !gsv_member_count(exchange, parameters, "priority", 0, INT32_MAX, &priority))
        return false;
    deadline_ns = exchange->begun_ns + (uint64_t)timeout_us * 1000;
    if (timeout_us > 0 && (exchange->deadline_ns == 0 || deadline_ns < exchange->deadline_ns))
        exchange->deadline_ns = deadline_ns;
    if (priority > 0)
        job->priority = priority == 1 ? GPUSERVE_PRIORITY_HIGH : GPUSERVE_PRIORITY_LOW;
    if (priority == 2)
        job->priority = GPUSERVE_PRIORITY_NORMAL;
    return true;
}

bool gsv_kserve_refuse_binary(struct gsv_exchange *exchange)
{
    return gsv_refuse(exchange, GSV_P_INVALID, "binary_data_size",
                      "`binary_data_size`: binary tensors need the header "
                      "Inference-Header-Content-Length with the length of the JSON before them");
}

/* Finds the size of the JSON part. */
static bool split_body(struct gsv_exchange *exchange, size_t *json_size)
{
    const char *given = gsv_header(exchange, "Inference-Header-Content-Length");
    char *end;

    *json_size = exchange->body.size;
    if (!given)
        return true;
    /* strtoull() would accept a sign. */
    if (given[0] < '0' || strlen(given) > 18 ||
        (*json_size = strtoull(given, &end, 10)) > exchange->body.size || *end)
        return gsv_refuse(exchange, GSV_P_INVALID, NULL,
                          "Inference-Header-Content-Length is %.20s, the body has %zu bytes", given,
                          exchange->body.size);
    return true;
}

static bool is_raw(const struct gsv_exchange *exchange, size_t json_size)
{
    return json_size == 0 && gsv_header(exchange, "Inference-Header-Content-Length");
}

/* Parses the JSON part. If binary data without the length header broke it, the error says so. */
static bool parse_head(struct gsv_exchange *exchange, size_t size)
{
    static const char key[] = "\"binary_data_size\"";
    static const char of_raw[] = "{\"parameters\":{\"binary_data_output\":true}}";
    const char *bytes = exchange->body.bytes;

    if (is_raw(exchange, size))
        return gsv_request_parse(exchange, of_raw, sizeof(of_raw) - 1);
    if (gsv_request_parse(exchange, bytes, size))
        return true;
    if (size > 0 && !gsv_header(exchange, "Inference-Header-Content-Length") &&
        memmem(bytes, size, key, sizeof(key) - 1))
        gsv_kserve_refuse_binary(exchange);
    return false;
}

static bool read_inputs(struct gsv_exchange *exchange, size_t json_size, struct gsv_inputs *inputs)
{
    const struct gsv_buffer *body = &exchange->body;

    if (is_raw(exchange, json_size))
        return gsv_kserve_raw_input(exchange, body->bytes, body->size, inputs);
    return gsv_kserve_inputs(exchange, json_object_get(exchange->json, "inputs"),
                             body->bytes + json_size, body->size - json_size, inputs);
}

void gsv_kserve_infer(struct gsv_exchange *exchange)
{
    struct infer *infer = gsv_exchange_alloc(exchange, 1, sizeof(*infer));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    size_t json_size;

    exchange->state = infer;
    if (!infer || !gsv_kserve_model(exchange) || !split_body(exchange, &json_size) ||
        !parse_head(exchange, json_size) ||
        !gsv_member_text(exchange, exchange->json, "id", &infer->id) ||
        !read_outputs(exchange, exchange->json, infer) ||
        !read_parameters(exchange, exchange->json, &job) ||
        !read_inputs(exchange, json_size, &inputs))
        return;
    job.task = infer->outputs[0].kind == EMBEDDING ? GPUSERVE_TASK_EMBED : GPUSERVE_TASK_CLASSIFY;
    gsv_call_start(exchange, &job, &inputs, write_outputs);
}
