/*
 * entities.c - token classification requests: parse, run, group, write.
 *
 *   texts -> tokens -> job -> scores of each token -> gpuserve_entities() -> JSON
 *
 * Positions in the reply count characters, not bytes. Runs as steps of the exchange.
 */
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

#include <string.h>

enum {
    WORD_BYTES = 512,
    MAX_IGNORED = 1024, /* labels; each is compared with the label of each entity */
};

/* The request's parameters and its original texts. */
struct entities_question {
    struct gsv_entity_inputs texts;
    const json_t *ignored;          /* labels; NULL: "O" */
    struct gsv_token_spans *tokens; /* [n] */
    uint32_t aggregation;
};

/* Writer state of one text. */
struct http_entities_reading {
    struct gsv_exchange *exchange;
    const struct entities_question *question;
    const char *text;
    size_t size;
    const struct gsv_token_spans *tokens;
    struct gsv_text_position position;
    size_t n_written;
};

/* ------------------------------------------------------------------------------------- entities */

static bool is_ignored(const struct entities_question *question, const char *name)
{
    const json_t *ignored = question->ignored;

    if (!ignored)
        return strcmp(name, "O") == 0;
    for (size_t i = 0; i < json_array_size(ignored); i++) {
        if (strcmp(json_string_value(json_array_get(ignored, i)), name) == 0)
            return true;
    }
    return false;
}

static void put_word(const struct http_entities_reading *r, const gpuserve_entity *entity)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st = GPUSERVE_E_TOO_LARGE;
    size_t capacity = WORD_BYTES;
    struct gsv_buffer word = { 0 };

    while (st == GPUSERVE_E_TOO_LARGE) {
        char *at = gsv_buffer_reserve(&word, capacity);

        if (!at)
            break;
        st = gpuserve_entity_word(r->exchange->served->model, entity, r->question->aggregation,
                                  r->text, r->size, r->tokens->ids, r->tokens->spans, r->tokens->n,
                                  at, capacity, &capacity, &error);
        if (st == GPUSERVE_OK)
            gsv_put_text(&r->exchange->reply, at);
    }
    r->exchange->reply.failed |= st != GPUSERVE_OK; /* only memory can be short */
    gsv_buffer_reset(&word);
}

static bool put(struct http_entities_reading *r, const gpuserve_entity *entity)
{
    const uint32_t aggregation = r->question->aggregation;
    const bool grouped = aggregation != GPUSERVE_AGGREGATION_NONE;
    const char *name = gpuserve_entity_name(r->exchange->served->model, entity, aggregation);
    const gpuserve_span *spans = r->tokens->spans;
    struct gsv_buffer *to = &r->exchange->reply;

    if (!name)
        return gsv_refuse_swapped(r->exchange);
    if (is_ignored(r->question, name))
        return true;
    gsv_buffer_text(to, r->n_written++ > 0 ? ",{" : "{");
    gsv_buffer_text(to, grouped ? "\"entity_group\":" : "\"entity\":");
    gsv_put_text(to, name);
    gsv_buffer_text(to, ",\"score\":");
    gsv_put_float(to, entity->score);
    if (!grouped)
        gsv_buffer_format(to, ",\"index\":%u", entity->first);
    gsv_buffer_text(to, ",\"word\":");
    put_word(r, entity);
    gsv_buffer_format(to, ",\"start\":%zu",
                      gsv_characters_to(r->text, spans[entity->first].begin, &r->position));
    gsv_buffer_format(to, ",\"end\":%zu}",
                      gsv_characters_to(r->text, spans[entity->last].end, &r->position));
    return true;
}

/* False if the request was refused: the reply is then the error. */
static bool put_entities(struct http_entities_reading *r, const float *scores)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity *found = gsv_exchange_alloc(r->exchange, r->tokens->n, sizeof(*found));
    size_t n = 0;
    gpuserve_status st;

    if (!found)
        return false;
    st = gpuserve_entities(r->exchange->served->model, scores, r->exchange->work.columns, r->text,
                           r->size, r->tokens->ids, r->tokens->spans, r->tokens->n,
                           r->question->aggregation, found, &n, &error);
    if (st == GPUSERVE_E_MISMATCH)
        return gsv_refuse_swapped(r->exchange);
    if (st != GPUSERVE_OK)
        return gsv_refuse_error(r->exchange, st, &error);
    gsv_buffer_text(&r->exchange->reply, "[");
    for (size_t i = 0; i < n; i++) {
        if (!put(r, &found[i]))
            return false;
    }
    gsv_buffer_text(&r->exchange->reply, "]");
    return true;
}

/* ------------------------------------------------------------------------------- request, reply */

static void write_entities(struct gsv_exchange *exchange)
{
    const struct entities_question *question = exchange->state;
    const struct gsv_call *work = &exchange->work;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, question->texts.is_list ? "[" : "");
    for (size_t i = 0; i < work->job.n_items; i++) {
        const size_t first = work->job.token_offsets[i];
        struct http_entities_reading r = { exchange, question, .text = question->texts.texts[i],
                                           .size = question->texts.sizes[i],
                                           .tokens = &question->tokens[i] };

        if (r.tokens->n != work->job.token_offsets[i + 1] - first) {
            gsv_refuse(exchange, GSV_P_INTERNAL, NULL,
                       "text %zu has %zu tokens, but %zu rows of scores", i, r.tokens->n,
                       work->job.token_offsets[i + 1] - first);
            return;
        }
        gsv_buffer_text(to, i > 0 ? "," : "");
        if (!put_entities(&r, work->job.output + first * work->columns))
            return;
    }
    gsv_buffer_text(to, question->texts.is_list ? "]" : "");
    gsv_reply_json(exchange);
}

static bool read_ignored(struct gsv_exchange *exchange, const json_t *parameters,
                         struct entities_question *question)
{
    const json_t *ignored = gsv_member_given(parameters, "ignore_labels");
    const json_t *label;
    size_t i;

    if (!ignored)
        return true;
    if (!json_is_array(ignored))
        return gsv_refuse(exchange, GSV_P_INVALID, "ignore_labels",
                          "`ignore_labels` is not a list of labels");
    if (json_array_size(ignored) > MAX_IGNORED)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, "ignore_labels",
                          "`ignore_labels` holds %zu labels, the limit is %d",
                          json_array_size(ignored), MAX_IGNORED);
    json_array_foreach(ignored, i, label)
    {
        if (!json_is_string(label))
            return gsv_refuse(exchange, GSV_P_INVALID, "ignore_labels",
                              "`ignore_labels`: item %zu is not a string", i);
    }
    question->ignored = ignored;
    return true;
}

/* Tokenizes before the job: it fixes the number of output rows and gives the reply's spans. */
static bool tokenize(struct gsv_exchange *exchange, struct gsv_inputs *inputs, uint32_t truncation,
                     struct entities_question *question)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;

    options.max_tokens = (uint32_t)exchange->served->max_tokens;
    options.truncation = truncation;
    question->tokens = gsv_exchange_alloc(exchange, inputs->n, sizeof(*question->tokens));
    inputs->offsets = gsv_exchange_alloc(exchange, inputs->n + 1, sizeof(*inputs->offsets));
    if (!question->tokens || !inputs->offsets)
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        if (!gsv_tokens_of_text(exchange, inputs->texts[i], inputs->sizes[i], &options,
                                GSV_MAX_TOKENS, &question->tokens[i]))
            return false;
        gsv_note_cut(exchange, inputs->texts[i], inputs->sizes[i], question->tokens[i].n,
                     options.max_tokens);
        inputs->offsets[i + 1] = inputs->offsets[i] + question->tokens[i].n;
    }
    inputs->ids = gsv_exchange_alloc(exchange, inputs->offsets[inputs->n], sizeof(*inputs->ids));
    for (size_t i = 0; i < inputs->n && inputs->ids; i++)
        memcpy(inputs->ids + inputs->offsets[i], question->tokens[i].ids,
               question->tokens[i].n * sizeof(*inputs->ids));
    inputs->texts = NULL;
    inputs->sizes = NULL;
    return inputs->ids != NULL;
}

void gsv_entities(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "aggregation_strategy", "ignore_labels", "truncate",
                                         "truncation_direction", NULL };
    static const char *const strategies[] = {
        "simple", "none", "first", "average", "max", NULL
    }; /* gpuserve_aggregation */
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    struct entities_question *question = gsv_exchange_alloc(exchange, 1, sizeof(*question));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    exchange->state = question;
    if (!question || !gsv_entity_texts_read(exchange, known, &question->texts, &job, &inputs) ||
        !gsv_member_choice(exchange, parameters, "aggregation_strategy", strategies,
                           &question->aggregation) ||
        !read_ignored(exchange, parameters, question) ||
        !tokenize(exchange, &inputs, job.truncation, question))
        return;
    job.task = GPUSERVE_TASK_TOKEN_LABELS;
    gsv_call_start(exchange, &job, &inputs, write_entities);
}

/*
 * Reads the fields that both kinds of entity requests have.
 */

bool gsv_entity_texts_read(struct gsv_exchange *exchange, const char *const *known,
                           struct gsv_entity_inputs *texts, gpuserve_job *job,
                           struct gsv_inputs *inputs)
{
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    const json_t *given = json_object_get(exchange->json, "inputs");

    if (!gsv_option_known(exchange, parameters, "parameters", known) ||
        !gsv_option_truncation(exchange, parameters, job) ||
        !gsv_inputs_read(exchange, given, "inputs", GSV_INPUTS_NO_IDS, NULL, inputs))
        return false;
    *texts = (struct gsv_entity_inputs){ inputs->texts, inputs->sizes, json_is_array(given) };
    return true;
}

bool gsv_refuse_swapped(struct gsv_exchange *exchange)
{
    return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL,
                      "the model was swapped for another one during the request");
}
