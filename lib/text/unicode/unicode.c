/*
 * unicode.c - lowercase, decomposition and composition of code points.
 *
 * Mappings come from the generated tables; Hangul syllables are computed. Compositions are found by
 * binary search in a sorted list of pairs.
 */
#include "lib/text/unicode/unicode.h"
#include "lib/base/utf8.h"

/* Hangul syllables: Unicode Standard, section 3.12. */
enum {
    S_BASE = 0xAC00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

static size_t from_pool(uint16_t at, uint32_t c, uint32_t *out)
{
    size_t n;

    if (at == 0) {
        out[0] = c;
        return 1;
    }
    n = gsv_unicode_pool[at];
    for (size_t i = 0; i < n; i++)
        out[i] = gsv_unicode_pool[at + 1 + i];
    return n;
}

size_t gsv_unicode_to_lower(uint32_t c, uint32_t *out)
{
    return from_pool(GSV_UNICODE_LOOKUP(gsv_unicode_lower, c), c, out);
}

size_t gsv_unicode_decompose(uint32_t c, bool compatible, uint32_t *out)
{
    const uint32_t s = c - S_BASE; /* unsigned wrap-around: one comparison tests both bounds */
    uint16_t at = 0;

    if (s < S_COUNT) {
        out[0] = L_BASE + s / (V_COUNT * T_COUNT);
        out[1] = V_BASE + s / T_COUNT % V_COUNT;
        out[2] = T_BASE + s % T_COUNT;
        return s % T_COUNT == 0 ? 2 : 3;
    }
    if (compatible)
        at = GSV_UNICODE_LOOKUP(gsv_unicode_compatible, c);
    if (at == 0)
        at = GSV_UNICODE_LOOKUP(gsv_unicode_canonical, c);
    return from_pool(at, c, out);
}

static uint32_t compose_hangul(uint32_t first, uint32_t second)
{
    const uint32_t l = first - L_BASE, v = second - V_BASE, s = first - S_BASE;
    const uint32_t t = second - T_BASE;

    if (l < L_COUNT && v < V_COUNT)
        return S_BASE + (l * V_COUNT + v) * T_COUNT;
    if (s < S_COUNT && s % T_COUNT == 0 && t > 0 && t < T_COUNT)
        return first + t;
    return 0;
}

uint32_t gsv_unicode_compose(uint32_t first, uint32_t second)
{
    size_t low = 0, high = gsv_unicode_n_pairs;
    const uint32_t hangul = compose_hangul(first, second);

    if (hangul)
        return hangul;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t *pair = gsv_unicode_pairs + 3 * middle;

        if (pair[0] == first && pair[1] == second)
            return pair[2];
        if (pair[0] < first || (pair[0] == first && pair[1] < second))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/*
 * Python's str.lower(): the lowercase mapping of each character, with one exception: a
 * capital sigma at the end of a word becomes a final sigma.
 */

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
