/*
 * entities.c - token classification to named entities, as in transformers' pipeline.
 *
 *   scores per token -> best label (argmax) -> "simple": adjacent tokens of one kind form an entity
 *
 * Aggregation strategies: "simple" (B-/I- tags) and "none" (one entity per token). The caller owns
 * scores, text and results; no state is kept between calls.
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
        label && aggregation == GPUSERVE_AGGREGATION_SIMPLE ? strchr(label, '-') : NULL;

    return dash ? dash + 1 : label;
}

static bool is_special(gpuserve_span span)
{
    return span.end == 0;
}

GPUSERVE_API gpuserve_status gpuserve_entities(gpuserve_model *model, const float *scores,
                                               size_t n_labels, const gpuserve_span *spans,
                                               size_t n_tokens, uint32_t aggregation,
                                               gpuserve_entity *entities, size_t *n_entities,
                                               gpuserve_error *error)
{
    /* Loaded once: a swap during the call may change the number of labels. */
    const struct gsv_model_info *info = model ? atomic_load(&model->info) : NULL;
    const size_t n_known = info ? info->n_labels : 0;
    const char *before = NULL; /* label of the previous token; NULL: no entity yet */
    gpuserve_entity *entity = entities;
    double sum = 0;
    size_t n = 0; /* tokens in the entity */
    gpuserve_status st = gsv_handle_check(model, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!n_entities || (n_tokens > 0 && (!scores || !spans || !entities)))
        return gsv_fail(error, GPUSERVE_E_INVALID, "scores, spans, entities or n_entities is NULL");
    if (aggregation > GPUSERVE_AGGREGATION_NONE)
        return gsv_fail(error, GPUSERVE_E_INVALID, "aggregation is %u, outside 0 to %d",
                        aggregation, GPUSERVE_AGGREGATION_NONE);
    if (n_known == 0 || n_tokens > UINT32_MAX)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the model has %zu labels (min 1), the text %zu tokens (max 4294967295)",
                        n_known, n_tokens);
    if (n_labels != n_known)
        return gsv_fail(error, GPUSERVE_E_MISMATCH,
                        "the scores have %zu labels a token, the model has %zu labels", n_labels,
                        n_known);
    for (size_t i = 0; i < n_tokens; i++) {
        const size_t best = best_of(scores + i * n_labels, n_labels);
        const char *label = info->labels[best];
        const bool goes_on = aggregation == GPUSERVE_AGGREGATION_SIMPLE && before &&
                             !begins(label) && strcmp(kind_of(before), kind_of(label)) == 0;

        if (is_special(spans[i]))
            continue;
        entity += before && !goes_on;
        if (!goes_on) {
            *entity = (gpuserve_entity){ .first = (uint32_t)i, .label = (uint32_t)best };
            sum = 0;
            n = 0;
        }
        sum += (double)scores[i * n_labels + best];
        entity->last = (uint32_t)i;
        entity->score = (float)(sum / (double)++n);
        before = label;
    }
    *n_entities = before ? (size_t)(entity - entities) + 1 : 0;
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
