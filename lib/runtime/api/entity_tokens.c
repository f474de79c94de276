/*
 * entity_tokens.c - the tokens of texts with their labels, for an entity head.
 *
 *   special [class token, label]... separator word word ... special
 *
 * Each label and each word (gsv_next_word()) is tokenized alone, as in the reference. A word
 * without tokens is left out; the reference would shift the words after it.
 *
 * A text keeps at most max_words words, and as many tokens as fit after the labels: the first
 * ones, or the last ones with left truncation. The tokens of the last word may be cut, as in the
 * reference.
 */
#include "lib/runtime/api/entity_query.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Tokens before the words, of one list of labels. */
struct entity_prompt {
    int32_t *ids;
    size_t n, ids_capacity;
    uint32_t *label_tokens; /* [n_labels] */
    size_t n_labels, label_tokens_capacity;
};

struct entity_tokenizing {
    gpuserve_entity_query *query;
    struct gsv_model *model;
    const gpuserve_entity_request *request;
    struct gsv_encoder *encoder;
    struct entity_prompt prompt;
    size_t first_label, end_label; /* of the prompt, in the request's labels */
    int32_t class_token, separator;
    const int32_t *special;
    size_t n_before, n_special;
    gpuserve_span *spans; /* [max_words] a ring */
    int32_t *word_ids;    /* of the words of one text */
    size_t n_word_ids, word_ids_capacity;
};

static gpuserve_status no_memory(gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the tokens of an entity query");
}

/* ---------------------------------------------------------------------------------------- words
 */

/* Find the words that the text keeps: *first is the index in the ring of the first of *n. *all
 * counts those of the whole text, or one more than the limit. */
static void find_words(const struct entity_tokenizing *t, const char *text, size_t size,
                       size_t *first, size_t *n, size_t *all)
{
    const size_t limit = (size_t)t->model->plan.facts->entity.max_words;
    const bool counts = t->request->truncation == GPUSERVE_TRUNCATE_LEFT ||
                        t->request->truncation == GPUSERVE_TRUNCATE_STRICT;
    const bool wraps = t->request->truncation == GPUSERVE_TRUNCATE_LEFT;
    gpuserve_span word;
    size_t at = 0;

    for (*all = 0; (counts || *all <= limit) && gsv_next_word(text, size, at, &word); ++*all) {
        if (*all < limit || wraps)
            t->spans[*all % limit] = word;
        at = word.end;
    }
    *n = *all < limit ? *all : limit;
    *first = wraps && *all > limit ? *all % limit : 0;
}

/* --------------------------------------------------------------------------------------- labels
 */

static gpuserve_status encode(const struct entity_tokenizing *t, const char *text, size_t size,
                              gpuserve_error *error)
{
    const struct gsv_encode_options options = { .no_special = true };

    return gsv_tokenizer_encode(t->model->plan.tokenizer, &t->encoder->encoding, text, size, NULL,
                                0, &options, error);
}

static bool add_ids(int32_t **ids, size_t *n, size_t *capacity, const int32_t *from, size_t count)
{
    if (count == 0)
        return true;
    if (!gsv_grow((void **)ids, capacity, *n + count, sizeof(**ids), SIZE_MAX))
        return false;
    memcpy(*ids + *n, from, count * sizeof(*from));
    *n += count;
    return true;
}

static gpuserve_status check_label(const struct entity_tokenizing *t, size_t i,
                                   gpuserve_error *error)
{
    const char *const *labels = t->request->labels;

    if (!labels[i])
        return gsv_fail(error, GPUSERVE_E_INVALID, "label %zu is NULL", i);
    if (labels[i][0] == '\0')
        return gsv_fail(error, GPUSERVE_E_INVALID, "label %zu is empty", i);
    for (size_t j = t->first_label; j < i; j++)
        if (strcmp(labels[j], labels[i]) == 0)
            return gsv_fail(error, GPUSERVE_E_INVALID, "label %zu, '%.64s', is that of label %zu",
                            i, labels[i], j);
    return GPUSERVE_OK;
}

static gpuserve_status add_label(struct entity_tokenizing *t, size_t i, gpuserve_error *error)
{
    const char *label = t->request->labels[i];
    struct entity_prompt *prompt = &t->prompt;
    const struct gsv_encoding *encoding = &t->encoder->encoding;
    gpuserve_status st = check_label(t, i, error);

    if (st != GPUSERVE_OK)
        return st;
    st = encode(t, label, strlen(label), error);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(error, st, "label %zu", i);
    if (encoding->n == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "label %zu, '%.64s', has no tokens", i, label);
    for (size_t j = 0; j < encoding->n; j++)
        if (encoding->ids[j] == t->class_token)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "label %zu, '%.64s', contains the token that separates labels", i,
                            label);
    if (!gsv_grow((void **)&prompt->label_tokens, &prompt->label_tokens_capacity,
                  prompt->n_labels + 1, sizeof(*prompt->label_tokens), SIZE_MAX))
        return no_memory(error);
    prompt->label_tokens[prompt->n_labels++] =
        (uint32_t)prompt->n + t->model->plan.facts->entity.after_class_token;
    if (!add_ids(&prompt->ids, &prompt->n, &prompt->ids_capacity, &t->class_token, 1) ||
        !add_ids(&prompt->ids, &prompt->n, &prompt->ids_capacity, encoding->ids, encoding->n))
        return no_memory(error);
    return GPUSERVE_OK;
}

/* Make the prompt of labels [first, end), unless it is the present one. */
static gpuserve_status make_prompt(struct entity_tokenizing *t, size_t first, size_t end,
                                   gpuserve_error *error)
{
    struct entity_prompt *prompt = &t->prompt;
    const size_t limit = (size_t)t->model->plan.max_tokens;
    gpuserve_status st = GPUSERVE_OK;

    if (prompt->n > 0 && first == t->first_label && end == t->end_label)
        return GPUSERVE_OK;
    if (end - first > GPUSERVE_ENTITY_MAX_LABELS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%zu labels for one text, the limit is %d",
                        end - first, GPUSERVE_ENTITY_MAX_LABELS);
    t->first_label = first;
    t->end_label = end;
    prompt->n = prompt->n_labels = 0;
    for (size_t i = first; i < end && st == GPUSERVE_OK; i++)
        st = add_label(t, i, error);
    if (st == GPUSERVE_OK &&
        !add_ids(&prompt->ids, &prompt->n, &prompt->ids_capacity, &t->separator, 1))
        st = no_memory(error);
    if (st == GPUSERVE_OK && prompt->n + t->n_special >= limit)
        st =
            gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                     "%zu labels have %zu tokens with the special ones, which leaves no room for a "
                     "text: the limit is %zu tokens",
                     end - first, prompt->n + t->n_special, limit);
    return st;
}

/* ----------------------------------------------------------------------------------------- texts
 */

/* Tokenize the words of a text: their ids, and the words with indices in these ids. */
static gpuserve_status encode_words(struct entity_tokenizing *t, const char *text, size_t first,
                                    size_t n, gpuserve_error *error)
{
    const size_t ring = (size_t)t->model->plan.facts->entity.max_words;
    gpuserve_entity_query *query = t->query;

    t->n_word_ids = 0;
    for (size_t i = 0; i < n; i++) {
        const gpuserve_span span = t->spans[(first + i) % ring];
        const struct gsv_encoding *encoding = &t->encoder->encoding;
        const gpuserve_status st = encode(t, text + span.begin, span.end - span.begin, error);

        if (st != GPUSERVE_OK)
            return st;
        if (encoding->n == 0)
            continue;
        if (!gsv_grow((void **)&query->words, &query->words_capacity, query->n_words + 1,
                      sizeof(*query->words), SIZE_MAX))
            return no_memory(error);
        query->words[query->n_words++] =
            (struct gsv_entity_word){ span.begin, span.end, (uint32_t)t->n_word_ids,
                                      (uint32_t)encoding->n };
        if (!add_ids(&t->word_ids, &t->n_word_ids, &t->word_ids_capacity, encoding->ids,
                     encoding->n))
            return no_memory(error);
    }
    return GPUSERVE_OK;
}

/* Keep the first or the last words with at most `capacity` tokens together. *begin and *end receive
 * the range of the kept ids. */
static void cut_words(struct entity_tokenizing *t, struct gsv_entity_text *text, size_t capacity,
                      size_t *begin, size_t *end)
{
    struct gsv_entity_word *words;
    size_t skipped = 0;

    *begin = 0;
    *end = t->n_word_ids;
    if (t->n_word_ids <= capacity)
        return;
    words = t->query->words + text->first_word;
    text->truncated = true;
    if (t->request->truncation == GPUSERVE_TRUNCATE_LEFT) {
        while (skipped + 1 < text->n_words && t->n_word_ids - words[skipped].first > capacity)
            skipped++;
        memmove(words, words + skipped, (text->n_words - skipped) * sizeof(*words));
        text->n_words -= skipped;
        *begin = words[0].first;
    }
    if (*end - *begin > capacity)
        *end = *begin + capacity;
    while (words[text->n_words - 1].first >= *end)
        text->n_words--;
    if (words[text->n_words - 1].first + words[text->n_words - 1].n > *end)
        words[text->n_words - 1].n = (uint32_t)*end - words[text->n_words - 1].first;
    for (size_t i = 0; i < text->n_words; i++)
        words[i].first -= (uint32_t)*begin;
    t->query->n_words = text->first_word + text->n_words;
}

/* Append the tokens of a text around the ids [begin, end) of its words. */
static gpuserve_status put_text(struct entity_tokenizing *t, struct gsv_entity_text *text,
                                size_t begin, size_t end, gpuserve_error *error)
{
    gpuserve_entity_query *query = t->query;
    const struct entity_prompt *prompt = &t->prompt;
    const size_t before = t->n_before + prompt->n;

    text->first_label_token = query->n_label_tokens;
    text->n_labels = prompt->n_labels;
    if (prompt->n_labels > 0 &&
        !gsv_grow((void **)&query->label_tokens, &query->label_tokens_capacity,
                  query->n_label_tokens + prompt->n_labels, sizeof(*query->label_tokens), SIZE_MAX))
        return no_memory(error);
    for (size_t i = 0; i < prompt->n_labels; i++)
        query->label_tokens[query->n_label_tokens++] =
            (uint32_t)t->n_before + prompt->label_tokens[i];
    for (size_t i = 0; i < text->n_words; i++)
        query->words[text->first_word + i].first += (uint32_t)before;
    if (!add_ids(&query->ids, &query->n_ids, &query->ids_capacity, t->special, t->n_before) ||
        !add_ids(&query->ids, &query->n_ids, &query->ids_capacity, prompt->ids, prompt->n) ||
        !add_ids(&query->ids, &query->n_ids, &query->ids_capacity, t->word_ids + begin,
                 end - begin) ||
        !add_ids(&query->ids, &query->n_ids, &query->ids_capacity, t->special + t->n_before,
                 t->n_special - t->n_before))
        return no_memory(error);
    return GPUSERVE_OK;
}

static gpuserve_status check_text(const char *text, size_t size, gpuserve_error *error)
{
    size_t valid;

    if (size > UINT32_MAX / 2)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text has %zu bytes, the limit is %u",
                        size, UINT32_MAX / 2);
    valid = gsv_utf8_valid_length(text, size);
    return valid == size
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_INVALID, "the text is not UTF-8 at byte %zu", valid);
}

static gpuserve_status add_text(struct entity_tokenizing *t, size_t i, gpuserve_error *error)
{
    const bool strict = t->request->truncation == GPUSERVE_TRUNCATE_STRICT;
    const size_t capacity = (size_t)t->model->plan.max_tokens - t->n_special - t->prompt.n;
    const size_t max_words = (size_t)t->model->plan.facts->entity.max_words;
    const char *bytes = t->request->texts[i];
    const size_t size = t->request->text_sizes ? t->request->text_sizes[i] : strlen(bytes);
    struct gsv_entity_text *text = &t->query->texts[i];
    size_t first, n, all, begin, end;
    gpuserve_status st = check_text(bytes, size, error);

    if (st != GPUSERVE_OK)
        return st;
    find_words(t, bytes, size, &first, &n, &all);
    if (strict && all > max_words)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text has %zu words, the limit is %zu",
                        all, max_words);
    text->truncated = all > max_words;
    text->first_word = t->query->n_words;
    st = encode_words(t, bytes, first, n, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strict && t->n_word_ids > capacity)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "the text has %zu tokens without those of its labels, the limit is %zu",
                        t->n_word_ids, capacity);
    text->n_words = t->query->n_words - text->first_word;
    cut_words(t, text, capacity, &begin, &end);
    return put_text(t, text, begin, end, error);
}

static gpuserve_status add_texts(struct entity_tokenizing *t, gpuserve_error *error)
{
    const gpuserve_entity_request *request = t->request;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < request->n_texts && st == GPUSERVE_OK; i++) {
        const size_t *offsets = request->label_offsets ? request->label_offsets + i : NULL;

        t->query->offsets[i] = t->query->n_ids;
        st = make_prompt(t, offsets ? offsets[0] : 0, offsets ? offsets[1] : request->n_labels,
                         error);
        if (st == GPUSERVE_OK) {
            st = add_text(t, i, error);
            if (st != GPUSERVE_OK)
                st = gsv_fail_in(error, st, "text %zu", i);
        }
    }
    t->query->offsets[request->n_texts] = t->query->n_ids;
    return st;
}

/* A tokenizer without the class token and the separator gets them after its own tokens, as in the
 * reference: one that is not used, the class token, the separator. */
static gpuserve_status find_class_token(struct entity_tokenizing *t, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = t->model->plan.facts;
    const struct gsv_tokenizer *tokenizer = t->model->plan.tokenizer;

    t->class_token = gsv_tokenizer_id(tokenizer, facts->entity.class_token);
    t->separator = gsv_tokenizer_id(tokenizer, facts->entity.separator);
    if (t->class_token < 0)
        t->class_token = facts->entity.class_token_id >= 0
                             ? facts->entity.class_token_id
                             : gsv_tokenizer_vocab_size(tokenizer) + 1;
    if (t->separator < 0)
        t->separator = t->class_token + 1;
    if (t->class_token < facts->vocab_size && t->separator < facts->vocab_size)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "the tokenizer lacks '%.64s' or '%.64s', and the model's embedding table has "
                    "only %d rows",
                    facts->entity.class_token, facts->entity.separator, facts->vocab_size);
}

gpuserve_status gsv_entity_tokenize(gpuserve_entity_query *query, struct gsv_model *model,
                                    const gpuserve_entity_request *request, gpuserve_error *error)
{
    struct entity_tokenizing t = { .query = query, .model = model, .request = request };
    gpuserve_status st = find_class_token(&t, error);

    if (st != GPUSERVE_OK)
        return st;
    t.special = gsv_tokenizer_special_ids(model->plan.tokenizer, &t.n_before, &t.n_special);
    t.spans = gsv_alloc_array((size_t)model->plan.facts->entity.max_words, sizeof(*t.spans));
    t.encoder = gsv_encoder_acquire(&model->encoders);
    st = t.spans && t.encoder ? add_texts(&t, error) : no_memory(error);
    if (t.encoder)
        gsv_encoder_release(&model->encoders, t.encoder);
    free(t.spans);
    free(t.word_ids);
    free(t.prompt.ids);
    free(t.prompt.label_tokens);
    return st;
}
