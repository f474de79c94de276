/*
 * pretokenizer.c - splits normalized text into words.
 *
 * Each step looks at a character and its neighbours within the current word, so all steps share one
 * mark for each character. Steps that insert or replace characters only record this; write_chars()
 * makes the copy if a later step needs to see it. pretokenizer_json.c parses tokenizer.json.
 */
#include "lib/text/pipeline/pretokenizer.h"

#include "lib/base/alloc.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static bool is(const struct gsv_char *c, uint8_t flag)
{
    return gsv_unicode_get_flags(c->c) & flag;
}

static bool begins_word(const uint8_t *flags, size_t i)
{
    return i == 0 || flags[i] & GSV_CUT_BEFORE || flags[i - 1] & GSV_CUT_DROPPED;
}

static void cut_at_space(const struct gsv_char *chars, size_t n, uint8_t *flags)
{
    for (size_t i = 0; i < n; i++)
        if (is(&chars[i], GSV_UNICODE_SPACE))
            flags[i] |= GSV_CUT_DROPPED;
}

static void cut_words(const struct gsv_char *chars, size_t n, uint8_t *flags)
{
    cut_at_space(chars, n, flags);
    for (size_t i = 1; i < n; i++)
        if (is(&chars[i], GSV_UNICODE_WORD) != is(&chars[i - 1], GSV_UNICODE_WORD))
            flags[i] |= GSV_CUT_BEFORE;
}

/* True if a word begins between two characters, each a delimiter or not. Adjacent delimiters stay
 * separate, except with CONTIGUOUS; only the nearest one joins the word before or after. */
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

static bool is_delimiter(const struct gsv_pretoken_step *step, uint32_t c)
{
    return step->kind == GSV_PRETOKEN_DIGITS ? gsv_unicode_get_regex(c) & GSV_REGEX_NUMERIC
                                             : gsv_unicode_get_flags(c) & GSV_UNICODE_PUNCTUATION;
}

static void cut_at_chars(const struct gsv_pretoken_step *step, const struct gsv_char *chars,
                         size_t n, uint8_t *flags)
{
    const enum gsv_pretoken_behavior behavior = step->behavior;
    bool previous = false;

    for (size_t i = 0; i < n; i++) {
        const bool delimiter = is_delimiter(step, chars[i].c);
        const bool first = begins_word(flags, i);

        if (!first && cuts(behavior, delimiter, previous))
            flags[i] |= GSV_CUT_BEFORE;
        if (delimiter && behavior == GSV_PRETOKEN_REMOVED)
            flags[i] |= GSV_CUT_DROPPED;
        previous = delimiter;
    }
}

/* ------------------------------------------------------------------ patterns */

static size_t match_literal(const struct gsv_pretoken_step *step, const struct gsv_char *chars,
                            size_t at, size_t end)
{
    if (end - at < step->n_literal)
        return at;
    for (size_t i = 0; i < step->n_literal; i++)
        if (chars[at + i].c != step->literal[i])
            return at;
    return at + step->n_literal;
}

static size_t match(const struct gsv_pretoken_step *step, const struct gsv_char *chars, size_t at,
                    size_t end)
{
    return step->pattern == GSV_N_SPLIT_PATTERNS ? match_literal(step, chars, at, end)
                                                 : gsv_split_match(step->pattern, chars, at, end);
}

/* The next part of the word chars[begin, end): the match at `begin`, or else the text before the
 * next match. Returns its end. */
static size_t next_part(const struct gsv_pretoken_step *step, const struct gsv_char *chars,
                        size_t begin, size_t end, bool *matches)
{
    size_t stop = match(step, chars, begin, end);

    *matches = stop > begin;
    if (*matches)
        return stop;
    for (stop = begin + 1; stop < end && match(step, chars, stop, end) == stop; stop++)
        ;
    return stop;
}

/* The same between two parts: two adjacent parts that are no delimiters are separate words. */
static bool cuts_parts(enum gsv_pretoken_behavior behavior, bool delimiter, bool previous)
{
    if (!delimiter && !previous)
        return behavior != GSV_PRETOKEN_CONTIGUOUS;
    return cuts(behavior, delimiter, previous);
}

static void cut_word(const struct gsv_pretoken_step *step, const struct gsv_char *chars,
                     size_t begin, size_t end, uint8_t *flags)
{
    bool previous = false, matches;

    for (size_t at = begin, stop; at < end; at = stop) {
        bool delimiter;

        stop = next_part(step, chars, at, end, &matches);
        delimiter = matches != step->inverted;
        if (at > begin && cuts_parts(step->behavior, delimiter, previous))
            flags[at] |= GSV_CUT_BEFORE;
        if (delimiter && step->behavior == GSV_PRETOKEN_REMOVED)
            memset(flags + at, GSV_CUT_DROPPED, stop - at);
        previous = delimiter;
    }
}

static void cut_at_pattern(const struct gsv_pretoken_step *step, const struct gsv_char *chars,
                           size_t n, uint8_t *flags)
{
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1;
             end < n && !begins_word(flags, end) && !(flags[end] & GSV_CUT_DROPPED); end++)
            ;
        if (!(flags[begin] & GSV_CUT_DROPPED))
            cut_word(step, chars, begin, end, flags);
    }
}

/* ------------------------------------------------------------------ inserted characters */

static bool lacks_prefix(const struct gsv_pretokens *w, size_t i, enum gsv_prefix_scheme scheme)
{
    return !(w->flags[i] & GSV_CUT_DROPPED) && begins_word(w->flags, i) && w->at[i].c != ' ' &&
           w->at[i].c != w->space && (scheme == GSV_PREFIX_ALWAYS || w->at[i].begin == 0);
}

/* Mark the words that need w->space before them. */
static void flag_prefixes(struct gsv_pretokens *w, enum gsv_prefix_scheme scheme)
{
    for (size_t i = 0; scheme != GSV_PREFIX_NEVER && i < w->n; i++)
        if (lacks_prefix(w, i, scheme))
            w->flags[i] |= GSV_CUT_PREFIXED;
}

/* Apply pending replacements and prefixes to a copy of the characters, for the next step. After the
 * last step this is not called. */
static bool write_chars(struct gsv_pretokens *w)
{
    struct gsv_chars *const to = w->at == w->own.at ? &w->other : &w->own;
    const struct gsv_chars own = w->own;
    uint8_t *const flags = w->flags;
    const size_t flags_capacity = w->flags_capacity;
    size_t n = 0;

    if (!gsv_grow((void **)&to->at, &to->capacity, 2 * w->n, sizeof(*to->at), SIZE_MAX) ||
        !gsv_grow((void **)&w->other_flags, &w->other_flags_capacity, 2 * w->n, 1, SIZE_MAX))
        return false;
    for (size_t i = 0; i < w->n; i++) {
        const struct gsv_char c = w->at[i];
        const bool prefixed = flags[i] & GSV_CUT_PREFIXED;

        if (prefixed) {
            to->at[n] = (struct gsv_char){ w->space, c.begin, c.end };
            w->other_flags[n++] = GSV_CUT_BEFORE;
        }
        to->at[n] = (struct gsv_char){ c.c == ' ' ? w->space : c.c, c.begin, c.end };
        w->other_flags[n++] = prefixed ? 0 : flags[i];
    }
    if (to == &w->other) {
        w->own = w->other;
        w->other = own;
    }
    w->at = w->own.at;
    w->n = n;
    w->space = ' ';
    w->unwritten = false;
    w->flags = w->other_flags;
    w->flags_capacity = w->other_flags_capacity;
    w->other_flags = flags;
    w->other_flags_capacity = flags_capacity;
    return true;
}

static void apply_metaspace(const struct gsv_pretoken_step *step, struct gsv_pretokens *w)
{
    w->space = step->replacement;
    w->unwritten = true;
    flag_prefixes(w, step->scheme);
    for (size_t i = 0; i < w->n && step->splits; i++)
        if (w->at[i].c == ' ' || w->at[i].c == w->space)
            w->flags[i] |= GSV_CUT_BEFORE;
}

static bool apply_byte_level(const struct gsv_pretoken_step *step, struct gsv_pretokens *w)
{
    flag_prefixes(w, step->scheme);
    if (step->scheme != GSV_PREFIX_NEVER && !write_chars(w))
        return false;
    if (step->pattern != GSV_N_SPLIT_PATTERNS)
        cut_at_pattern(step, w->at, w->n, w->flags);
    return true;
}

/* ------------------------------------------------------------------ all steps */

bool gsv_pretokenizer_cut(const struct gsv_pretokenizer *p, const struct gsv_char *chars, size_t n,
                          struct gsv_pretokens *w)
{
    bool good = gsv_grow((void **)&w->flags, &w->flags_capacity, n, 1, SIZE_MAX);

    if (!good)
        return false;
    memset(w->flags, 0, n);
    w->at = chars;
    w->n = n;
    w->space = ' ';
    w->unwritten = false;
    for (size_t i = 0; i < p->n && good; i++) {
        if (w->unwritten && !write_chars(w))
            return false;
        switch (p->steps[i].kind) {
        case GSV_PRETOKEN_SPACE:
            cut_at_space(w->at, w->n, w->flags);
            break;
        case GSV_PRETOKEN_WORDS:
            cut_words(w->at, w->n, w->flags);
            break;
        case GSV_PRETOKEN_PUNCTUATION:
        case GSV_PRETOKEN_DIGITS:
            cut_at_chars(&p->steps[i], w->at, w->n, w->flags);
            break;
        case GSV_PRETOKEN_SPLIT:
            cut_at_pattern(&p->steps[i], w->at, w->n, w->flags);
            break;
        case GSV_PRETOKEN_BYTE_LEVEL:
            good = apply_byte_level(&p->steps[i], w);
            break;
        case GSV_PRETOKEN_METASPACE:
            apply_metaspace(&p->steps[i], w);
            break;
        }
    }
    return good;
}

void gsv_pretokens_reset(struct gsv_pretokens *w)
{
    free(w->flags);
    free(w->other_flags);
    free(w->own.at);
    free(w->other.at);
    *w = (struct gsv_pretokens){ 0 };
}

bool gsv_pretokenizer_is_byte_level(const struct gsv_pretokenizer *p)
{
    return p->n > 0 && p->steps[p->n - 1].kind == GSV_PRETOKEN_BYTE_LEVEL;
}

void gsv_pretokenizer_bert(struct gsv_pretokenizer *p)
{
    p->n = 2;
    p->steps[0] =
        (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_SPACE, .behavior = GSV_PRETOKEN_REMOVED };
    p->steps[1] = (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_PUNCTUATION,
                                              .behavior = GSV_PRETOKEN_ISOLATED };
    p->bert = true;
}

void gsv_pretokenizer_white_space(struct gsv_pretokenizer *p)
{
    p->n = 1;
    p->steps[0] =
        (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_SPACE, .behavior = GSV_PRETOKEN_REMOVED };
}

void gsv_pretokenizer_metaspace(struct gsv_pretokenizer *p)
{
    p->n = 1;
    p->steps[0] = (struct gsv_pretoken_step){
        .kind = GSV_PRETOKEN_METASPACE,
        .scheme = GSV_PREFIX_ALWAYS,
        .replacement = 0x2581,
        .splits = true,
    };
}

void gsv_pretokenizer_gpt2(struct gsv_pretokenizer *p, bool add_prefix_space)
{
    p->n = 1;
    p->steps[0] = (struct gsv_pretoken_step){
        .kind = GSV_PRETOKEN_BYTE_LEVEL,
        .scheme = add_prefix_space ? GSV_PREFIX_ALWAYS : GSV_PREFIX_NEVER,
        .pattern = GSV_SPLIT_GPT2,
    };
}
