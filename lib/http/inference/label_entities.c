/*
 * label_entities.c - named entities of labels that the request gives: parse, run, decode, write.
 *
 *   texts, labels -> query -> job -> token vectors -> query -> JSON
 *
 * The reply is that of token classification (entities.c): positions count characters, and `word` is
 * the entity's part of the text. Runs as steps of the exchange; the query is freed with it.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

#include <string.h>

/* The request's texts and the names of its labels. */
struct label_question {
    struct gsv_entity_inputs texts;
    const char **labels;
    size_t n_labels;
    size_t *label_offsets; /* [n + 1], or NULL: all labels for every text */
};

/* ------------------------------------------------------------------------------------- options */

static bool read_threshold(struct gsv_exchange *exchange, const json_t *parameters,
                           gpuserve_entity_request *request)
{
    const json_t *given = gsv_member_given(parameters, "threshold");

    if (!given)
        return true;
    request->threshold = (float)json_number_value(given);
    return (json_is_number(given) && request->threshold > 0.0f && request->threshold <= 1.0f) ||
           gsv_refuse(exchange, GSV_P_INVALID, "threshold",
                      "`threshold` is not a number above 0 and at most 1");
}

/* Append the strings of a list to question->labels. */
static bool add_labels(struct gsv_exchange *exchange, const json_t *list,
                       struct label_question *question)
{
    const json_t *label;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "labels",
                          "`labels` is not a list of strings, or of such a list for each text");
    json_array_foreach(list, i, label)
    {
        const char *text = json_string_value(label);

        if (!text || strlen(text) != json_string_length(label))
            return gsv_refuse(exchange, GSV_P_INVALID, "labels",
                              "`labels`: item %zu is not a string, or has a NUL character", i);
        question->labels[question->n_labels++] = text;
    }
    return true;
}

/* One list for all texts, or one for each. */
static bool read_labels(struct gsv_exchange *exchange, const json_t *parameters, size_t n_texts,
                        struct label_question *question)
{
    const json_t *labels = gsv_member_given(parameters, "labels");
    const bool by_text = json_is_array(json_array_get(labels, 0));
    size_t n = json_array_size(labels), i;
    const json_t *list;

    if (!labels)
        return gsv_refuse(exchange, GSV_P_INVALID, "labels",
                          "`parameters.labels` is missing: model \"%s\" finds entities of the "
                          "labels that a request gives",
                          exchange->served->name);
    if (by_text && n != n_texts)
        return gsv_refuse(exchange, GSV_P_INVALID, "labels",
                          "`labels` has %zu lists, but there are %zu texts", n, n_texts);
    for (i = 0; by_text && i < n_texts; i++)
        n += json_array_size(json_array_get(labels, i));
    question->labels = gsv_exchange_alloc(exchange, n + 1, sizeof(*question->labels));
    if (!question->labels)
        return false;
    if (!by_text)
        return add_labels(exchange, labels, question);
    question->label_offsets = gsv_exchange_alloc(exchange, n_texts + 1, sizeof(size_t));
    if (!question->label_offsets)
        return false;
    json_array_foreach(labels, i, list)
    {
        if (!add_labels(exchange, list, question))
            return false;
        question->label_offsets[i + 1] = question->n_labels;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- reply */

static void put_text(struct gsv_exchange *exchange, size_t i)
{
    const struct label_question *question = exchange->state;
    const size_t first_label = question->label_offsets ? question->label_offsets[i] : 0;
    struct gsv_text_position position = { 0 };
    struct gsv_buffer *to = &exchange->reply;
    size_t n;
    const gpuserve_found_entity *found =
        gpuserve_entity_query_found(exchange->entities, i, &n, NULL);

    gsv_buffer_text(to, "[");
    for (size_t j = 0; j < n; j++) {
        const char *text = question->texts.texts[i];

        gsv_buffer_text(to, j > 0 ? ",{\"entity_group\":" : "{\"entity_group\":");
        gsv_put_text(to, question->labels[first_label + found[j].label]);
        gsv_buffer_text(to, ",\"score\":");
        gsv_put_float(to, found[j].score);
        gsv_buffer_text(to, ",\"word\":");
        gsv_put_bytes(to, text + found[j].begin, found[j].end - found[j].begin);
        gsv_buffer_format(to, ",\"start\":%zu", gsv_characters_to(text, found[j].begin, &position));
        gsv_buffer_format(to, ",\"end\":%zu}", gsv_characters_to(text, found[j].end, &position));
    }
    gsv_buffer_text(to, "]");
}

static void write_found(struct gsv_exchange *exchange)
{
    const struct label_question *question = exchange->state;
    const struct gsv_call *work = &exchange->work;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_buffer *to = &exchange->reply;
    const gpuserve_status st = gpuserve_entity_query_decode(exchange->entities, work->job.output,
                                                            work->job.output_capacity, &error);

    if (st == GPUSERVE_E_MISMATCH) {
        gsv_refuse_swapped(exchange);
        return;
    }
    if (st != GPUSERVE_OK) {
        gsv_refuse_error(exchange, st, &error);
        return;
    }
    gsv_buffer_text(to, question->texts.is_list ? "[" : "");
    for (size_t i = 0; i < work->job.n_items; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        put_text(exchange, i);
    }
    gsv_buffer_text(to, question->texts.is_list ? "]" : "");
    gsv_reply_json(exchange);
}

/* ------------------------------------------------------------------------------------- request */

/* Texts of a JSON body are valid UTF-8, so GPUSERVE_E_INVALID refers to a label. Messages name the
 * exceeded limit of labels or words. */
static bool refuse_query(struct gsv_exchange *exchange, gpuserve_status st,
                         const gpuserve_error *error)
{
    if (st == GPUSERVE_E_INVALID)
        return gsv_refuse(exchange, GSV_P_INVALID, "labels", "`labels`: %s", error->message);
    if (st == GPUSERVE_E_TOO_LARGE)
        return gsv_refuse(exchange, GSV_P_TOO_LONG, NULL, "%s", error->message);
    return gsv_refuse_error(exchange, st, error);
}

static void start(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                  const gpuserve_entity_request *request)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    const gpuserve_status st =
        gpuserve_entity_query_create(&exchange->entities, exchange->served->model, request, &error);

    if (st != GPUSERVE_OK) {
        refuse_query(exchange, st, &error);
        return;
    }
    for (size_t i = 0; i < inputs->n; i++) {
        uint32_t truncated = 0;

        (void)gpuserve_entity_query_found(exchange->entities, i, NULL, &truncated);
        exchange->usage.n_truncated += truncated;
    }
    gpuserve_entity_query_job(exchange->entities, &job);
    inputs->texts = NULL;
    inputs->sizes = NULL;
    inputs->ids = (int32_t *)(uintptr_t)job.ids; /* borrowed, and only read */
    inputs->offsets = (size_t *)(uintptr_t)job.id_offsets;
    job.ids = NULL;
    job.id_offsets = NULL;
    gsv_call_start(exchange, &job, inputs, write_found);
}

void gsv_label_entities(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "labels",      "threshold", "nested",
                                         "multi_label", "truncate",  "truncation_direction",
                                         NULL };
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    struct label_question *question = gsv_exchange_alloc(exchange, 1, sizeof(*question));
    gpuserve_entity_request request = GPUSERVE_ENTITY_REQUEST_INIT;
    bool nested = false, multi_label = false;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    exchange->state = question;
    if (!question || !gsv_entity_texts_read(exchange, known, &question->texts, &job, &inputs) ||
        !read_threshold(exchange, parameters, &request) ||
        !gsv_member_flag(exchange, parameters, "nested", &nested) ||
        !gsv_member_flag(exchange, parameters, "multi_label", &multi_label) ||
        !read_labels(exchange, parameters, inputs.n, question))
        return;
    request.texts = inputs.texts;
    request.text_sizes = inputs.sizes;
    request.n_texts = inputs.n;
    request.labels = question->labels;
    request.n_labels = question->n_labels;
    request.label_offsets = question->label_offsets;
    request.overlap = nested ? GPUSERVE_OVERLAP_NESTED : GPUSERVE_OVERLAP_FLAT;
    request.multi_label = multi_label;
    request.truncation = job.truncation;
    start(exchange, &inputs, &request);
}
