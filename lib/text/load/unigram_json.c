/*
 * unigram_json.c - reads the "model" object of tokenizer.json if its type is Unigram.
 *
 * Scores reproduce the arithmetic of the JSON reader that `tokenizers` uses: the digits as a 64-bit
 * integer, multiplied or divided once by a power of ten. Half of the scores with 17 digits differ
 * from the nearest double in the last bit. That bit decides ties between segmentations of a word.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/text/models/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEN(e)                                                                                \
    1e##e##0, 1e##e##1, 1e##e##2, 1e##e##3, 1e##e##4, 1e##e##5, 1e##e##6, 1e##e##7, 1e##e##8, \
        1e##e##9

static const double powers[] = {
    TEN(0),  TEN(1),  TEN(2),  TEN(3),  TEN(4),  TEN(5),  TEN(6),  TEN(7),  TEN(8),  TEN(9),
    TEN(10), TEN(11), TEN(12), TEN(13), TEN(14), TEN(15), TEN(16), TEN(17), TEN(18), TEN(19),
    TEN(20), TEN(21), TEN(22), TEN(23), TEN(24), TEN(25), TEN(26), TEN(27), TEN(28), TEN(29),
    1e300,   1e301,   1e302,   1e303,   1e304,   1e305,   1e306,   1e307,   1e308,
};

enum {
    MAX_POWER = 308,
    MAX_EXPONENT = 1 << 20, /* the score is 0 or not finite beyond it */
};

/* A number while it is parsed: digits * 10^exponent. */
struct decimal {
    uint64_t digits;
    int64_t exponent;
    bool full; /* a digit did not fit: it and the following digits are dropped */
};

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static void add_digit(struct decimal *d, char c, bool fraction)
{
    uint64_t digits;

    if (!d->full && !__builtin_mul_overflow(d->digits, (uint64_t)10, &digits) &&
        !__builtin_add_overflow(digits, (uint64_t)(c - '0'), &digits)) {
        d->digits = digits;
        d->exponent -= fraction;
        return;
    }
    d->full = true;
    d->exponent += !fraction;
}

/* Parse an exponent, `p` at the 'e'; NULL if malformed. */
static const char *read_exponent(struct decimal *d, const char *p, const char *end)
{
    const bool negative = ++p < end && *p == '-';
    int64_t exponent = 0;

    p += p < end && (*p == '-' || *p == '+');
    if (!is_digit(p, end))
        return NULL;
    for (; is_digit(p, end); p++)
        if (exponent < MAX_EXPONENT)
            exponent = 10 * exponent + (*p - '0');
    d->exponent += negative ? -exponent : exponent;
    return p;
}

static const char *read_decimal(struct decimal *d, const char *p, const char *end)
{
    const char *const first = p;

    while (is_digit(p, end))
        add_digit(d, *p++, false);
    if (p == first || (*first == '0' && p - first > 1))
        return NULL;
    if (p < end && *p == '.') {
        if (!is_digit(++p, end))
            return NULL;
        d->full = false; /* fraction digits that fit are appended even after dropped digits */
        while (is_digit(p, end))
            add_digit(d, *p++, true);
    }
    return p < end && (*p == 'e' || *p == 'E') ? read_exponent(d, p, end) : p;
}

bool gsv_unigram_score(const char *text, size_t size, double *score)
{
    const char *const end = text + size;
    const bool negative = size > 0 && *text == '-';
    struct decimal d = { 0 };
    double value;

    if (read_decimal(&d, text + negative, end) != end)
        return false;
    value = (double)d.digits;
    for (; d.exponent < -MAX_POWER && value != 0; d.exponent += MAX_POWER)
        value /= powers[MAX_POWER];
    if (value != 0 && d.exponent > MAX_POWER)
        return false;
    if (value != 0)
        value = d.exponent < 0 ? value / powers[-d.exponent] : value * powers[d.exponent];
    *score = negative ? -value : value;
    return isfinite(value);
}

/* ------------------------------------------------------------------ fields */

gpuserve_status gsv_unigram_add_score(struct gsv_unigram *m, double score, const char *name,
                                      gpuserve_error *error)
{
    if (!gsv_grow((void **)&m->scores, &m->scores_capacity, m->n_scores + 1, sizeof(*m->scores),
                  GSV_VOCAB_MAX_ID + 1))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory at %zu pieces", name,
                        m->n_scores);
    m->scores[m->n_scores++] = score;
    return GPUSERVE_OK;
}

static gpuserve_status read_score(struct gsv_unigram *m, struct gsv_json_reader *r,
                                  gpuserve_error *error)
{
    struct gsv_json_slice slice;
    const gpuserve_status status = gsv_json_reader_value(r, &slice, error);
    double score;

    if (status != GPUSERVE_OK)
        return status;
    if (!gsv_unigram_score(slice.at, slice.size, &score))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: piece %zu: invalid score %.*s", r->name,
                        m->n_scores, (int)(slice.size < 40 ? slice.size : 40), slice.at);
    return gsv_unigram_add_score(m, score, r->name, error);
}

/* Read a piece: ["text", score]. */
static gpuserve_status read_piece(struct gsv_unigram *m, struct gsv_json_reader *r,
                                  struct gsv_vocab *vocab, gpuserve_error *error)
{
    struct gsv_json_slice text = { 0 };
    bool more = false;
    gpuserve_status status = gsv_json_reader_open(r, '[', error);

    if (status == GPUSERVE_OK)
        status = gsv_json_reader_element(r, true, &more, error);
    if (status == GPUSERVE_OK && more)
        status = gsv_json_reader_value(r, &text, error);
    if (status == GPUSERVE_OK && more && *text.at == '"')
        status =
            gsv_vocab_add(vocab, r, (struct gsv_json_slice){ text.at + 1, text.size - 2 }, error);
    else if (status == GPUSERVE_OK)
        more = false;
    if (status == GPUSERVE_OK && more)
        status = gsv_json_reader_element(r, false, &more, error);
    if (status == GPUSERVE_OK && more)
        status = read_score(m, r, error);
    if (status == GPUSERVE_OK && more) {
        status = gsv_json_reader_element(r, false, &more, error);
        more = !more; /* no third element */
    }
    if (status == GPUSERVE_OK && !more)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: piece %zu is not [text, score]", r->name,
                        vocab->n);
    return status;
}

static gpuserve_status read_pieces(struct gsv_unigram *m, struct gsv_json_slice array,
                                   struct gsv_vocab *vocab, const char *name, gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(array, name);
    gpuserve_status status = gsv_json_reader_open(&reader, '[', error);

    if (status == GPUSERVE_OK) /* the pieces' text is no larger than the array */
        status = gsv_vocab_reserve(vocab, array.size, name, error);
    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        status = gsv_json_reader_element(&reader, first, &more, error);
        if (status != GPUSERVE_OK || !more)
            break;
        status = read_piece(m, &reader, vocab, error);
    }
    return status == GPUSERVE_OK ? gsv_vocab_finish(vocab, name, error) : status;
}

static bool is_word(struct gsv_json_slice slice, const char *word)
{
    return slice.size == strlen(word) && memcmp(slice.at, word, slice.size) == 0;
}

static gpuserve_status read_unknown(struct gsv_unigram *m, struct gsv_json_slice value,
                                    const struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(value, name);
    gpuserve_status status;
    uint32_t id = 0;

    m->unknown = -1;
    if (!value.at || is_word(value, "null"))
        return GPUSERVE_OK;
    status = gsv_json_reader_id(&reader, INT32_MAX, &id, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    if (status != GPUSERVE_OK)
        return status;
    if (id >= vocab->n_model)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: \"unk_id\" is %u, but the vocabulary has %zu pieces", name, id,
                        vocab->n_model);
    m->unknown = (int32_t)id;
    return GPUSERVE_OK;
}

gpuserve_status gsv_unigram_read(struct gsv_unigram *m, const struct gsv_member *fields,
                                 struct gsv_vocab *vocab, const char *name, gpuserve_error *error)
{
    const struct gsv_json_slice fallback = fields[GSV_MODEL_BYTE_FALLBACK].value;
    gpuserve_status status = read_pieces(m, fields[GSV_MODEL_VOCAB].value, vocab, name, error);

    if (status == GPUSERVE_OK)
        status = read_unknown(m, fields[GSV_MODEL_UNK_ID].value, vocab, name, error);
    if (status != GPUSERVE_OK)
        return status;
    m->byte_fallback = fallback.at && is_word(fallback, "true");
    if (fallback.at && !m->byte_fallback && !is_word(fallback, "false"))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: model: \"byte_fallback\" is neither true nor false", name);
    return GPUSERVE_OK;
}
