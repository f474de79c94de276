/*
 * lowercase.c - lowercases a whole text before tokenization, with a map back to the original.
 *
 * sentence-transformers applies Python's str.lower() for models with do_lower_case. That is the
 * lowercase mapping of each character, with one exception: a capital sigma at the end of a word
 * becomes a final sigma.
 */
#include "lib/text/pipeline/spans.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>

#define CAPITAL_SIGMA 0x3A3
#define FINAL_SIGMA 0x3C2
#define MAX_UTF8 4

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

static bool append(struct gsv_lowered *l, uint32_t c, gpuserve_span from)
{
    size_t length;

    if (!gsv_grow((void **)&l->bytes, &l->bytes_capacity, l->n + MAX_UTF8, 1, SIZE_MAX) ||
        !gsv_grow((void **)&l->spans, &l->spans_capacity, l->n + MAX_UTF8, sizeof(*l->spans),
                  SIZE_MAX))
        return false;
    length = gsv_utf8_encode(c, l->bytes + l->n);
    for (size_t i = 0; i < length; i++)
        l->spans[l->n + i] = from;
    l->n += length;
    return true;
}

bool gsv_lower_text(struct gsv_lowered *l, const char *text, size_t size)
{
    size_t length;

    l->n = 0;
    for (size_t at = 0; at < size; at += length) {
        const uint32_t c = gsv_utf8_decode(text + at, &length);
        const gpuserve_span from = { (uint32_t)at, (uint32_t)(at + length) };
        uint32_t lower[GSV_UNICODE_MAX_MAPPING];
        size_t n = 1;

        if (c == CAPITAL_SIGMA && ends_word(text, size, at, at + length))
            lower[0] = FINAL_SIGMA;
        else
            n = gsv_unicode_to_lower(c, lower);
        for (size_t i = 0; i < n; i++)
            if (!append(l, lower[i], from))
                return false;
    }
    return true;
}

void gsv_lowered_reset(struct gsv_lowered *l)
{
    free(l->bytes);
    free(l->spans);
    *l = (struct gsv_lowered){ 0 };
}

gpuserve_span gsv_lowered_span(const struct gsv_lowered *l, gpuserve_span span)
{
    if (span.begin >= span.end || span.end > l->n)
        return span;
    return (gpuserve_span){ l->spans[span.begin].begin, l->spans[span.end - 1].end };
}
