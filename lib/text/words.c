/*
 * words.c - splits a text into words, without a tokenizer.
 *
 * The words are those of the regular expression \w+(?:[-_]\w+)*|\S of Python, which GLiNER models
 * use: \w is a letter, a number or "_", and \s includes the separators U+001C to U+001F.
 */
#include "lib/text/tokenizer.h"

#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

static bool is_word_char(uint32_t c)
{
    return c == '_' || (gsv_unicode_get_regex(c) & (GSV_REGEX_LETTER | GSV_REGEX_NUMBER)) != 0;
}

static bool is_space(uint32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || (gsv_unicode_get_flags(c) & GSV_UNICODE_SPACE) != 0;
}

/* The end of the run of word characters at `at`; `at` itself if there is none. */
static size_t end_of_run(const char *text, size_t size, size_t at)
{
    size_t length;

    while (at < size && is_word_char(gsv_utf8_decode(text + at, &length)))
        at += length;
    return at;
}

/* "_" is a word character, so that only "-" joins two runs. */
static size_t end_of_word(const char *text, size_t size, size_t at)
{
    size_t end = end_of_run(text, size, at);

    while (end > at && end < size && text[end] == '-') {
        const size_t next = end_of_run(text, size, end + 1);

        if (next == end + 1)
            break;
        end = next;
    }
    return end;
}

bool gsv_next_word(const char *text, size_t size, size_t at, gpuserve_span *word)
{
    size_t length = 0, end;

    while (at < size && is_space(gsv_utf8_decode(text + at, &length)))
        at += length;
    if (at >= size)
        return false;
    end = end_of_word(text, size, at);
    if (end == at) {
        (void)gsv_utf8_decode(text + at, &length);
        end = at + length;
    }
    *word = (gpuserve_span){ (uint32_t)at, (uint32_t)end };
    return true;
}
