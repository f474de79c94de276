/*
 * split_pattern.c - matches each supported pattern in one pass.
 *
 * A match reads as many characters as it is long, plus a few: no backtracking, so hostile texts
 * cost no more than others. Each function names its regular expression.
 */
#include "lib/text/pipeline/pretokenizer.h"

#include "lib/text/unicode/unicode.h"

#include <stdbool.h>
#include <string.h>

enum {
    L = GSV_REGEX_LETTER,
    N = GSV_REGEX_NUMBER,
    M = GSV_REGEX_MARK,
    P = GSV_REGEX_PUNCTUATION,
    S = GSV_REGEX_SYMBOL,
    SPACE = GSV_REGEX_SPACE,
};

struct text {
    const struct gsv_char *at;
    size_t end;
};

static inline bool is(const struct text *t, size_t at, uint8_t flags)
{
    return at < t->end && gsv_unicode_get_regex(t->at[at].c) & flags;
}

static inline bool is_char(const struct text *t, size_t at, uint32_t c)
{
    return at < t->end && t->at[at].c == c;
}

static inline bool is_newline(const struct text *t, size_t at)
{
    return is_char(t, at, '\r') || is_char(t, at, '\n');
}

/* The end of the run of characters with any of the flags. */
static inline size_t skip(const struct text *t, size_t at, uint8_t flags)
{
    while (is(t, at, flags))
        at++;
    return at;
}

/* The end of the run of characters with none of the flags. */
static inline size_t skip_others(const struct text *t, size_t at, uint8_t flags)
{
    while (at < t->end && !is(t, at, flags))
        at++;
    return at;
}

static inline size_t skip_newlines(const struct text *t, size_t at)
{
    while (is_newline(t, at))
        at++;
    return at;
}

/* \s+(?!\S)|\s+ : all white space, but without the last of several characters before other text. */
static size_t match_space(const struct text *t, size_t at)
{
    const size_t end = skip(t, at, SPACE);

    return end < t->end && end - at > 1 ? end - 1 : end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_lines(const struct text *t, size_t at)
{
    const size_t end = skip(t, at, SPACE);

    for (size_t last = end; last > at; last--)
        if (is_newline(t, last - 1))
            return last;
    return match_space(t, at);
}

/* 's|'t|'re|'ve|'m|'ll|'d, case-insensitive with `fold`; `at` if it does not match. */
static size_t match_short_form(const struct text *t, size_t at, bool fold)
{
    const uint32_t case_bit = fold ? 0x20 : 0;
    uint32_t first, second;

    if (!is_char(t, at, '\'') || at + 1 >= t->end)
        return at;
    first = t->at[at + 1].c;
    if (fold && first == 0x17F) /* U+017F, the long s, folds to s */
        return at + 2;
    if (first > 0x7F)
        return at;
    first |= case_bit;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if (at + 2 >= t->end || t->at[at + 2].c > 0x7F)
        return at;
    second = t->at[at + 2].c | case_bit;
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l'))
        return at + 3;
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t match_gpt2(const struct text *t, size_t at)
{
    const size_t word = is_char(t, at, ' ') ? at + 1 : at, end = match_short_form(t, at, false);

    if (end > at)
        return end;
    if (is(t, word, L))
        return skip(t, word, L);
    if (is(t, word, N))
        return skip(t, word, N);
    if (word < t->end && !is(t, word, SPACE))
        return skip_others(t, word, SPACE | L | N);
    return match_space(t, at);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_cl100k(const struct text *t, size_t at, size_t max_digits)
{
    const size_t word = is_char(t, at, ' ') ? at + 1 : at;
    size_t end = match_short_form(t, at, true);

    if (end > at)
        return end;
    if (is(t, at, L))
        return skip(t, at, L);
    if (is(t, at, N)) {
        for (end = at; end - at < max_digits && is(t, end, N); end++)
            ;
        return end;
    }
    if (is(t, at + 1, L) && !is_newline(t, at))
        return skip(t, at + 1, L);
    if (word < t->end && !is(t, word, SPACE | L | N))
        return skip_newlines(t, skip_others(t, word, SPACE | L | N));
    return match_lines(t, at);
}

static size_t match_numbers(const struct text *t, size_t at)
{
    size_t end = at;

    while (end - at < 3 && is(t, end, N))
        end++;
    return end;
}

static bool is_cjk(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

static bool is_ascii_letter(uint32_t c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_ascii_punctuation(uint32_t c)
{
    return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 *  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_deepseek(const struct text *t, size_t at)
{
    const size_t word = is_char(t, at, ' ') ? at + 1 : at;
    size_t end = at + 1;

    if (is_ascii_punctuation(t->at[at].c) && end < t->end && is_ascii_letter(t->at[end].c)) {
        while (end < t->end && is_ascii_letter(t->at[end].c))
            end++;
        return end;
    }
    if (is(t, at, L | M))
        return skip(t, at, L | M);
    if (is(t, at + 1, L | M) && !is_newline(t, at) && !is(t, at, P | S))
        return skip(t, at + 1, L | M);
    if (is(t, word, P | S))
        return skip_newlines(t, skip(t, word, P | S));
    return is(t, at, SPACE) ? match_lines(t, at) : at;
}

/* The end of an ASCII text at `at`; `at` if it is not there. */
static size_t match_text(const struct text *t, size_t at, const char *text)
{
    size_t end = at;

    for (; *text; text++, end++)
        if (!is_char(t, end, (unsigned char)*text))
            return at;
    return end;
}

/* 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+, with `special` after
 * <\|startoftext\|>|<\|endoftext\|>| */
static size_t match_clip(const struct text *t, size_t at, bool special)
{
    size_t end = match_short_form(t, at, false);

    if (special && end == at)
        end = match_text(t, at, "<|startoftext|>");
    if (special && end == at)
        end = match_text(t, at, "<|endoftext|>");
    if (end > at)
        return end;
    if (is(t, at, L))
        return skip(t, at, L);
    return is(t, at, N) ? at + 1 : skip_others(t, at, SPACE | L | N);
}

size_t gsv_split_match(enum gsv_split_pattern pattern, const struct gsv_char *chars, size_t at,
                       size_t end)
{
    const struct text t = { chars, end };
    size_t stop = at;

    switch (pattern) {
    case GSV_SPLIT_GPT2:
        return match_gpt2(&t, at);
    case GSV_SPLIT_CL100K:
        return match_cl100k(&t, at, 3);
    case GSV_SPLIT_QWEN2:
        return match_cl100k(&t, at, 1);
    case GSV_SPLIT_NUMBERS:
        return match_numbers(&t, at);
    case GSV_SPLIT_CJK:
        while (stop < end && is_cjk(chars[stop].c))
            stop++;
        return stop;
    case GSV_SPLIT_DEEPSEEK:
        return match_deepseek(&t, at);
    case GSV_SPLIT_CLIP:
        return match_clip(&t, at, false);
    case GSV_SPLIT_CLIP_SPECIAL:
        return match_clip(&t, at, true);
    case GSV_N_SPLIT_PATTERNS:
        break;
    }
    return at;
}

enum gsv_split_pattern gsv_split_pattern_of(const char *regex)
{
    static const char *const texts[] = {
        [GSV_SPLIT_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                           "\\s+(?!\\S)|\\s+",
        [GSV_SPLIT_CL100K] =
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
            " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        [GSV_SPLIT_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                            " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        [GSV_SPLIT_NUMBERS] = "\\p{N}{1,3}",
        [GSV_SPLIT_CJK] = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
        [GSV_SPLIT_DEEPSEEK] =
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
            "\\s+(?!\\S)|\\s+",
        [GSV_SPLIT_CLIP] = "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+",
        [GSV_SPLIT_CLIP_SPECIAL] = "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|"
                                   "[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+",
    };

    for (int i = 0; i < GSV_N_SPLIT_PATTERNS; i++)
        if (strcmp(regex, texts[i]) == 0)
            return (enum gsv_split_pattern)i;
    return GSV_N_SPLIT_PATTERNS;
}
