/*
 * entities.c - see entities.h.
 *
 *   scores of each token -> its best label -> "simple": neighbours of one kind are one entity
 *
 * As transformers' pipeline does it: a label "B-KIND" begins an entity, "I-KIND" and a plain "KIND"
 * go on with one of the same kind; an entity's score is the mean of its tokens'. Places are counted
 * in characters.
 */
#include "lib/http/entities.h"

#include "lib/http/inputs.h"
#include "lib/http/models.h"
#include "lib/http/options.h"
#include "lib/http/request.h"
#include "lib/http/tokens.h"
#include "lib/http/work.h"

#include <string.h>

enum { STRATEGY_NONE, STRATEGY_SIMPLE };
enum { WORD_BYTES = 512 };

/* What is asked, and the texts as they were given. */
struct question {
    const char **texts;        /* [n] */
    const json_t *ignored;     /* labels; NULL: "O" */
    struct gsv_tokens *tokens; /* [n] */
    uint32_t strategy;
    bool is_list;
};

/* One text with its tokens, while its entities are written. */
struct reading {
    struct gsv_exchange *exchange;
    const struct question *question;
    const char *text;
    const struct gsv_tokens *tokens;
    const float *scores; /* [tokens->n, n_token_labels] */
    struct gsv_place place;
    size_t n_written;
};

struct entity {
    size_t first, last; /* tokens */
    size_t n;           /* 0: none has begun */
    double score;       /* the sum of n */
    const char *label;  /* of the first */
};

/* --------------------------------------------------------------------------------------- labels */

static size_t best_label(const struct reading *r, size_t token)
{
    const size_t n = r->exchange->served->n_token_labels;
    const float *row = r->scores + token * n;
    size_t best = 0;

    for (size_t i = 1; i < n; i++) {
        if (row[i] > row[best])
            best = i;
    }
    return best;
}

static bool begins(const char *label)
{
    return strncmp(label, "B-", 2) == 0;
}

/* "B-PER" and "I-PER" are of the kind "PER". */
static const char *kind_of(const char *label)
{
    return begins(label) || strncmp(label, "I-", 2) == 0 ? label + 2 : label;
}

/* What a group is called: all after the first dash, whatever is before it. */
static const char *group_of(const char *label)
{
    const char *dash = strchr(label, '-');

    return dash ? dash + 1 : label;
}

static bool is_ignored(const struct question *question, const char *name)
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

/* ---------------------------------------------------------------------------------------- words */

static bool decode(const struct reading *r, size_t first, size_t n, char *to, size_t room)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t size = 0;

    return gpuserve_detokenize(r->exchange->served->model, r->tokens->ids + first, n, 0, to, room,
                               &size, &error) == GPUSERVE_OK;
}

/* As the decoder of WordPiece joins tokens: no blank before these. */
static bool has_no_blank(const char *piece, size_t size)
{
    static const char *const starts[] = { ".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re" };

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        const size_t n = strlen(starts[i]);

        if (size >= n && memcmp(piece, starts[i], n) == 0)
            return true;
    }
    return false;
}

/* A token that is in no vocabulary is told by the text's own letters. */
static void add_piece(const struct reading *r, size_t token, bool joins, struct gsv_buffer *to)
{
    const gpuserve_span span = r->tokens->spans[token];
    char piece[WORD_BYTES];
    const bool known = decode(r, token, 1, piece, sizeof(piece)) && strcmp(piece, "[UNK]") != 0;
    const char *letters = known ? piece : r->text + span.begin;
    size_t size = known ? strlen(piece) : span.end - span.begin;

    if (joins && known && strncmp(piece, "##", 2) == 0) {
        letters += 2;
        size -= 2;
    } else if (joins && !has_no_blank(letters, size)) {
        gsv_buffer_text(to, " ");
    }
    gsv_buffer_add(to, letters, size);
}

static void put_word(const struct reading *r, size_t first, size_t last)
{
    struct gsv_buffer word = { 0 };
    char whole[WORD_BYTES];

    if (decode(r, first, last - first + 1, whole, sizeof(whole)) && !strstr(whole, "[UNK]")) {
        gsv_put_text(&r->exchange->reply, whole);
        return;
    }
    for (size_t i = first; i <= last; i++)
        add_piece(r, i, i > first, &word);
    gsv_put_bytes(&r->exchange->reply, word.bytes ? word.bytes : "", word.size);
    r->exchange->reply.failed |= word.failed;
    gsv_buffer_reset(&word);
}

/* ------------------------------------------------------------------------------------- entities */

static void put(struct reading *r, const struct entity *entity)
{
    const bool grouped = r->question->strategy == STRATEGY_SIMPLE;
    const char *name;
    const gpuserve_span *spans = r->tokens->spans;
    struct gsv_buffer *to = &r->exchange->reply;

    if (entity->n == 0)
        return;
    name = grouped ? group_of(entity->label) : entity->label;
    if (is_ignored(r->question, name))
        return;
    gsv_buffer_text(to, r->n_written++ > 0 ? ",{" : "{");
    gsv_buffer_text(to, grouped ? "\"entity_group\":" : "\"entity\":");
    gsv_put_text(to, name);
    gsv_buffer_text(to, ",\"score\":");
    gsv_put_float(to, (float)(entity->score / (double)entity->n));
    if (!grouped)
        gsv_buffer_format(to, ",\"index\":%zu", entity->first);
    gsv_buffer_text(to, ",\"word\":");
    put_word(r, entity->first, entity->last);
    gsv_buffer_format(to, ",\"start\":%zu",
                      gsv_characters_to(r->text, spans[entity->first].begin, &r->place));
    gsv_buffer_format(to, ",\"end\":%zu}",
                      gsv_characters_to(r->text, spans[entity->last].end, &r->place));
}

static bool goes_on(const struct reading *r, const struct entity *entity, const char *before,
                    const char *label)
{
    return r->question->strategy == STRATEGY_SIMPLE && entity->n > 0 && !begins(label) &&
           strcmp(kind_of(before), kind_of(label)) == 0;
}

static void put_entities(struct reading *r)
{
    const struct gsv_served *served = r->exchange->served;
    struct entity entity = { 0 };
    const char *before = "";

    gsv_buffer_text(&r->exchange->reply, "[");
    for (size_t i = 0; i < r->tokens->n; i++) {
        const size_t best = best_label(r, i);
        const char *label = gpuserve_model_label(served->model, best);

        if (gsv_is_special(r->tokens->spans[i]))
            continue;
        if (!goes_on(r, &entity, before, label)) {
            put(r, &entity);
            entity = (struct entity){ .first = i, .label = label };
        }
        entity.last = i;
        entity.n++;
        entity.score += (double)r->scores[i * served->n_token_labels + best];
        before = label;
    }
    put(r, &entity);
    gsv_buffer_text(&r->exchange->reply, "]");
}

/* ----------------------------------------------------------------------------- question, answer */

static void write_entities(struct gsv_exchange *exchange)
{
    const struct question *question = exchange->state;
    const struct gsv_work *work = &exchange->work;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, question->is_list ? "[" : "");
    for (size_t i = 0; i < work->job.n_items; i++) {
        const size_t first = work->job.token_offsets[i];
        struct reading r = { exchange, question, .text = question->texts[i],
                             .tokens = &question->tokens[i],
                             .scores = work->job.output + first * work->columns };

        if (r.tokens->n != work->job.token_offsets[i + 1] - first) {
            gsv_refuse(exchange, GSV_P_INTERNAL, NULL, "text %zu has %zu tokens and %zu rows", i,
                       r.tokens->n, work->job.token_offsets[i + 1] - first);
            return;
        }
        gsv_buffer_text(to, i > 0 ? "," : "");
        put_entities(&r);
    }
    gsv_buffer_text(to, question->is_list ? "]" : "");
    gsv_reply_json(exchange);
}

static bool read_ignored(struct gsv_exchange *exchange, const json_t *parameters,
                         struct question *question)
{
    const json_t *ignored = json_object_get(parameters, "ignore_labels");
    const json_t *label;
    size_t i;

    if (!ignored || json_is_null(ignored))
        return true;
    if (!json_is_array(ignored))
        return gsv_refuse(exchange, GSV_P_INVALID, "ignore_labels",
                          "`ignore_labels` is no list of labels");
    json_array_foreach(ignored, i, label)
    {
        if (!json_is_string(label))
            return gsv_refuse(exchange, GSV_P_INVALID, "ignore_labels",
                              "`ignore_labels`: item %zu is no text", i);
    }
    question->ignored = ignored;
    return true;
}

/* Ids for the job, since the number of rows is known before only when they are, and the places in
 * the texts for the answer. */
static bool tokenize(struct gsv_exchange *exchange, struct gsv_inputs *inputs, uint32_t truncation,
                     struct question *question)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;

    options.max_tokens = (uint32_t)exchange->served->max_tokens;
    options.truncation = truncation;
    question->tokens = gsv_keep(exchange, inputs->n, sizeof(*question->tokens));
    inputs->offsets = gsv_keep(exchange, inputs->n + 1, sizeof(*inputs->offsets));
    if (!question->tokens || !inputs->offsets)
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        if (!gsv_tokens_of_text(exchange, inputs->texts[i], inputs->sizes[i], &options,
                                &question->tokens[i]))
            return false;
        gsv_note_cut(exchange, inputs->texts[i], inputs->sizes[i], question->tokens[i].n);
        inputs->offsets[i + 1] = inputs->offsets[i] + question->tokens[i].n;
    }
    inputs->ids = gsv_keep(exchange, inputs->offsets[inputs->n], sizeof(*inputs->ids));
    for (size_t i = 0; i < inputs->n && inputs->ids; i++)
        memcpy(inputs->ids + inputs->offsets[i], question->tokens[i].ids,
               question->tokens[i].n * sizeof(*inputs->ids));
    inputs->texts = NULL;
    inputs->sizes = NULL;
    return inputs->ids != NULL;
}

void gsv_entities(struct gsv_exchange *exchange)
{
    static const char *const strategies[] = { "none", "simple", NULL };
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    const json_t *given = json_object_get(exchange->json, "inputs");
    struct question *question = gsv_keep(exchange, 1, sizeof(*question));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!question)
        return;
    exchange->state = question;
    question->strategy = STRATEGY_SIMPLE;
    question->is_list = json_is_array(given);
    if (!gsv_member_choice(exchange, parameters, "aggregation_strategy", strategies,
                           &question->strategy) ||
        !read_ignored(exchange, parameters, question) ||
        !gsv_option_truncation(exchange, parameters, &job) ||
        !gsv_inputs_read(exchange, given, "inputs", GSV_INPUTS_NO_IDS, NULL, &inputs))
        return;
    question->texts = inputs.texts;
    if (!tokenize(exchange, &inputs, job.truncation, question))
        return;
    job.task = GPUSERVE_TASK_TOKEN_LABELS;
    gsv_work_start(exchange, &job, &inputs, write_entities);
}
