/*
 * normalizer.c - runs the steps of a normalizer.
 *
 * A step changes buffers->text in place, or writes buffers->other and swaps the two buffers.
 * normal_forms.c implements NFD, NFC, NFKD and NFKC; normalizer_json.c parses tokenizer.json.
 */
#include "lib/text/pipeline/normalizer.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/charsmap.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static bool reserve(struct gsv_chars *chars, size_t n)
{
    return gsv_grow((void **)&chars->at, &chars->capacity, n, sizeof(*chars->at), SIZE_MAX);
}

static bool set_text(struct gsv_chars *to, const char *text, size_t begin, size_t end)
{
    to->n = 0;
    if (!reserve(to, end - begin))
        return false;
    for (size_t i = begin, length; i < end; i += length) {
        const uint32_t c = gsv_utf8_decode(text + i, &length);

        to->at[to->n++] = (struct gsv_char){ c, (uint32_t)i, (uint32_t)(i + length) };
    }
    return true;
}

static void swap(struct gsv_normal_buffers *b)
{
    const struct gsv_chars text = b->text;

    b->text = b->other;
    b->other = text;
}

static void clean(struct gsv_chars *text)
{
    size_t kept = 0;

    for (size_t i = 0; i < text->n; i++) {
        const uint8_t flags = gsv_unicode_get_flags(text->at[i].c);

        if (flags & GSV_UNICODE_CONTROL)
            continue;
        text->at[kept] = text->at[i];
        if (flags & GSV_UNICODE_SPACE)
            text->at[kept].c = ' ';
        kept++;
    }
    text->n = kept;
}

static void drop(struct gsv_chars *text, uint8_t flag)
{
    size_t kept = 0;

    for (size_t i = 0; i < text->n; i++)
        if (!(gsv_unicode_get_flags(text->at[i].c) & flag))
            text->at[kept++] = text->at[i];
    text->n = kept;
}

static bool put_spaces_around_chinese(struct gsv_normal_buffers *b)
{
    struct gsv_chars *to = &b->other;

    to->n = 0;
    if (!reserve(to, 3 * b->text.n))
        return false;
    for (size_t i = 0; i < b->text.n; i++) {
        const struct gsv_char c = b->text.at[i];
        const struct gsv_char space = { ' ', c.begin, c.end };
        const bool chinese = gsv_unicode_is_chinese(c.c);

        if (chinese)
            to->at[to->n++] = space;
        to->at[to->n++] = c;
        if (chinese)
            to->at[to->n++] = space;
    }
    swap(b);
    return true;
}

static bool lowercase(struct gsv_normal_buffers *b)
{
    struct gsv_chars *to = &b->other;

    to->n = 0;
    for (size_t i = 0; i < b->text.n; i++) {
        uint32_t lower[GSV_UNICODE_MAX_MAPPING];
        const size_t n = gsv_unicode_to_lower(b->text.at[i].c, lower);

        if (!reserve(to, to->n + n))
            return false;
        for (size_t k = 0; k < n; k++) {
            to->at[to->n] = b->text.at[i];
            to->at[to->n++].c = lower[k];
        }
    }
    swap(b);
    return true;
}

static void strip(struct gsv_chars *text, bool left, bool right)
{
    size_t begin = 0;

    while (left && begin < text->n && gsv_unicode_get_flags(text->at[begin].c) & GSV_UNICODE_SPACE)
        begin++;
    while (right && text->n > begin &&
           gsv_unicode_get_flags(text->at[text->n - 1].c) & GSV_UNICODE_SPACE)
        text->n--;
    text->n -= begin;
    memmove(text->at, text->at + begin, text->n * sizeof(*text->at));
}

static bool matches(const struct gsv_chars *text, size_t at, const struct gsv_chars *pattern)
{
    if (pattern->n > text->n - at)
        return false;
    for (size_t i = 0; i < pattern->n; i++)
        if (text->at[at + i].c != pattern->at[i].c)
            return false;
    return true;
}

/* \s{min_length,}, or with `lines` \s{min_length,}|[\n\r\t] */
static size_t match_space(const struct gsv_chars *text, size_t at,
                          const struct gsv_normal_step *step)
{
    const uint32_t c = text->at[at].c;
    size_t end = at;

    while (end < text->n && gsv_unicode_get_regex(text->at[end].c) & GSV_REGEX_SPACE)
        end++;
    if (end - at >= step->min_length)
        return end;
    return step->lines && (c == '\n' || c == '\r' || c == '\t') ? at + 1 : at;
}

/* The end of the pattern's match at `at`; `at` if it does not match. */
static size_t match(const struct gsv_chars *text, size_t at, const struct gsv_normal_step *step)
{
    const struct gsv_chars *const pattern = &step->pattern;
    size_t end = at + pattern->n;

    if (step->kind == GSV_NORMAL_REPLACE_SPACE)
        return match_space(text, at, step);
    if (!matches(text, at, pattern))
        return at;
    while (step->kind == GSV_NORMAL_REPLACE_RUN && end < text->n &&
           text->at[end].c == pattern->at[pattern->n - 1].c)
        end++;
    return end;
}

/* New characters take the span of the last replaced one. A replacement not longer than the shortest
 * match is made in place. */
static bool replace(struct gsv_normal_buffers *b, const struct gsv_normal_step *step)
{
    const size_t shortest = step->kind == GSV_NORMAL_REPLACE_SPACE ? 1 : step->pattern.n;
    const bool grows = step->content.n > shortest;
    const struct gsv_chars from = b->text;
    struct gsv_chars *const to = grows ? &b->other : &b->text;

    to->n = 0;
    for (size_t i = 0; i < from.n;) {
        const size_t end = match(&from, i, step);

        if (grows && !reserve(to, to->n + step->content.n))
            return false;
        if (end == i) {
            to->at[to->n++] = from.at[i++];
            continue;
        }
        i = end;
        for (size_t k = 0; k < step->content.n; k++) {
            to->at[to->n] = from.at[i - 1];
            to->at[to->n++].c = step->content.at[k].c;
        }
    }
    if (grows)
        swap(b);
    return true;
}

/* New characters take the span of the first character. */
static bool prepend(struct gsv_normal_buffers *b, const struct gsv_chars *content)
{
    struct gsv_chars *to = &b->other;

    if (b->text.n == 0)
        return true;
    if (!reserve(to, content->n + b->text.n))
        return false;
    for (size_t i = 0; i < content->n; i++) {
        to->at[i] = b->text.at[0];
        to->at[i].c = content->at[i].c;
    }
    memcpy(to->at + content->n, b->text.at, b->text.n * sizeof(*to->at));
    to->n = content->n + b->text.n;
    swap(b);
    return true;
}

/* The rules of SentencePiece's nmt_nfkc that are not in a charsmap. */
static void clean_for_translation(struct gsv_chars *text)
{
    size_t kept = 0;

    for (size_t i = 0; i < text->n; i++) {
        const uint32_t c = text->at[i].c;

        if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
            c == 0x8F || c == 0x9F)
            continue;
        text->at[kept] = text->at[i];
        if (c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
            c == 0xFEFF || c == 0xFFFD)
            text->at[kept].c = ' ';
        kept++;
    }
    text->n = kept;
}

static bool run_step(const struct gsv_normal_step *step, struct gsv_normal_buffers *b)
{
    switch (step->kind) {
    case GSV_NORMAL_CLEAN:
        clean(&b->text);
        return true;
    case GSV_NORMAL_CHINESE:
        return put_spaces_around_chinese(b);
    case GSV_NORMAL_DECOMPOSE:
        return gsv_normal_form(b, false, false);
    case GSV_NORMAL_DECOMPOSE_K:
        return gsv_normal_form(b, true, false);
    case GSV_NORMAL_COMPOSE:
        return gsv_normal_form(b, false, true);
    case GSV_NORMAL_COMPOSE_K:
        return gsv_normal_form(b, true, true);
    case GSV_NORMAL_DROP_NONSPACING:
        drop(&b->text, GSV_UNICODE_NONSPACING);
        return true;
    case GSV_NORMAL_DROP_COMBINING:
        drop(&b->text, GSV_UNICODE_COMBINING);
        return true;
    case GSV_NORMAL_LOWERCASE:
        return lowercase(b);
    case GSV_NORMAL_STRIP:
        strip(&b->text, step->left, step->right);
        return true;
    case GSV_NORMAL_REPLACE:
    case GSV_NORMAL_REPLACE_RUN:
    case GSV_NORMAL_REPLACE_SPACE:
        return replace(b, step);
    case GSV_NORMAL_PREPEND:
        return prepend(b, &step->content);
    case GSV_NORMAL_NMT:
        clean_for_translation(&b->text);
        return true;
    case GSV_NORMAL_CHARSMAP:
        return gsv_normal_charsmap(b, step->charsmap);
    }
    return true;
}

bool gsv_normalizer_apply(const struct gsv_normalizer *n, const char *text, size_t begin,
                          size_t end, struct gsv_normal_buffers *b)
{
    if (!set_text(&b->text, text, begin, end))
        return false;
    for (size_t i = 0; i < n->n; i++)
        if (!run_step(&n->steps[i], b))
            return false;
    return true;
}

void gsv_normalizer_reset(struct gsv_normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        free(n->steps[i].pattern.at);
        free(n->steps[i].content.at);
        gsv_charsmap_free(&n->steps[i].charsmap);
    }
    free(n->steps);
    *n = (struct gsv_normalizer){ 0 };
}

size_t gsv_normalizer_bytes(const struct gsv_normalizer *n)
{
    size_t bytes = n->capacity * sizeof(*n->steps);

    for (size_t i = 0; i < n->n; i++)
        bytes += (n->steps[i].pattern.capacity + n->steps[i].content.capacity) *
                     sizeof(struct gsv_char) +
                 gsv_charsmap_bytes(n->steps[i].charsmap);
    return bytes;
}

void gsv_normal_buffers_reset(struct gsv_normal_buffers *b)
{
    free(b->text.at);
    free(b->other.at);
    free(b->decomposed);
    free(b->sorted);
    *b = (struct gsv_normal_buffers){ 0 };
}
