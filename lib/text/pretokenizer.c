/*
 * pretokenizer.c - where words begin and end.
 *
 * Each step looks at one character and its neighbours within the word so far, so all of them work
 * on one mark per character and none moves text.
 */
#include "lib/text/pretokenizer.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/unicode.h"

#include <string.h>

static bool is(const struct gsv_char *c, uint8_t flag)
{
    return gsv_unicode_get_flags(c->c) & flag;
}

static bool begins_word(const uint8_t *marks, size_t i)
{
    return i == 0 || marks[i] & GSV_CUT_BEFORE || marks[i - 1] & GSV_CUT_DROPPED;
}

static void cut_at_space(const struct gsv_char *chars, size_t n, uint8_t *marks)
{
    for (size_t i = 0; i < n; i++)
        if (is(&chars[i], GSV_UNICODE_SPACE))
            marks[i] |= GSV_CUT_DROPPED;
}

static void cut_words(const struct gsv_char *chars, size_t n, uint8_t *marks)
{
    cut_at_space(chars, n, marks);
    for (size_t i = 1; i < n; i++)
        if (is(&chars[i], GSV_UNICODE_WORD) != is(&chars[i - 1], GSV_UNICODE_WORD))
            marks[i] |= GSV_CUT_BEFORE;
}

/* Whether a word begins between two characters, of which either may be a delimiter. Several in a
 * row stay apart except in CONTIGUOUS: only the nearest joins the word before or after. */
static bool cuts(enum gsv_pretoken_behavior behavior, bool delimiter, bool previous)
{
    switch (behavior) {
    case GSV_PRETOKEN_ISOLATED:
    case GSV_PRETOKEN_REMOVED:
        return delimiter || previous;
    case GSV_PRETOKEN_CONTIGUOUS:
        return delimiter != previous;
    case GSV_PRETOKEN_WITH_PREVIOUS:
        return previous;
    case GSV_PRETOKEN_WITH_NEXT:
        return delimiter;
    }
    return false;
}

static void cut_punctuation(enum gsv_pretoken_behavior behavior, const struct gsv_char *chars,
                            size_t n, uint8_t *marks)
{
    bool previous = false;

    for (size_t i = 0; i < n; i++) {
        const bool delimiter = is(&chars[i], GSV_UNICODE_PUNCTUATION);
        const bool first = begins_word(marks, i);

        if (!first && cuts(behavior, delimiter, previous))
            marks[i] |= GSV_CUT_BEFORE;
        if (delimiter && behavior == GSV_PRETOKEN_REMOVED)
            marks[i] |= GSV_CUT_DROPPED;
        previous = delimiter;
    }
}

void gsv_pretokenizer_cut(const struct gsv_pretokenizer *p, const struct gsv_char *chars, size_t n,
                          uint8_t *marks)
{
    memset(marks, 0, n);
    for (size_t i = 0; i < p->n; i++) {
        switch (p->steps[i].kind) {
        case GSV_PRETOKEN_SPACE:
            cut_at_space(chars, n, marks);
            break;
        case GSV_PRETOKEN_WORDS:
            cut_words(chars, n, marks);
            break;
        case GSV_PRETOKEN_PUNCTUATION:
            cut_punctuation(p->steps[i].behavior, chars, n, marks);
            break;
        }
    }
}

static gpuserve_status add_step(struct gsv_pretokenizer *p, enum gsv_pretoken_kind kind,
                                enum gsv_pretoken_behavior behavior, gpuserve_error *error)
{
    if (p->n == GSV_PRETOKEN_MAX_STEPS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "a pre-tokenizer of more than %d steps",
                        GSV_PRETOKEN_MAX_STEPS);
    p->steps[p->n++] = (struct gsv_pretoken_step){ kind, behavior };
    p->bert = false;
    return GPUSERVE_OK;
}

void gsv_pretokenizer_bert(struct gsv_pretokenizer *p)
{
    p->n = 2;
    p->steps[0] = (struct gsv_pretoken_step){ GSV_PRETOKEN_SPACE, GSV_PRETOKEN_REMOVED };
    p->steps[1] = (struct gsv_pretoken_step){ GSV_PRETOKEN_PUNCTUATION, GSV_PRETOKEN_ISOLATED };
    p->bert = true;
}

static gpuserve_status parse_punctuation(struct gsv_pretokenizer *p,
                                         const struct gsv_json_value *json, const char *name,
                                         gpuserve_error *error)
{
    static const char *const behaviors[] = { "Isolated", "Removed", "Contiguous",
                                             "MergedWithPrevious", "MergedWithNext" };
    const char *behavior = "Isolated";
    const gpuserve_status status = gsv_json_string(json, "behavior", name, &behavior, error);

    if (status != GPUSERVE_OK)
        return status;
    for (size_t i = 0; i < sizeof(behaviors) / sizeof(behaviors[0]); i++)
        if (strcmp(behavior, behaviors[i]) == 0)
            return add_step(p, GSV_PRETOKEN_PUNCTUATION, (enum gsv_pretoken_behavior)i, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: pre-tokenizer \"Punctuation\" \"%s\"", name,
                    behavior);
}

static gpuserve_status parse_one(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_text(gsv_json_member(json, "type"));
    gpuserve_status status;

    if (!type)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: a pre-tokenizer without a type", name);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        const bool alone = p->n == 0;

        status = add_step(p, GSV_PRETOKEN_SPACE, GSV_PRETOKEN_REMOVED, error);
        if (status == GPUSERVE_OK)
            status = add_step(p, GSV_PRETOKEN_PUNCTUATION, GSV_PRETOKEN_ISOLATED, error);
        p->bert = alone;
        return status;
    }
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_step(p, GSV_PRETOKEN_SPACE, GSV_PRETOKEN_REMOVED, error);
    if (strcmp(type, "Whitespace") == 0)
        return add_step(p, GSV_PRETOKEN_WORDS, GSV_PRETOKEN_REMOVED, error);
    if (strcmp(type, "Punctuation") == 0)
        return parse_punctuation(p, json, name, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: pre-tokenizer \"%s\"", name, type);
}

static gpuserve_status parse_any(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_text(gsv_json_member(json, "type"));
    const struct gsv_json_value *parts = gsv_json_member(json, "pretokenizers");
    gpuserve_status status = GPUSERVE_OK;

    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(p, json, name, error);
    if (!gsv_json_is(parts, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: a sequence without \"pretokenizers\"", name);
    for (size_t i = 0; i < gsv_json_count(parts) && status == GPUSERVE_OK; i++)
        status = parse_any(p, gsv_json_at(parts, i), name, error);
    return status;
}

gpuserve_status gsv_pretokenizer_parse(struct gsv_pretokenizer *p,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error)
{
    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    return parse_any(p, json, name, error);
}
