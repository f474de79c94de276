/*
 * lowercase.c - lowercases a whole text before tokenization, with a map back to the original.
 *
 * sentence-transformers applies Python's str.lower() for models with do_lower_case.
 */
#include "lib/text/pipeline/spans.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>

#define MAX_UTF8 4

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
        uint32_t lower[GSV_UNICODE_MAX_MAPPING];
        const size_t n = gsv_unicode_lower_at(text, size, at, &length, lower);
        const gpuserve_span from = { (uint32_t)at, (uint32_t)(at + length) };

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
