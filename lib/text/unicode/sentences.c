/*
 * sentences.c - sentence ends by rules on the characters around a terminator.
 *
 * A cursor reads the text once. At a run of terminators the characters after it decide; the
 * lookahead for a lowercase letter stops at the next terminator, letter or line end, so no
 * character is looked at more than three times.
 */
#include "lib/text/unicode/sentences.h"

#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

/* ---------------------------------------------------------------------------------- characters */

struct sentences_range {
    uint32_t first, last;
};

static bool is_in(const struct sentences_range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n && ranges[i].first <= c; i++)
        if (c <= ranges[i].last)
            return true;
    return false;
}

#define IS_IN(ranges, c) is_in(ranges, sizeof(ranges) / sizeof((ranges)[0]), c)

/* Full stops, which may also abbreviate: ATerm of annex 29. */
static bool is_stop(uint32_t c)
{
    return c == '.' || c == 0x2024 || c == 0xFE52 || c == 0xFF0E;
}

/* STerm of annex 29 in the scripts of the Basic Multilingual Plane. */
static bool is_other_terminator(uint32_t c)
{
    static const struct sentences_range ranges[] = {
        { '!', '!' },       { '?', '?' },       { 0x0589, 0x0589 }, { 0x061D, 0x061F },
        { 0x06D4, 0x06D4 }, { 0x0700, 0x0702 }, { 0x07F9, 0x07F9 }, { 0x0964, 0x0965 },
        { 0x104A, 0x104B }, { 0x1362, 0x1362 }, { 0x1367, 0x1368 }, { 0x166E, 0x166E },
        { 0x1735, 0x1736 }, { 0x17D4, 0x17D5 }, { 0x1803, 0x1803 }, { 0x1809, 0x1809 },
        { 0x1944, 0x1945 }, { 0x1AA8, 0x1AAB }, { 0x1B5A, 0x1B5B }, { 0x1B5E, 0x1B5F },
        { 0x1C3B, 0x1C3C }, { 0x1C7E, 0x1C7F }, { 0x203C, 0x203D }, { 0x2047, 0x2049 },
        { 0x2E2E, 0x2E2E }, { 0x3002, 0x3002 }, { 0xA4FF, 0xA4FF }, { 0xA60E, 0xA60F },
        { 0xA6F3, 0xA6F3 }, { 0xA6F7, 0xA6F7 }, { 0xA876, 0xA877 }, { 0xA8CE, 0xA8CF },
        { 0xA92F, 0xA92F }, { 0xA9C8, 0xA9C9 }, { 0xAA5D, 0xAA5F }, { 0xAAF0, 0xAAF1 },
        { 0xABEB, 0xABEB }, { 0xFE56, 0xFE57 }, { 0xFF01, 0xFF01 }, { 0xFF1F, 0xFF1F },
        { 0xFF61, 0xFF61 },
    };

    return IS_IN(ranges, c);
}

static bool is_terminator(uint32_t c)
{
    return is_stop(c) || is_other_terminator(c);
}

/* Quotes and closing brackets. */
static bool is_closing(uint32_t c)
{
    static const struct sentences_range ranges[] = {
        { '"', '"' },       { '\'', '\'' },     { ')', ')' },       { ']', ']' },
        { '}', '}' },       { 0x00AB, 0x00AB }, { 0x00BB, 0x00BB }, { 0x2018, 0x201F },
        { 0x2039, 0x203A }, { 0x3009, 0x3009 }, { 0x300B, 0x300B }, { 0x300D, 0x300D },
        { 0x300F, 0x300F }, { 0x3011, 0x3011 }, { 0x3015, 0x3015 }, { 0x3017, 0x3017 },
        { 0x3019, 0x3019 }, { 0x301B, 0x301B }, { 0x301D, 0x301F }, { 0xFF09, 0xFF09 },
        { 0xFF3D, 0xFF3D }, { 0xFF5D, 0xFF5D }, { 0xFF60, 0xFF60 }, { 0xFF63, 0xFF63 },
    };

    return IS_IN(ranges, c);
}

/* SContinue of annex 29. */
static bool is_continuing(uint32_t c)
{
    static const struct sentences_range ranges[] = {
        { ',', '-' },       { ':', ';' },       { 0x037E, 0x037E }, { 0x055D, 0x055D },
        { 0x060C, 0x060D }, { 0x07F8, 0x07F8 }, { 0x1802, 0x1802 }, { 0x1808, 0x1808 },
        { 0x2013, 0x2014 }, { 0x3001, 0x3001 }, { 0xFE10, 0xFE11 }, { 0xFE13, 0xFE14 },
        { 0xFE31, 0xFE32 }, { 0xFE50, 0xFE51 }, { 0xFE54, 0xFE55 }, { 0xFE58, 0xFE58 },
        { 0xFE63, 0xFE63 }, { 0xFF0C, 0xFF0D }, { 0xFF1A, 0xFF1B }, { 0xFF64, 0xFF64 },
    };

    return IS_IN(ranges, c);
}

static bool is_letter(uint32_t c)
{
    return gsv_unicode_get_regex(c) & GSV_REGEX_LETTER;
}

static bool is_upper(uint32_t c)
{
    uint32_t lower[GSV_UNICODE_MAX_MAPPING];

    return is_letter(c) && (gsv_unicode_to_lower(c, lower) != 1 || lower[0] != c);
}

/* The letters without a lowercase mapping in the blocks of scripts with case. */
static bool is_lower(uint32_t c)
{
    static const struct sentences_range ranges[] = {
        { 'a', 'z' },       { 0x00AA, 0x02AF }, { 0x0370, 0x052F }, { 0x0560, 0x0588 },
        { 0x13F8, 0x13FD }, { 0x1C80, 0x1C88 }, { 0x1D00, 0x1DBF }, { 0x1E00, 0x1FFF },
        { 0x2C30, 0x2D2D }, { 0xA640, 0xA69B }, { 0xA722, 0xA7FF }, { 0xAB30, 0xABBF },
        { 0xFB00, 0xFB17 }, { 0xFF41, 0xFF5A },
    };

    return is_letter(c) && IS_IN(ranges, c) && !is_upper(c);
}

static bool is_space(uint32_t c)
{
    return gsv_unicode_get_flags(c) & GSV_UNICODE_SPACE;
}

static bool is_line_end(uint32_t c)
{
    return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028;
}

/* -------------------------------------------------------------------------------------- cursor */

struct cursor {
    const char *text;
    size_t size, at;
};

/* The character at the cursor, its bytes in *length; 0 with *length 0 at the end. */
static uint32_t peek(const struct cursor *cursor, size_t *length)
{
    *length = 0;
    return cursor->at < cursor->size ? gsv_utf8_decode(cursor->text + cursor->at, length) : 0;
}

static void skip(struct cursor *cursor, bool (*is_one)(uint32_t c))
{
    size_t length;
    uint32_t c = peek(cursor, &length);

    while (length > 0 && is_one(c)) {
        cursor->at += length;
        c = peek(cursor, &length);
    }
}

/* Line breaks in a run of white space. */
struct blanks {
    bool has_line_end, has_paragraph_end;
};

/* Skip blanks; CR LF is one line end. */
static struct blanks skip_blanks(struct cursor *cursor)
{
    struct blanks found = { 0 };
    size_t length;
    uint32_t c = peek(cursor, &length), last = 0;

    while (length > 0 && is_space(c)) {
        const bool ends_line = is_line_end(c) && !(c == '\n' && last == '\r');

        found.has_paragraph_end |= c == 0x2029 || (ends_line && found.has_line_end);
        found.has_line_end |= ends_line;
        last = c;
        cursor->at += length;
        c = peek(cursor, &length);
    }
    return found;
}

/* --------------------------------------------------------------------------------------- rules */

/* The next letter, before any terminator or line end, is lowercase. */
static bool is_before_lower(struct cursor cursor)
{
    size_t length;
    uint32_t c = peek(&cursor, &length);

    while (length > 0 && !is_letter(c) && !is_terminator(c) && !is_line_end(c) && c != 0x2029) {
        cursor.at += length;
        c = peek(&cursor, &length);
    }
    return length > 0 && is_lower(c);
}

/* Rule 2 on the character directly after a full stop; `before` precedes it. */
static bool joins(uint32_t before, uint32_t after)
{
    if (gsv_unicode_get_regex(after) & GSV_REGEX_NUMBER)
        return true;
    return is_upper(after) && (is_upper(before) || is_lower(before));
}

/* The cursor is at a terminator after `before`. Moves it behind the terminators, closing marks and
 * blanks. True: the sentence ends there. */
static bool ends_at(struct cursor *cursor, uint32_t before)
{
    struct blanks blanks;
    uint32_t c, last = 0;
    size_t length, n = 0;

    for (c = peek(cursor, &length); length > 0 && is_terminator(c); c = peek(cursor, &length)) {
        cursor->at += length;
        last = c;
        n++;
    }
    if (is_stop(last) && length > 0 && joins(n == 1 ? before : 0, c))
        return false;
    skip(cursor, is_closing);
    blanks = skip_blanks(cursor);
    c = peek(cursor, &length);
    if (length == 0 || blanks.has_paragraph_end)
        return true;
    if (is_terminator(c) || (is_continuing(c) && !blanks.has_line_end))
        return false;
    return !is_stop(last) || !is_before_lower(*cursor);
}

size_t gsv_sentence_end(const char *text, size_t size, size_t begin)
{
    struct cursor cursor = { text, size, begin };
    uint32_t before = 0;
    size_t length;

    while (cursor.at < size) {
        const uint32_t c = peek(&cursor, &length);

        if (is_terminator(c)) {
            if (ends_at(&cursor, before))
                return cursor.at;
            before = 0;
        } else if (is_space(c)) {
            if (skip_blanks(&cursor).has_paragraph_end)
                return cursor.at;
            before = ' ';
        } else {
            cursor.at += length;
            before = c;
        }
    }
    return size;
}

void gsv_trim_blanks(const char *text, size_t *begin, size_t *end)
{
    struct cursor cursor = { text, *end, *begin };

    skip(&cursor, is_space);
    *begin = cursor.at;
    while (*end > *begin) {
        size_t at = *end - 1, length;

        while (at > *begin && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
        if (!is_space(gsv_utf8_decode(text + at, &length)))
            return;
        *end = at;
    }
}
