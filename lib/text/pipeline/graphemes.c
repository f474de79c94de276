/*
 * graphemes.c - grapheme cluster segmentation (Unicode annex 29) and the charsmap normalizer.
 *
 * A state machine over the characters' properties finds the cluster borders. Each cluster, or each
 * of its characters, is then replaced by its charsmap entry. The spans follow `tokenizers`.
 */
#include "lib/text/pipeline/charsmap.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"
#include "lib/text/unicode/generated/grapheme_tables.h"
#include "lib/text/unicode/unicode.h"

#include <string.h>

enum { MAX_LOOKED_UP = 5 /* maximum bytes of a cluster that is looked up */, ZWJ = 0x200D };

/* State of a sequence that only its last character completes. */
enum progress { NOTHING, BEGUN, READY };

struct cluster {
    uint8_t last;           /* properties of the last character */
    uint32_t c;             /* the last character */
    enum progress emoji;    /* BEGUN: a pictograph and extends; READY: then a ZWJ */
    enum progress conjunct; /* BEGUN: an Indic consonant; READY: then a virama */
};

static void take(struct cluster *k, uint32_t c, uint8_t property)
{
    const unsigned class = property & GSV_GRAPHEME_CLASS;

    if (property & GSV_GRAPHEME_PICTURE)
        k->emoji = BEGUN;
    else if (k->emoji != BEGUN || class != GSV_GRAPHEME_EXTEND)
        k->emoji = k->emoji == BEGUN && c == ZWJ ? READY : NOTHING;
    if (property & GSV_GRAPHEME_CONSONANT)
        k->conjunct = BEGUN;
    else if (property & GSV_GRAPHEME_LINKER)
        k->conjunct = k->conjunct == NOTHING ? NOTHING : READY;
    else if (!(property & GSV_GRAPHEME_CONJUNCT))
        k->conjunct = NOTHING;
    k->c = c;
    k->last = property;
}

static bool joins_hangul(unsigned last, unsigned next)
{
    switch (last) {
    case GSV_GRAPHEME_L:
        return next == GSV_GRAPHEME_L || next == GSV_GRAPHEME_V || next == GSV_GRAPHEME_LV ||
               next == GSV_GRAPHEME_LVT;
    case GSV_GRAPHEME_LV:
    case GSV_GRAPHEME_V:
        return next == GSV_GRAPHEME_V || next == GSV_GRAPHEME_T;
    case GSV_GRAPHEME_LVT:
    case GSV_GRAPHEME_T:
        return next == GSV_GRAPHEME_T;
    default:
        return false;
    }
}

static bool joins(const struct cluster *k, uint32_t c, uint8_t property)
{
    const unsigned last = k->last & GSV_GRAPHEME_CLASS, next = property & GSV_GRAPHEME_CLASS;

    if (last == GSV_GRAPHEME_CONTROL || next == GSV_GRAPHEME_CONTROL)
        return k->c == '\r' && c == '\n';
    return next == GSV_GRAPHEME_EXTEND || next == GSV_GRAPHEME_SPACING || c == ZWJ ||
           last == GSV_GRAPHEME_PREPEND || joins_hangul(last, next) ||
           (k->emoji == READY && property & GSV_GRAPHEME_PICTURE) ||
           (k->conjunct == READY && property & GSV_GRAPHEME_CONSONANT);
}

size_t gsv_grapheme_length(const struct gsv_char *at, size_t n)
{
    struct cluster cluster = { 0 };
    size_t length = 0;

    /* Fast path for nearly all text: ASCII characters, a CR excepted, are clusters of their own. */
    if (n > 1 && at[0].c < 0x80 && at[1].c < 0x80 && at[0].c != '\r')
        return 1;
    do {
        take(&cluster, at[length].c, gsv_grapheme_property(at[length].c));
        length++;
    } while (length < n && joins(&cluster, at[length].c, gsv_grapheme_property(at[length].c)));
    return length;
}

/* ------------------------------------------------------------------ the normalizer */

/* Output state. The last character is held back: a replacement with fewer characters is recorded in
 * its `change`, see gsv_decomposed. */
struct making {
    const struct gsv_chars *from;
    struct gsv_chars *to;
    size_t used; /* characters consumed from `from` */
    struct gsv_decomposed last;
    bool has_last;
};

static bool put_last(struct making *m)
{
    struct gsv_chars *to = m->to;

    if (!m->has_last)
        return true;
    if (to->n == to->capacity &&
        !gsv_grow((void **)&to->at, &to->capacity, to->n + 1, sizeof(*to->at), SIZE_MAX))
        return false;
    to->at[to->n++] = gsv_normal_align(m->from, &m->used, m->last.c, m->last.change);
    return true;
}

static inline bool put(struct making *m, uint32_t c, int32_t change)
{
    const bool good = put_last(m);

    m->last = (struct gsv_decomposed){ .c = c, .change = change };
    m->has_last = true;
    return good;
}

/* Put a text in place of n_old characters. Additional characters have change 1. Missing ones are
 * recorded in the last character put, which may precede the text. */
static bool put_text(struct making *m, const char *text, size_t n_old)
{
    size_t n_new = 0;

    for (size_t length; *text; text += length, n_new++)
        if (!put(m, gsv_utf8_decode(text, &length), n_new >= n_old))
            return false;
    if (n_new < n_old)
        m->last.change -= (int32_t)(n_old - n_new);
    return true;
}

static bool put_cluster(struct making *m, const struct gsv_char *at, size_t length,
                        const struct gsv_charsmap *map)
{
    char bytes[4 * MAX_LOOKED_UP];
    size_t size = 0;

    for (size_t i = 0; i < length && size <= MAX_LOOKED_UP; i++)
        size += gsv_utf8_encode(at[i].c, bytes + size);
    if (size <= MAX_LOOKED_UP) {
        const char *text = gsv_charsmap_find(map, bytes, size);

        if (text)
            return put_text(m, text, length);
    }
    for (size_t i = 0; i < length; i++) {
        const char *text = gsv_charsmap_find(map, bytes, gsv_utf8_encode(at[i].c, bytes));

        if (!(text ? put_text(m, text, 1) : put(m, at[i].c, 0)))
            return false;
    }
    return true;
}

bool gsv_normal_charsmap(struct gsv_normal_buffers *b, const struct gsv_charsmap *map)
{
    const struct gsv_chars from = b->text;
    struct making making = { .from = &from, .to = &b->other };

    b->other.n = 0;
    if (!gsv_grow((void **)&b->other.at, &b->other.capacity, from.n, sizeof(*b->other.at),
                  SIZE_MAX))
        return false;
    for (size_t i = 0, length; i < from.n; i += length) {
        length = gsv_grapheme_length(from.at + i, from.n - i);
        if (!put_cluster(&making, from.at + i, length, map))
            return false;
    }
    if (!put_last(&making))
        return false;
    b->text = b->other;
    b->other = from;
    return true;
}
