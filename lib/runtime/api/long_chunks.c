/*
 * long_chunks.c - chunks of late chunking: by a number of tokens, by sentence, by given byte spans.
 *
 * A token belongs to the chunk with its last byte: a token may begin with the blank before its
 * word. A token without bytes (a lone blank) belongs to the chunk with its position. Tokens are
 * read in order, and the position never decreases, so that each chunk is a range of tokens.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/api/long_texts.h"
#include "lib/text/unicode/sentences.h"

#define DEFAULT_CHUNK_TOKENS 256

gpuserve_status gsv_long_add_chunk(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                   gpuserve_span span, size_t n_tokens, gpuserve_error *error)
{
    if (lt->n_chunks == GPUSERVE_LONG_TEXT_CHUNKS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "the texts have more than %d chunks, the limit of a call",
                        GPUSERVE_LONG_TEXT_CHUNKS);
    if (!gsv_grow((void **)&lt->chunks, &lt->chunks_capacity, lt->n_chunks + 1, sizeof(*lt->chunks),
                  SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu chunks", lt->n_chunks + 1);
    lt->chunks[lt->n_chunks] =
        (gpuserve_chunk){ .text = (uint32_t)cut->index,
                          .row = (uint32_t)(gsv_is_late(lt) ? lt->n_chunks : cut->index),
                          .begin = span.begin,
                          .end = span.end,
                          .n_tokens = (uint32_t)n_tokens };
    lt->n_chunks++;
    return GPUSERVE_OK;
}

static const struct gsv_long_text *text_of(const struct gpuserve_long_texts *lt,
                                           const struct gsv_long_cut *cut)
{
    return &lt->texts[cut->index];
}

/* The chunks of the text's own tokens. */
static uint32_t *own_chunks(const struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut)
{
    return lt->chunk_of + text_of(lt, cut)->first + text_of(lt, cut)->n_before;
}

/* The byte that decides the chunk of own token i, at least `last`. */
static size_t position_of(const struct gsv_long_cut *cut, size_t i, size_t last)
{
    const gpuserve_span span = gsv_long_span(cut, i);
    const size_t at = span.end > span.begin ? (size_t)span.end - 1 : span.begin;

    return at > last ? at : last;
}

/* From the begin of token `first` to the end of the token before `end`. */
static gpuserve_span span_of(const struct gsv_long_cut *cut, size_t first, size_t end)
{
    return (gpuserve_span){ gsv_long_span(cut, first).begin, gsv_long_span(cut, end - 1).end };
}

static gpuserve_status cut_tokens(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                  gpuserve_error *error)
{
    const size_t max = lt->options.chunk_tokens ? lt->options.chunk_tokens : DEFAULT_CHUNK_TOKENS;
    const size_t n = text_of(lt, cut)->n_own;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t first = 0; first < n && st == GPUSERVE_OK; first += max) {
        const size_t end = n - first < max ? n : first + max;

        for (size_t i = first; i < end; i++)
            own_chunks(lt, cut)[i] = (uint32_t)lt->n_chunks;
        st = gsv_long_add_chunk(lt, cut, span_of(cut, first, end), end - first, error);
    }
    return st;
}

/* ----------------------------------------------------------------------------------- sentences */

/* Sentences that are read in order, with their tokens. */
struct sentences {
    size_t begin, end;   /* bytes of the present sentence */
    size_t first, after; /* its tokens */
    size_t last;         /* the position of the last token read */
};

/* Read the next sentence that has tokens; false at the end of the text. A sentence of blanks joins
 * the next one. */
static bool next_sentence(const struct gsv_long_cut *cut, size_t n, struct sentences *s)
{
    s->first = s->after;
    s->begin = s->end;
    while (s->first == s->after && s->after < n) {
        size_t begin = s->begin, end;

        if (s->end < cut->size)
            s->end = gsv_sentence_end(cut->text, cut->size, s->end);
        end = s->end;
        gsv_trim_blanks(cut->text, &begin, &end);
        if (begin == end && s->end < cut->size)
            continue;
        while (s->after < n) {
            const size_t at = position_of(cut, s->after, s->last);

            if (at >= s->end && s->end < cut->size)
                break;
            s->last = at;
            s->after++;
        }
        if (s->first == s->after)
            s->begin = s->end;
    }
    return s->first < s->after;
}

/* Bytes [begin, end) without blanks at the ends. */
static gpuserve_span trimmed(const struct gsv_long_cut *cut, size_t begin, size_t end)
{
    size_t from = begin, to = end;

    gsv_trim_blanks(cut->text, &from, &to);
    if (from == to) { /* blanks that have tokens */
        from = begin;
        to = end;
    }
    return (gpuserve_span){ (uint32_t)from, (uint32_t)to };
}

static gpuserve_status cut_sentences(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                     gpuserve_error *error)
{
    const size_t max = lt->options.chunk_tokens, n = text_of(lt, cut)->n_own;
    struct sentences s = { 0 };
    bool more = next_sentence(cut, n, &s);
    gpuserve_status st = GPUSERVE_OK;

    while (more && st == GPUSERVE_OK) {
        const size_t begin = s.begin, first = s.first;
        size_t end = s.end, after = s.after;

        more = next_sentence(cut, n, &s);
        while (more && s.after - first <= max) {
            end = s.end;
            after = s.after;
            more = next_sentence(cut, n, &s);
        }
        for (size_t i = first; i < after; i++)
            own_chunks(lt, cut)[i] = (uint32_t)lt->n_chunks;
        st = gsv_long_add_chunk(lt, cut, trimmed(cut, begin, end), after - first, error);
    }
    return st;
}

/* --------------------------------------------------------------------------------------- spans */

static bool is_border(const struct gsv_long_cut *cut, size_t at)
{
    return at == cut->size || ((unsigned char)cut->text[at] & 0xC0) != 0x80;
}

/* Check span i of a text; the one before it ends at `last`. */
static gpuserve_status check_span(const struct gsv_long_cut *cut, size_t i, gpuserve_span span,
                                  size_t last, gpuserve_error *error)
{
    if (span.begin >= span.end)
        return gsv_fail(error, GPUSERVE_E_INVALID, "spans[%zu] is empty: bytes %u to %u", i,
                        span.begin, span.end);
    if (span.end > cut->size)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "spans[%zu] is bytes %u to %u, the text has %zu bytes", i, span.begin,
                        span.end, cut->size);
    if (span.begin < last)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "spans[%zu] begins at byte %u, before the end of the span before it, %zu: "
                        "spans are in order and do not overlap",
                        i, span.begin, last);
    if (!is_border(cut, span.begin) || !is_border(cut, span.end))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "spans[%zu] is bytes %u to %u: byte %u is in the middle of a UTF-8 "
                        "character",
                        i, span.begin, span.end,
                        is_border(cut, span.begin) ? span.end : span.begin);
    return GPUSERVE_OK;
}

static gpuserve_status cut_spans(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                 gpuserve_error *error)
{
    const size_t begin = lt->options.span_offsets[cut->index];
    const size_t n_spans = lt->options.span_offsets[cut->index + 1] - begin;
    const gpuserve_span *spans = lt->options.spans + begin;
    const size_t n = text_of(lt, cut)->n_own;
    size_t token = 0, last_byte = 0, last_end = 0;
    gpuserve_status st = GPUSERVE_OK;

    if (n_spans == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "no spans: a text needs at least one");
    for (size_t i = 0; i < n_spans && st == GPUSERVE_OK; i++) {
        size_t n_tokens = 0;

        st = check_span(cut, i, spans[i], last_end, error);
        last_end = spans[i].end;
        for (; st == GPUSERVE_OK && token < n; token++) {
            const size_t at = position_of(cut, token, last_byte);

            if (at >= spans[i].end)
                break;
            last_byte = at;
            if (at < spans[i].begin)
                continue;
            own_chunks(lt, cut)[token] = (uint32_t)lt->n_chunks;
            n_tokens++;
        }
        if (st == GPUSERVE_OK && n_tokens == 0)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "spans[%zu], bytes %u to %u, holds the end of no token", i,
                            spans[i].begin, spans[i].end);
        if (st == GPUSERVE_OK)
            st = gsv_long_add_chunk(lt, cut, spans[i], n_tokens, error);
    }
    return st;
}

/* ---------------------------------------------------------------------------------- whole text */

/* Give the ids around the text to its first and last chunk, and take away what pooling leaves
 * out. */
static void frame_chunks(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                         uint32_t only)
{
    const struct gsv_long_text *text = text_of(lt, cut);
    const size_t own_end = text->n_before + text->n_own, n = own_end + text->n_after;
    uint32_t *chunk_of = lt->chunk_of + text->first;

    for (size_t i = 0; i < text->n_before; i++)
        chunk_of[i] = text->n_own > 0 ? chunk_of[text->n_before] : only;
    for (size_t i = own_end; i < n; i++)
        chunk_of[i] = text->n_own > 0 ? chunk_of[own_end - 1] : only;
    for (size_t i = 0; i < n && i < cut->skip; i++)
        chunk_of[i] = GSV_NO_CHUNK;
}

gpuserve_status gsv_long_cut_chunks(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                    gpuserve_error *error)
{
    const uint32_t by = lt->options.chunk_by, first = (uint32_t)lt->n_chunks;
    gpuserve_status st;

    if (!gsv_grow((void **)&lt->chunk_of, &lt->chunk_of_capacity, lt->n_ids, sizeof(*lt->chunk_of),
                  SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for chunks");
    for (size_t i = text_of(lt, cut)->first; i < lt->n_ids; i++)
        lt->chunk_of[i] = GSV_NO_CHUNK;
    if (by == GPUSERVE_CHUNK_BY_SPANS)
        st = cut_spans(lt, cut, error);
    else if (text_of(lt, cut)->n_own == 0) /* a text without tokens is one chunk */
        st = gsv_long_add_chunk(lt, cut, (gpuserve_span){ 0, 0 }, 0, error);
    else if (by == GPUSERVE_CHUNK_BY_SENTENCES)
        st = cut_sentences(lt, cut, error);
    else
        st = cut_tokens(lt, cut, error);
    if (st == GPUSERVE_OK)
        frame_chunks(lt, cut, first);
    return st;
}
