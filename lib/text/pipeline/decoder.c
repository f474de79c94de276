/*
 * decoder.c - runs the decoder steps that turn tokens into text.
 *
 * Each step reads one token list and writes another; the two lists are then swapped. decoder_json.c
 * parses the steps. The token lists belong to the call; the decoder is immutable.
 */
#include "lib/text/pipeline/decoder.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"
#include "lib/text/models/byte_alphabet.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ------------------------------------------------------------------ tokens */

static bool put(struct gsv_decoded *t, const char *text, size_t size)
{
    if (!gsv_grow((void **)&t->bytes, &t->capacity, t->size + size, 1, SIZE_MAX))
        return false;
    if (size > 0)
        memcpy(t->bytes + t->size, text, size);
    t->size += size;
    return true;
}

/* End a token: it has the bytes put since the last end. */
static bool end_token(struct gsv_decoded *t)
{
    if (!gsv_grow((void **)&t->ends, &t->ends_capacity, t->n + 1, sizeof(*t->ends), SIZE_MAX))
        return false;
    t->ends[t->n++] = t->size;
    return true;
}

bool gsv_decoded_add(struct gsv_decoded *t, const char *text, size_t size)
{
    return put(t, text, size) && end_token(t);
}

void gsv_decoded_reset(struct gsv_decoded *t)
{
    free(t->bytes);
    free(t->ends);
    *t = (struct gsv_decoded){ 0 };
}

static const char *token_at(const struct gsv_decoded *t, size_t i, size_t *size)
{
    const size_t begin = i > 0 ? t->ends[i - 1] : 0;

    *size = t->ends[i] - begin;
    return t->bytes + begin;
}

/* ------------------------------------------------------------------ steps of single tokens */

/* Append a text with each occurrence of step->text replaced by `to`, from left to right. */
static bool put_replaced(struct gsv_decoded *out, const char *text, size_t size,
                         const struct gsv_decoder_step *step, const char *to, size_t to_size)
{
    for (size_t i = 0; i < size;) {
        const bool found =
            size - i >= step->text_size && memcmp(text + i, step->text, step->text_size) == 0;

        if (!put(out, found ? to : text + i, found ? to_size : 1))
            return false;
        i += found ? step->text_size : 1;
    }
    return true;
}

/* Replace each `from` by `to`, which is not longer, from left to right. Returns the new size. */
static size_t replace_all(char *text, size_t size, const char *from, const char *to)
{
    const size_t from_size = strlen(from), to_size = strlen(to);
    size_t kept = 0;

    for (size_t i = 0; i < size;) {
        if (size - i >= from_size && memcmp(text + i, from, from_size) == 0) {
            memcpy(text + kept, to, to_size);
            kept += to_size;
            i += from_size;
        } else {
            text[kept++] = text[i++];
        }
    }
    return kept;
}

static void clean_up(struct gsv_decoded *out, size_t begin)
{
    /* the order of `tokenizers` */
    static const char *const replaced[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };

    if (out->size == begin) /* the array may still be NULL */
        return;
    for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++)
        out->size = begin + replace_all(out->bytes + begin, out->size - begin, replaced[i][0],
                                        replaced[i][1]);
}

static bool put_wordpiece(struct gsv_decoded *out, const struct gsv_decoder_step *step,
                          const char *text, size_t size, bool first)
{
    const size_t begin = out->size;
    const bool continues =
        !first && size >= step->text_size && memcmp(text, step->text, step->text_size) == 0;

    if (!first && !continues && !put(out, " ", 1))
        return false;
    if (!put(out, text + (continues ? step->text_size : 0),
             size - (continues ? step->text_size : 0)))
        return false;
    if (step->cleanup)
        clean_up(out, begin);
    return true;
}

static size_t count_stripped(const struct gsv_decoder_step *step, const char *text, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < step->count && size - at >= step->text_size; i++) {
        if (memcmp(text + at, step->text, step->text_size) != 0)
            break;
        at += step->text_size;
    }
    return at;
}

static bool put_changed(struct gsv_decoded *out, const struct gsv_decoder_step *step,
                        const char *text, size_t size, size_t i, size_t n)
{
    size_t stripped;

    switch (step->kind) {
    case GSV_DECODE_WORDPIECE:
        return put_wordpiece(out, step, text, size, i == 0);
    case GSV_DECODE_METASPACE:
        return put_replaced(out, text, size, step, " ", i > 0 || !step->drops ? 1 : 0);
    case GSV_DECODE_SUFFIX:
        return put_replaced(out, text, size, step, " ", i + 1 < n ? 1 : 0);
    case GSV_DECODE_REPLACE:
        return put_replaced(out, text, size, step, step->content, step->content_size);
    case GSV_DECODE_STRIP:
        stripped = count_stripped(step, text, size);
        return put(out, text + stripped, size - stripped);
    default:
        return put(out, text, size);
    }
}

static bool change_each(struct gsv_decoded *out, const struct gsv_decoder_step *step,
                        const struct gsv_decoded *in)
{
    for (size_t i = 0; i < in->n; i++) {
        size_t size;
        const char *text = token_at(in, i, &size);

        if (!put_changed(out, step, text, size, i, in->n) || !end_token(out))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ steps of the whole list */

/* The length, 1 to 3, of the truncated or invalid UTF-8 sequence at p (maximal subpart). */
static size_t broken_length(const unsigned char *p, size_t size)
{
    const unsigned char min = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char max = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;

    if (p[0] < 0xE0 || p[0] > 0xF4 || size < 2 || p[1] < min || p[1] > max)
        return 1;
    return p[0] >= 0xF0 && size > 2 && (p[2] & 0xC0) == 0x80 ? 3 : 2;
}

/* Append bytes as UTF-8; each maximal subpart of an invalid sequence becomes one U+FFFD. */
static bool put_lossy(struct gsv_decoded *out, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        const size_t valid = gsv_utf8_valid_length(bytes + at, size - at);

        if (!put(out, bytes + at, valid))
            return false;
        at += valid;
        if (at == size)
            break;
        if (!put(out, replacement, 3))
            return false;
        at += broken_length((const unsigned char *)bytes + at, size - at);
    }
    return true;
}

/* Append the bytes that a token's characters stand for. A token with any other character is
 * appended unchanged. */
static bool put_bytes(struct gsv_decoded *out, const char *text, size_t size)
{
    const size_t before = out->size;

    for (size_t i = 0, length; i < size; i += length) {
        const int byte = gsv_byte_of_char(gsv_utf8_decode(text + i, &length));
        const char c = (char)byte;

        if (byte < 0) {
            out->size = before;
            return put(out, text, size);
        }
        if (!put(out, &c, 1))
            return false;
    }
    return true;
}

static bool join_bytes(struct gsv_decoded *out, const struct gsv_decoded *in)
{
    struct gsv_decoded all = { 0 };
    bool good = true;

    for (size_t i = 0; i < in->n && good; i++) {
        size_t size;
        const char *text = token_at(in, i, &size);

        good = put_bytes(&all, text, size);
    }
    good = good && put_lossy(out, all.bytes, all.size) && end_token(out);
    gsv_decoded_reset(&all);
    return good;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0x61>", else -1. Rust's number parser accepts "+6" too. */
static int fallback_byte(const char *text, size_t size)
{
    int high, low;

    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    high = text[3] == '+' ? 0 : hex_digit(text[3]);
    low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* End a run of bytes: one token if it is valid UTF-8, else one U+FFFD token for each byte. */
static bool end_run(struct gsv_decoded *out, const char *bytes, size_t n)
{
    if (n == 0)
        return true;
    if (gsv_utf8_valid_length(bytes, n) == n)
        return gsv_decoded_add(out, bytes, n);
    for (size_t i = 0; i < n; i++)
        if (!gsv_decoded_add(out, replacement, 3))
            return false;
    return true;
}

static bool join_fallen_back(struct gsv_decoded *out, const struct gsv_decoded *in)
{
    char *run = gsv_alloc_array(in->n, 1);
    size_t n_run = 0;
    bool good = run != NULL;

    for (size_t i = 0; i < in->n && good; i++) {
        size_t size;
        const char *text = token_at(in, i, &size);
        const int byte = fallback_byte(text, size);

        if (byte >= 0) {
            run[n_run++] = (char)byte;
            continue;
        }
        good = end_run(out, run, n_run) && gsv_decoded_add(out, text, size);
        n_run = 0;
    }
    good = good && end_run(out, run, n_run);
    free(run);
    return good;
}

/* ------------------------------------------------------------------ all steps */

static bool run_step(const struct gsv_decoder_step *step, const struct gsv_decoded *in,
                     struct gsv_decoded *out)
{
    switch (step->kind) {
    case GSV_DECODE_BYTE_LEVEL:
        return join_bytes(out, in);
    case GSV_DECODE_BYTE_FALLBACK:
        return join_fallen_back(out, in);
    case GSV_DECODE_FUSE:
        return gsv_decoded_add(out, in->bytes, in->size);
    default:
        return change_each(out, step, in);
    }
}

static bool join_by_spaces(struct gsv_decoded *out, const struct gsv_decoded *in)
{
    for (size_t i = 0; i < in->n; i++) {
        size_t size;
        const char *text = token_at(in, i, &size);

        if ((i > 0 && !put(out, " ", 1)) || !gsv_decoded_add(out, text, size))
            return false;
    }
    return true;
}

bool gsv_decoder_run(const struct gsv_decoder *d, struct gsv_decoded *tokens)
{
    struct gsv_decoded other = { 0 };
    bool good = true;

    for (size_t i = 0; i < (d->joins ? d->n : 1) && good; i++) {
        const struct gsv_decoded in = *tokens;

        good = d->joins ? run_step(&d->steps[i], &in, &other) : join_by_spaces(&other, &in);
        *tokens = other;
        other = in;
        other.size = other.n = 0;
    }
    gsv_decoded_reset(&other);
    return good;
}

void gsv_decoder_reset(struct gsv_decoder *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->steps[i].text);
        free(d->steps[i].content);
    }
    *d = (struct gsv_decoder){ 0 };
}
