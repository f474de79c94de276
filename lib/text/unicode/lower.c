/*
 * lower.c - Python's str.lower(): the lowercase mapping of each character, with one exception: a
 * capital sigma at the end of a word becomes a final sigma.
 */
#include "lib/text/unicode/unicode.h"

#include "lib/base/utf8.h"

#define CAPITAL_SIGMA 0x3A3
#define FINAL_SIGMA 0x3C2

static bool is_letter(uint32_t c)
{
    const uint8_t flags = gsv_unicode_get_flags(c);

    return (flags & GSV_UNICODE_WORD) && !(flags & GSV_UNICODE_COMBINING) &&
           !(c >= '0' && c <= '9') && c != '_';
}

static uint32_t char_before(const char *text, size_t at)
{
    size_t length;

    do
        at--;
    while (((unsigned char)text[at] & 0xC0) == 0x80);
    return gsv_utf8_decode(text + at, &length);
}

/* True if the sigma in [at, end) ends a word of more than one letter. */
static bool ends_word(const char *text, size_t size, size_t at, size_t end)
{
    size_t length;

    return at > 0 && is_letter(char_before(text, at)) &&
           (end == size || !is_letter(gsv_utf8_decode(text + end, &length)));
}

size_t gsv_unicode_lower_at(const char *text, size_t size, size_t at, size_t *length, uint32_t *out)
{
    const uint32_t c = gsv_utf8_decode(text + at, length);

    if (c != CAPITAL_SIGMA || !ends_word(text, size, at, at + *length))
        return gsv_unicode_to_lower(c, out);
    out[0] = FINAL_SIGMA;
    return 1;
}
