/*
 * span_trim.c - "trim_offsets": excludes the white space at both ends of a token from its span.
 *
 * Loading counts the white space of each token once. Encoding shortens the span by as many
 * characters of the text. The corner cases follow `tokenizers`.
 */
#include "lib/text/pipeline/spans.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/token_writer.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { SPACE_OF_BYTES = 0x120 }; /* the space of byte-level vocabularies */

static bool is_trimmed(uint32_t c)
{
    return c == SPACE_OF_BYTES || gsv_unicode_get_flags(c) & GSV_UNICODE_SPACE;
}

static size_t begin_of_last(const char *text, size_t size)
{
    do
        size--;
    while (((unsigned char)text[size] & 0xC0) == 0x80);
    return size;
}

struct gsv_trim gsv_trim_of(const char *text, size_t size)
{
    struct gsv_trim trim = { 0 };
    size_t length;

    for (size_t i = 0; i < size && is_trimmed(gsv_utf8_decode(text + i, &length)); i += length)
        trim.leading++;
    while (size > 0) {
        size = begin_of_last(text, size);
        if (!is_trimmed(gsv_utf8_decode(text + size, &length)))
            break;
        trim.trailing++;
    }
    return trim;
}

gpuserve_status gsv_trims_make(struct gsv_trim **trims, const struct gsv_vocab *vocab,
                               const char *name, gpuserve_error *error)
{
    struct gsv_trim *made = gsv_alloc_array(vocab->n_ids, sizeof(*made));
    bool any = false;

    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu tokens", name,
                        vocab->n_ids);
    for (size_t i = 0; i < vocab->n_model; i++) {
        const struct gsv_vocab_token *token = &vocab->tokens[i];
        const struct gsv_trim trim = gsv_trim_of(vocab->text + token->at, token->size);

        made[token->id] = trim;
        any = any || trim.leading || trim.trailing;
    }
    if (any)
        *trims = made;
    else
        free(made);
    return GPUSERVE_OK;
}

/* Shorten a span by the white-space characters of its token. As in `tokenizers`, the end is not cut
 * if fewer characters precede it in the text. The first token of a text keeps a single space before
 * it; after left truncation the first token is known only at the end, see gsv_trim_first(). */
gpuserve_span gsv_trim_span(const struct gsv_sink *sink, struct gsv_trim trim, gpuserve_span span)
{
    const bool first = span.begin == 0 || (sink->n == sink->first && sink->dropped == 0);
    size_t end = span.end;

    if (trim.leading == 1 && first && sink->tokenizer->post.add_prefix_space)
        trim.leading = 0;
    for (; trim.leading > 0 && span.begin < span.end; trim.leading--) {
        size_t length;

        gsv_utf8_decode(sink->text + span.begin, &length);
        span.begin += (uint32_t)length;
    }
    for (; trim.trailing > 0 && end > 0; trim.trailing--)
        end = begin_of_last(sink->text, end);
    if (trim.trailing == 0)
        span.end = end > span.begin ? (uint32_t)end : span.begin;
    return span;
}

/* True if the white space after `at` belongs to an added token (rstrip) that ends there. */
static bool is_taken(const struct gsv_added_tokens *added, const char *text, size_t at)
{
    for (size_t i = 0; i < added->n; i++) {
        const struct gsv_added_token *t = &added->tokens[i];

        if (t->rstrip && t->size <= at && memcmp(text + at - t->size, t->content, t->size) == 0)
            return true;
    }
    return false;
}

/* The white space of an added token whose span was already trimmed to `begin`. */
static struct gsv_trim trim_of_added(const struct gsv_added_tokens *all,
                                     const struct gsv_added_token *added, const char *text,
                                     size_t begin)
{
    struct gsv_trim trim = added->normalized_content
                               ? gsv_trim_of(added->normalized_content, added->normalized_size)
                               : gsv_trim_of(added->content, added->size);
    size_t at = begin, length;

    if (!added->lstrip)
        return trim;
    for (trim.leading = 0; at > 0; trim.leading++) {
        const size_t before = begin_of_last(text, at);

        if (!is_trimmed(gsv_utf8_decode(text + before, &length)))
            break;
        at = before;
    }
    if (is_taken(all, text, at))
        trim.leading = 0;
    return trim;
}

gpuserve_span gsv_trim_first(const struct gsv_tokenizer *t, const char *text, int32_t id,
                             gpuserve_span span)
{
    const struct gsv_added_token *added = gsv_added_by_id(&t->added, id);
    struct gsv_trim trim = { 0 };

    if (!t->post.trim_offsets || !t->post.add_prefix_space || span.begin == 0)
        return span;
    if (added)
        trim = trim_of_added(&t->added, added, text, span.begin);
    else if (t->trims)
        trim = t->trims[id];
    if (trim.leading != 1)
        return span;
    if (trim.trailing > 0 && span.begin == span.end) /* the token is only white space */
        span.end = (uint32_t)begin_of_last(text, span.begin);
    span.begin = (uint32_t)begin_of_last(text, span.begin);
    return span;
}
