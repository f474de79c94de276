/*
 * bert_fast_path.c - BERT's normalizer and pre-tokenizer in one pass, without normalized text.
 *
 * Most words are ASCII letters and digits before a space or punctuation. They are read 16 bytes at
 * a time (SSE2), folded to lower case and looked up in the word cache. Any other word is assembled
 * character by character in scratch->word, up to the next white space.
 *
 * Characters are normalized one by one, since the result for a character does not depend on its
 * neighbours. The exception is combining marks that strip_accents keeps and that canonical ordering
 * may reorder; see put_marks().
 */
#include "lib/text/pipeline/bert_fast_path.h"

#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct scan {
    struct gsv_sink *sink;
    const char *text;
    size_t text_size;
    size_t begin, end; /* the segment that is scanned */
};

/* The normalized character if it is exactly one character of a word, else 0. */
static uint32_t letter_of(const struct gsv_normalizer *normalizer, uint32_t c)
{
    const uint8_t flags = gsv_unicode_get_flags(c);
    uint32_t parts[GSV_UNICODE_MAX_MAPPING] = { c }, lower[GSV_UNICODE_MAX_MAPPING], letter = 0;
    size_t n = 1;

    if (flags & GSV_UNICODE_REORDERS || (flags & GSV_UNICODE_CONTROL && normalizer->clean))
        return 0;
    if (normalizer->strip_accents)
        n = gsv_unicode_decompose(c, false, parts);
    for (size_t i = 0; i < n; i++) {
        if (normalizer->strip_accents && gsv_unicode_get_flags(parts[i]) & GSV_UNICODE_NONSPACING)
            continue;
        lower[0] = parts[i];
        if (letter || (normalizer->lowercase && gsv_unicode_to_lower(parts[i], lower) != 1))
            return 0;
        letter = lower[0];
    }
    return gsv_unicode_get_flags(letter) & (GSV_UNICODE_SPACE | GSV_UNICODE_PUNCTUATION) ? 0
                                                                                         : letter;
}

void gsv_bert_scan_prepare(struct gsv_tokenizer *t)
{
    for (uint32_t c = 0; c < 128; c++) {
        const uint8_t flags = gsv_unicode_get_flags(c);
        const char byte = (char)(t->normalizer.lowercase && c >= 'A' && c <= 'Z' ? c + 32 : c);
        struct gsv_piece piece;
        uint64_t steps = 0;

        if (t->normalizer.clean && flags & GSV_UNICODE_CONTROL)
            t->byte_classes[c] = GSV_BYTE_DROPPED;
        else if (flags & GSV_UNICODE_SPACE)
            t->byte_classes[c] = GSV_BYTE_SPACE;
        else if (flags & GSV_UNICODE_PUNCTUATION)
            t->byte_classes[c] = GSV_BYTE_PUNCTUATION;
        else if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            t->byte_classes[c] = GSV_BYTE_ALNUM;
        else
            t->byte_classes[c] = GSV_BYTE_LETTER;
        gsv_wordpiece_split(&t->model.wordpiece, &byte, 1, 1, &piece, &steps);
        t->ascii_ids[c] = piece.id;
    }
    memset(t->byte_classes + 128, GSV_BYTE_WIDE, 128);
    for (uint32_t c = GSV_TWO_BYTE_BEGIN; c < GSV_TWO_BYTE_END; c++) {
        const uint32_t letter = letter_of(&t->normalizer, c);

        t->two_byte_letters[c - GSV_TWO_BYTE_BEGIN] = letter <= UINT16_MAX ? (uint16_t)letter : 0;
    }
}

/* ------------------------------------------------------------------ ASCII words */

/* Count the ASCII letters and digits at p before any other byte, at most 16. key[] receives them
 * with `fold` (0x20 or 0) set in each, and the length in the last byte: the cache key if the length
 * is at most 15. */
#ifdef __SSE2__
static inline unsigned take_word(const char *p, unsigned char fold, uint64_t key[2])
{
    static const unsigned char ones_then_zeros[32] = { 255, 255, 255, 255, 255, 255, 255, 255,
                                                       255, 255, 255, 255, 255, 255, 255, 255 };
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    /* Shift the range to the bottom of the signed range; then one signed comparison tests it. */
    const __m128i letter = _mm_cmplt_epi8(_mm_add_epi8(lower, _mm_set1_epi8((char)(128 - 'a'))),
                                          _mm_set1_epi8(-128 + 26));
    const __m128i digit = _mm_cmplt_epi8(_mm_add_epi8(bytes, _mm_set1_epi8((char)(128 - '0'))),
                                         _mm_set1_epi8(-128 + 10));
    const unsigned word = (unsigned)_mm_movemask_epi8(_mm_or_si128(letter, digit));
    const unsigned length = (unsigned)__builtin_ctz(~word);
    const __m128i mask =
        _mm_loadu_si128((const __m128i *)(const void *)(ones_then_zeros + 16 - length));
    const __m128i folded = _mm_and_si128(_mm_or_si128(bytes, _mm_set1_epi8((char)fold)), mask);

    /* Not through memory: a load that spans two pending stores would stall. */
    key[0] = (uint64_t)_mm_cvtsi128_si64(folded);
    key[1] = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(folded, folded)) | (uint64_t)length
                                                                                   << 56;
    return length;
}
#else
static inline unsigned take_word(const char *p, unsigned char fold, uint64_t key[2])
{
    unsigned char folded[16] = { 0 };
    unsigned length = 0;

    for (; length < 16; length++) {
        const unsigned char c = (unsigned char)p[length], lower = c | 0x20;

        if (!(lower >= 'a' && lower <= 'z') && !(c >= '0' && c <= '9'))
            break;
        folded[length] = c | fold;
    }
    if (length <= GSV_CACHED_BYTES)
        folded[GSV_CACHED_BYTES] = (unsigned char)length;
    memcpy(key, folded, 16);
    return length;
}
#endif

/* Emit a word with more tokens than a cache line holds. */
static void put_pieces(struct gsv_sink *s, size_t n, size_t at)
{
    size_t begin = at;

    for (size_t i = 0; i < n; i++) {
        const size_t end = at + s->scratch->pieces[i].end;

        gsv_sink_token(s, s->scratch->pieces[i].id, (uint32_t)begin, (uint32_t)end);
        begin = end;
    }
}

static inline void put_short_word(struct gsv_sink *s, const uint64_t key[2], size_t size, size_t at)
{
    const struct gsv_cached_word *cached = gsv_sink_cached(s, key);
    gpuserve_span *spans;
    size_t begin = at, n;

    if (!cached) {
        cached = gsv_sink_look_up(s, key, size, size, &n);
        if (!cached) {
            put_pieces(s, n, at);
            return;
        }
    }
    if (!gsv_sink_has_capacity(s))
        return;
    memcpy(s->out->ids + s->n, cached->ids, sizeof(cached->ids));
    spans = s->out->spans + s->n;
    n = cached->n;
    s->n += n;
    for (size_t i = 0; i < n; i++) {
        const size_t end = at + cached->ends[i];

        spans[i] = (gpuserve_span){ (uint32_t)begin, (uint32_t)end };
        begin = end;
    }
}

/* Emit the ASCII word at `at` if it ends before an ASCII space or punctuation. Returns its end, or
 * `at` for any other word. */
static inline size_t put_ascii_word(const struct scan *scan, size_t at)
{
    const struct gsv_tokenizer *t = scan->sink->tokenizer;
    const unsigned char fold = t->normalizer.lowercase ? 0x20 : 0;
    uint64_t key[2];
    size_t length;

    if (scan->text_size - at >= 16) {
        length = take_word(scan->text + at, fold, key);
    } else {
        char last[16] = { 0 };

        memcpy(last, scan->text + at, scan->text_size - at);
        length = take_word(last, fold, key);
    }
    if (length > GSV_CACHED_BYTES || length > scan->end - at)
        return at;
    if (at + length < scan->end) {
        const uint8_t next = t->byte_classes[(unsigned char)scan->text[at + length]];

        if (next != GSV_BYTE_SPACE && next != GSV_BYTE_PUNCTUATION)
            return at;
    }
    put_short_word(scan->sink, key, length, at);
    return at + length;
}

/* ------------------------------------------------------------------ other words */

/* Emit a normalized character according to its flags. */
static inline void put_char(const struct scan *scan, uint32_t c, uint8_t flags, size_t begin,
                            size_t end)
{
    if (!(flags & (GSV_UNICODE_SPACE | GSV_UNICODE_PUNCTUATION))) {
        gsv_sink_char(scan->sink, c, (uint32_t)begin, (uint32_t)end);
        return;
    }
    gsv_sink_word(scan->sink);
    if (flags & GSV_UNICODE_SPACE)
        return;
    gsv_sink_char(scan->sink, c, (uint32_t)begin, (uint32_t)end);
    gsv_sink_word(scan->sink);
}

static void put_lower(const struct scan *scan, uint32_t c, size_t begin, size_t end)
{
    const uint8_t flags = gsv_unicode_get_flags(c);
    uint32_t lower[GSV_UNICODE_MAX_MAPPING];
    size_t n;

    if (!(flags & GSV_UNICODE_CHANGES) || !scan->sink->tokenizer->normalizer.lowercase) {
        put_char(scan, c, flags, begin, end);
        return;
    }
    n = gsv_unicode_to_lower(c, lower);
    for (size_t i = 0; i < n; i++)
        put_char(scan, lower[i], gsv_unicode_get_flags(lower[i]), begin, end);
}

/* Decompose, strip accents and lowercase, as the normalizer is configured. */
static void put_changed(const struct scan *scan, uint32_t c, size_t begin, size_t end)
{
    uint32_t parts[GSV_UNICODE_MAX_MAPPING];
    size_t n;

    if (!scan->sink->tokenizer->normalizer.strip_accents ||
        !(gsv_unicode_get_flags(c) & (GSV_UNICODE_CHANGES | GSV_UNICODE_NONSPACING))) {
        put_lower(scan, c, begin, end);
        return;
    }
    n = gsv_unicode_decompose(c, false, parts);
    for (size_t i = 0; i < n; i++)
        if (!(gsv_unicode_get_flags(parts[i]) & GSV_UNICODE_NONSPACING))
            put_lower(scan, parts[i], begin, end);
}

static bool is_dropped(const struct scan *scan, uint32_t c)
{
    return scan->sink->tokenizer->normalizer.clean &&
           gsv_unicode_get_flags(c) & GSV_UNICODE_CONTROL;
}

static bool is_mark(uint32_t c)
{
    uint32_t parts[GSV_UNICODE_MAX_MAPPING];

    gsv_unicode_decompose(c, false, parts);
    return gsv_unicode_get_class(parts[0]) != 0;
}

/* Go back from a mark to its base letter, or to the beginning. */
static size_t find_letter(const struct scan *scan, size_t at)
{
    size_t length;
    uint32_t c;

    do {
        if (at == scan->begin)
            break;
        do
            at--;
        while (((unsigned char)scan->text[at] & 0xC0) == 0x80);
        c = gsv_utf8_decode(scan->text + at, &length);
    } while (is_dropped(scan, c) || is_mark(c));
    return at;
}

/* The end of a character and all marks after it. */
static size_t find_end_of_marks(const struct scan *scan, size_t at)
{
    size_t length;
    uint32_t c;

    gsv_utf8_decode(scan->text + at, &length);
    for (at += length; at < scan->end; at += length) {
        c = gsv_utf8_decode(scan->text + at, &length);
        if (!is_dropped(scan, c) && !is_mark(c))
            break;
    }
    return at;
}

/* True for a single mark directly after an ASCII character, which decomposes to no marks: nothing
 * needs reordering. */
static bool is_lone(const struct scan *scan, uint32_t c, size_t at)
{
    const uint8_t *classes = scan->sink->tokenizer->byte_classes;
    const uint8_t before =
        at > scan->begin ? classes[(unsigned char)scan->text[at - 1]] : GSV_BYTE_WIDE;

    return before != GSV_BYTE_WIDE && before != GSV_BYTE_DROPPED &&
           !(gsv_unicode_get_flags(c) & GSV_UNICODE_CHANGES);
}

/* Normalize, at a mark that is kept or a letter that decomposes to one, all adjacent marks in
 * canonical order. The letter before a mark has been emitted, the marks between were dropped.
 * Returns the end. */
static size_t put_marks(const struct scan *scan, size_t at)
{
    struct gsv_normal_step steps[2] = { { .kind = GSV_NORMAL_CLEAN },
                                        { .kind = GSV_NORMAL_DECOMPOSE } };
    const bool clean = scan->sink->tokenizer->normalizer.clean;
    const struct gsv_normalizer order = { .steps = clean ? steps : steps + 1, .n = clean ? 2 : 1 };
    struct gsv_normal_buffers *buffers = &scan->sink->scratch->normal;
    const size_t end = find_end_of_marks(scan, at);
    size_t length;
    const uint32_t c = gsv_utf8_decode(scan->text + at, &length);
    const bool combining = is_mark(c);

    if (combining && end == at + length && is_lone(scan, c, at)) {
        put_lower(scan, c, at, end);
        return end;
    }
    if (!gsv_normalizer_apply(&order, scan->text, combining ? find_letter(scan, at) : at, end,
                              buffers)) {
        scan->sink->done = scan->sink->no_memory = true;
        return end;
    }
    for (size_t i = 0; i < buffers->text.n; i++) {
        const struct gsv_char *m = &buffers->text.at[i];

        if (combining && gsv_unicode_get_class(m->c) == 0)
            continue; /* part of the letter, already emitted */
        if (!(gsv_unicode_get_flags(m->c) & GSV_UNICODE_NONSPACING))
            put_lower(scan, m->c, m->begin, m->end);
    }
    return end;
}

/* Emit the two-byte character at `at` if it is a letter: Cyrillic, Greek, accented Latin, ... */
static inline bool put_two_bytes(const struct scan *scan, size_t at)
{
    size_t length;
    const uint32_t c = gsv_utf8_decode(scan->text + at, &length);
    const uint32_t letter =
        length == 2 ? scan->sink->tokenizer->two_byte_letters[c - GSV_TWO_BYTE_BEGIN] : 0;

    if (letter)
        gsv_sink_char(scan->sink, letter, (uint32_t)at, (uint32_t)at + 2);
    return letter != 0;
}

/* Emit one character that is not ASCII. Returns its end, or the end of the marks processed with
 * it. */
static size_t put_wide(const struct scan *scan, size_t at)
{
    const struct gsv_normalizer *n = &scan->sink->tokenizer->normalizer;
    size_t length;
    const uint32_t c = gsv_utf8_decode(scan->text + at, &length);
    const uint8_t flags = gsv_unicode_get_flags(c);

    if (flags & GSV_UNICODE_CONTROL && n->clean)
        return at + length;
    if (n->chinese && gsv_unicode_is_chinese(c)) {
        gsv_sink_word(scan->sink);
        put_changed(scan, c, at, at + length);
        gsv_sink_word(scan->sink);
        return at + length;
    }
    if (flags & GSV_UNICODE_REORDERS && n->strip_accents)
        return put_marks(scan, at);
    if (flags & (GSV_UNICODE_CHANGES | GSV_UNICODE_NONSPACING))
        put_changed(scan, c, at, at + length);
    else
        put_char(scan, c, flags, at, at + length);
    return at + length;
}

/* Append the ASCII letters and digits at `at` to the word; returns their end. */
static size_t put_ascii(const struct scan *scan, size_t at)
{
    const struct gsv_tokenizer *t = scan->sink->tokenizer;
    size_t end = at + 1;

    while (end < scan->end && t->byte_classes[(unsigned char)scan->text[end]] == GSV_BYTE_ALNUM)
        end++;
    gsv_sink_ascii(scan->sink, scan->text, at, end, t->normalizer.lowercase ? 0x20 : 0);
    return end;
}

/* Emit words of any characters up to ASCII white space or punctuation; returns the end. */
static size_t put_word(const struct scan *scan, size_t at)
{
    const struct gsv_tokenizer *t = scan->sink->tokenizer;

    while (at < scan->end && !scan->sink->done) {
        const unsigned char c = (unsigned char)scan->text[at];
        const uint8_t class = t->byte_classes[c];

        if (class == GSV_BYTE_SPACE || class == GSV_BYTE_PUNCTUATION)
            break;
        if (class == GSV_BYTE_WIDE) {
            at = put_two_bytes(scan, at) ? at + 2 : put_wide(scan, at);
        } else if (class == GSV_BYTE_ALNUM) {
            at = put_ascii(scan, at);
        } else {
            if (class == GSV_BYTE_LETTER)
                gsv_sink_char(scan->sink, c, (uint32_t)at, (uint32_t)at + 1);
            at++;
        }
    }
    gsv_sink_word(scan->sink);
    return at;
}

void gsv_bert_scan(struct gsv_sink *sink, const char *text, size_t text_size, size_t begin,
                   size_t end)
{
    const struct scan scan = { sink, text, text_size, begin, end };
    const struct gsv_tokenizer *t = sink->tokenizer;
    size_t at = begin;

    while (at < end && !sink->done) {
        const unsigned char c = (unsigned char)text[at];
        size_t next = at;

        switch (t->byte_classes[c]) {
        case GSV_BYTE_SPACE:
            at++;
            continue;
        case GSV_BYTE_PUNCTUATION:
            gsv_sink_token(sink, t->ascii_ids[c], (uint32_t)at, (uint32_t)at + 1);
            at++;
            continue;
        case GSV_BYTE_ALNUM:
            next = put_ascii_word(&scan, at);
            break;
        default:
            break;
        }
        at = next > at ? next : put_word(&scan, at);
    }
}
