/*
 * entities.c - token classification to named entities, as in transformers' pipeline.
 *
 *   scores per token -> units -> best label (argmax) -> adjacent units of one kind form an entity
 *
 * A unit is a token ("none", "simple") or a word with scores of its tokens ("first", "average",
 * "max"); "none" merges nothing. The caller owns scores, text and results; no state is kept between
 * calls.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/api/tokenize.h"
#include "lib/runtime/models/handle.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- labels */

static size_t best_of(const float *row, size_t n)
{
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

/* "B-PER" and "I-PER" have the kind "PER". */
static const char *kind_of(const char *label)
{
    return begins(label) || strncmp(label, "I-", 2) == 0 ? label + 2 : label;
}

GPUSERVE_API const char *gpuserve_entity_name(const gpuserve_model *model,
                                              const gpuserve_entity *entity, uint32_t aggregation)
{
    const char *label = entity ? gpuserve_model_label(model, entity->label) : NULL;
    const char *dash =
        label && aggregation != GPUSERVE_AGGREGATION_NONE ? strchr(label, '-') : NULL;

    return dash ? dash + 1 : label;
}

static bool is_special(gpuserve_span span)
{
    return span.end == 0;
}

/* ------------------------------------------------------------------------------------- units */

/* One text with its tokens and their scores, borrowed for the call. */
struct labelled_text {
    const struct gsv_tokenizer *tokenizer; /* of the aggregations of words; else NULL */
    const float *scores;
    size_t n_labels;
    const char *text;
    size_t text_size;
    const int32_t *ids;
    const gpuserve_span *spans;
    size_t n_tokens;
    uint32_t aggregation;
};

/* Tokens with one label: a token or a word. */
struct labelled_unit {
    size_t first, last, label;
    double score;
};

static size_t count_chars(const char *text, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* True if the word of the token before goes on, by the rules of transformers: a token with a prefix
 * is longer than its text. Without prefixes a word goes on unless a space begins or precedes the
 * token. An unknown token begins a word. */
static bool continues(const struct labelled_text *t, size_t token)
{
    const gpuserve_span span = t->spans[token];
    size_t size = 0;
    const char *token_text;

    if (t->ids[token] == gsv_tokenizer_unknown(t->tokenizer))
        return false;
    if (!gsv_tokenizer_has_prefix(t->tokenizer))
        return span.begin > 0 && t->text[span.begin - 1] != ' ' &&
               (span.begin == t->text_size || t->text[span.begin] != ' ');
    token_text = gsv_tokenizer_token(t->tokenizer, t->ids[token], &size);
    return !token_text || count_chars(token_text, size) !=
                              count_chars(t->text + span.begin, span.end - span.begin);
}

/* The mean score of a label over the tokens of a unit that are not special. */
static double mean_score(const struct labelled_text *t, const struct labelled_unit *unit,
                         size_t label)
{
    double sum = 0;
    size_t n = 0;

    for (size_t i = unit->first; i <= unit->last; i++) {
        if (is_special(t->spans[i]))
            continue;
        sum += (double)t->scores[i * t->n_labels + label];
        n++;
    }
    return sum / (double)n;
}

static void label_average(const struct labelled_text *t, struct labelled_unit *unit)
{
    unit->score = mean_score(t, unit, 0);
    unit->label = 0;
    for (size_t label = 1; label < t->n_labels; label++) {
        const double score = mean_score(t, unit, label);

        if (score > unit->score) {
            unit->score = score;
            unit->label = label;
        }
    }
}

/* The best label of the first token or, with MAX, of the token with the highest score. */
static void label_token(const struct labelled_text *t, struct labelled_unit *unit)
{
    const size_t last = t->aggregation == GPUSERVE_AGGREGATION_MAX ? unit->last : unit->first;
    bool found = false;

    for (size_t i = unit->first; i <= last; i++) {
        const float *row = t->scores + i * t->n_labels;
        const size_t best = best_of(row, t->n_labels);

        if (is_special(t->spans[i]) || (found && (double)row[best] <= unit->score))
            continue;
        unit->label = best;
        unit->score = (double)row[best];
        found = true;
    }
}

/* Find the unit at or after token `at`; false if only special tokens are left. */
static bool next_unit(const struct labelled_text *t, size_t at, struct labelled_unit *unit)
{
    while (at < t->n_tokens && is_special(t->spans[at]))
        at++;
    if (at == t->n_tokens)
        return false;
    unit->first = unit->last = at;
    for (size_t i = at + 1; t->tokenizer && i < t->n_tokens; i++) {
        if (is_special(t->spans[i]))
            continue;
        if (!continues(t, i))
            break;
        unit->last = i;
    }
    if (t->aggregation == GPUSERVE_AGGREGATION_AVERAGE)
        label_average(t, unit);
    else
        label_token(t, unit);
    return true;
}

/* ---------------------------------------------------------------------------------- entities */

static size_t merge_units(const struct labelled_text *t, const char *const *labels,
                          gpuserve_entity *entities)
{
    const char *before = NULL; /* label of the previous unit; NULL: no entity yet */
    gpuserve_entity *entity = entities;
    struct labelled_unit unit = { 0 };
    double sum = 0;
    size_t n = 0; /* units in the entity */

    for (size_t at = 0; next_unit(t, at, &unit); at = unit.last + 1) {
        const char *label = labels[unit.label];
        const bool goes_on = t->aggregation != GPUSERVE_AGGREGATION_NONE && before &&
                             !begins(label) && strcmp(kind_of(before), kind_of(label)) == 0;

        entity += before && !goes_on;
        if (!goes_on) {
            *entity =
                (gpuserve_entity){ .first = (uint32_t)unit.first, .label = (uint32_t)unit.label };
            sum = 0;
            n = 0;
        }
        sum += unit.score;
        entity->last = (uint32_t)unit.last;
        entity->score = (float)(sum / (double)++n);
        before = label;
    }
    return before ? (size_t)(entity - entities) + 1 : 0;
}

/* Check what the aggregations of words read: tokens within the text. */
static gpuserve_status check_words(const struct labelled_text *t, gpuserve_error *error)
{
    if (!t->text || !t->ids)
        return gsv_fail(error, GPUSERVE_E_INVALID, "text or ids is NULL");
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (t->spans[i].begin > t->spans[i].end || t->spans[i].end > t->text_size)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "token %zu spans bytes %u to %u of a text of %zu bytes", i,
                            t->spans[i].begin, t->spans[i].end, t->text_size);
    }
    return GPUSERVE_OK;
}

static gpuserve_status check_entities(const struct labelled_text *t, size_t n_known,
                                      const gpuserve_entity *entities, const size_t *n_entities,
                                      gpuserve_error *error)
{
    if (!n_entities || (t->n_tokens > 0 && (!t->scores || !t->spans || !entities)))
        return gsv_fail(error, GPUSERVE_E_INVALID, "scores, spans, entities or n_entities is NULL");
    if (t->aggregation > GPUSERVE_AGGREGATION_MAX)
        return gsv_fail(error, GPUSERVE_E_INVALID, "aggregation is %u, outside 0 to %d",
                        t->aggregation, GPUSERVE_AGGREGATION_MAX);
    if (n_known == 0 || t->n_tokens > UINT32_MAX)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the model has %zu labels (min 1), the text %zu tokens (max 4294967295)",
                        n_known, t->n_tokens);
    if (t->n_labels != n_known)
        return gsv_fail(error, GPUSERVE_E_MISMATCH,
                        "the scores have %zu labels a token, the model has %zu labels", t->n_labels,
                        n_known);
    return t->n_tokens > 0 && t->aggregation > GPUSERVE_AGGREGATION_NONE ? check_words(t, error)
                                                                         : GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_entities(gpuserve_model *handle, const float *scores,
                                               size_t n_labels, const char *text, size_t text_size,
                                               const int32_t *ids, const gpuserve_span *spans,
                                               size_t n_tokens, uint32_t aggregation,
                                               gpuserve_entity *entities, size_t *n_entities,
                                               gpuserve_error *error)
{
    /* Loaded once: a swap during the call may change the number of labels. */
    const struct gsv_model_info *info = handle ? atomic_load(&handle->info) : NULL;
    struct labelled_text t = {
        .scores = scores,
        .n_labels = n_labels,
        .text = text,
        .text_size = text_size,
        .ids = ids,
        .spans = spans,
        .n_tokens = n_tokens,
        .aggregation = aggregation,
    };
    struct gsv_model *model = NULL;
    gpuserve_status st = gsv_handle_check(handle, error);

    if (st == GPUSERVE_OK)
        st = check_entities(&t, info->properties.n_labels, entities, n_entities, error);
    if (st == GPUSERVE_OK && aggregation > GPUSERVE_AGGREGATION_NONE)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    if (model)
        t.tokenizer = model->plan.tokenizer;
    *n_entities = merge_units(&t, info->labels, entities);
    if (model)
        gsv_handle_unpin(handle, &model);
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- words */

/* A growing text. Its length is bounded by the tokens and the text they come from. */
struct entities_word {
    char *bytes;
    size_t size, capacity;
    bool failed;
};

static void add(struct entities_word *word, const char *bytes, size_t size)
{
    if (size == 0) /* memcpy() takes no NULL, also not for 0 bytes */
        return;
    if (word->size + size > word->capacity) {
        const size_t capacity = 2 * (word->size + size) + 64;
        char *more = realloc(word->bytes, capacity);

        word->failed |= !more;
        if (!more)
            return;
        word->bytes = more;
        word->capacity = capacity;
    }
    memcpy(word->bytes + word->size, bytes, size);
    word->size += size;
}

/* The WordPiece decoder joins tokens without a blank before these. */
static bool has_no_blank(const char *token_text, size_t size)
{
    static const char *const starts[] = { ".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re" };

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        const size_t n = strlen(starts[i]);

        if (size >= n && memcmp(token_text, starts[i], n) == 0)
            return true;
    }
    return false;
}

static void add_wordpiece(struct entities_word *word, const char *token_text, size_t size,
                          bool is_known, bool is_first)
{
    if (!is_first && is_known && size >= 2 && memcmp(token_text, "##", 2) == 0) {
        token_text += 2;
        size -= 2;
    } else if (!is_first && !has_no_blank(token_text, size)) {
        add(word, " ", 1);
    }
    add(word, token_text, size);
}

/* Replaces SentencePiece's blank marker U+2581 by a blank; a marker that begins the word is
 * dropped. */
static void add_sentencepiece(struct entities_word *word, const char *token_text, size_t size,
                              bool is_first)
{
    static const char word_start[] = "\xe2\x96\x81";
    const size_t n = sizeof(word_start) - 1;

    for (size_t i = 0; i < size;) {
        if (size - i >= n && memcmp(token_text + i, word_start, n) == 0) {
            add(word, " ", !(is_first && i == 0));
            i += n;
        } else {
            add(word, token_text + i++, 1);
        }
    }
}

/* One text with its tokens, borrowed for the call. */
struct runtime_entities_reading {
    const struct gsv_tokenizer *tokenizer;
    const char *text;
    const int32_t *ids;
    const gpuserve_span *spans;
    bool is_wordpiece;
};

static bool is_unknown(const struct runtime_entities_reading *r, size_t token)
{
    return r->ids[token] == gsv_tokenizer_unknown(r->tokenizer);
}

/* Whether a token is unknown: the words then come from pieces and the text, not from the
 * decoder. */
static bool has_unknown(const struct runtime_entities_reading *r, const gpuserve_entity *entity)
{
    for (size_t i = entity->first; i <= entity->last; i++) {
        if (is_unknown(r, i))
            return true;
    }
    return false;
}

static void add_token(const struct runtime_entities_reading *r, size_t token, bool is_first,
                      struct entities_word *word)
{
    const gpuserve_span span = r->spans[token];
    size_t size = 0;
    const char *token_text = gsv_tokenizer_token(r->tokenizer, r->ids[token], &size);
    const bool is_known = token_text && !is_unknown(r, token);

    if (!is_known) {
        token_text = r->text + span.begin;
        size = span.end - span.begin;
    }
    if (r->is_wordpiece)
        add_wordpiece(word, token_text, size, is_known, is_first);
    else if (is_known)
        add_sentencepiece(word, token_text, size, is_first);
    else
        add(word, token_text, size);
}

static gpuserve_status put_tokens(const struct runtime_entities_reading *r,
                                  const gpuserve_entity *entity, char *to, size_t capacity,
                                  size_t *size, gpuserve_error *error)
{
    struct entities_word word = { 0 };
    gpuserve_status st;

    for (size_t i = entity->first; i <= entity->last; i++)
        add_token(r, i, i == entity->first, &word);
    st = word.failed
             ? gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a word")
             : gsv_write_text(word.bytes ? word.bytes : "", word.size, to, capacity, size, error);
    free(word.bytes);
    return st;
}

gpuserve_status gsv_put_token_text(const struct gsv_tokenizer *tokenizer, int32_t id, char *text,
                                   size_t capacity, size_t *size, gpuserve_error *error)
{
    size_t length = 0;
    const char *token = gsv_tokenizer_token(tokenizer, id, &length);

    if (!token)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "token id %d is outside the vocabulary of %d ids", id,
                        gsv_tokenizer_vocab_size(tokenizer));
    return gsv_write_text(token, length, text, capacity, size, error);
}

GPUSERVE_API gpuserve_status gpuserve_token_text(gpuserve_model *handle, int32_t id, char *text,
                                                 size_t capacity, size_t *size,
                                                 gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = gsv_handle_pin(handle, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    st = gsv_put_token_text(model->plan.tokenizer, id, text, capacity, size, error);
    gsv_handle_unpin(handle, &model);
    return st;
}

/* Checks that the entity's tokens exist and lie within the text. */
static gpuserve_status check_entity(const gpuserve_entity *entity, const char *text,
                                    size_t text_size, const int32_t *ids,
                                    const gpuserve_span *spans, size_t n_tokens,
                                    gpuserve_error *error)
{
    if (!entity || !text || !ids || !spans)
        return gsv_fail(error, GPUSERVE_E_INVALID, "entity, text, ids or spans is NULL");
    if (entity->first > entity->last || entity->last >= n_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the entity's tokens %u to %u are outside the %zu tokens", entity->first,
                        entity->last, n_tokens);
    for (size_t i = entity->first; i <= entity->last; i++) {
        if (spans[i].begin > spans[i].end || spans[i].end > text_size)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "token %zu spans bytes %u to %u of a text of %zu bytes", i,
                            spans[i].begin, spans[i].end, text_size);
    }
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_entity_word(
    gpuserve_model *handle, const gpuserve_entity *entity, uint32_t aggregation, const char *text,
    size_t text_size, const int32_t *ids, const gpuserve_span *spans, size_t n_tokens, char *word,
    size_t capacity, size_t *size, gpuserve_error *error)
{
    struct gsv_model *model;
    struct runtime_entities_reading r = { .text = text, .ids = ids, .spans = spans };
    gpuserve_status st = check_entity(entity, text, text_size, ids, spans, n_tokens, error);

    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    r.tokenizer = model->plan.tokenizer;
    r.is_wordpiece = strcmp(gsv_tokenizer_kind(r.tokenizer), "WordPiece") == 0;
    if (has_unknown(&r, entity))
        st = put_tokens(&r, entity, word, capacity, size, error);
    else if (aggregation == GPUSERVE_AGGREGATION_NONE)
        st = gsv_put_token_text(r.tokenizer, ids[entity->first], word, capacity, size, error);
    else
        st =
            gsv_tokenizer_decode(r.tokenizer, ids + entity->first, entity->last - entity->first + 1,
                                 false, word, capacity, size, error);
    gsv_handle_unpin(handle, &model);
    return st;
}
