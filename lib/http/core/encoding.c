/*
 * encoding.c - percent-decoding with strict checks, in place, and base64.
 */
#include "lib/http/core/encoding.h"
#include "lib/base/utf8.h"

#include <endian.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

/*
 * Percent-decoding with strict checks, in place.
 */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool gsv_uri_decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        unsigned char c = (unsigned char)*from;

        if (c == '%') {
            const int high = digit(from[1]), low = high < 0 ? -1 : digit(from[2]);

            if (low < 0)
                return false;
            c = (unsigned char)(high << 4 | low);
            from += 2;
        }
        if (c < 0x20 || c == 0x7F)
            return false;
        *to++ = (char)c;
    }
    *to = 0;
    return gsv_utf8_valid_length(text, (size_t)(to - text)) == (size_t)(to - text);
}

char *gsv_trim(char *text)
{
    size_t size;

    text += strspn(text, " \t");
    size = strlen(text);
    while (size > 0 && strchr(" \t\r\n", text[size - 1]))
        text[--size] = 0;
    return text;
}

/*
 * Base64 encoder with a lookup table of 12-bit pairs.
 *
 * Six input bytes are four 12-bit numbers; a table of 8 kB maps each to two letters. The table is
 * built once, on first use, by any thread.
 */

enum { PAIR_BITS = 12, PAIR_MASK = (1 << PAIR_BITS) - 1 };

static char pairs[1 << PAIR_BITS][2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_pairs(void)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (unsigned i = 0; i <= PAIR_MASK; i++) {
        pairs[i][0] = letters[i >> 6];
        pairs[i][1] = letters[i & 63];
    }
}

/* Reads eight bytes, uses six, writes eight letters. */
static inline void encode_six(char *to, const unsigned char *from)
{
    uint64_t x;

    memcpy(&x, from, sizeof(x));
    x = be64toh(x);
    memcpy(to, pairs[x >> 52], 2);
    memcpy(to + 2, pairs[x >> 40 & PAIR_MASK], 2);
    memcpy(to + 4, pairs[x >> 28 & PAIR_MASK], 2);
    memcpy(to + 6, pairs[x >> 16 & PAIR_MASK], 2);
}

void gsv_base64_encode(char *to, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    unsigned char rest[8];
    char letters[8];

    pthread_once(&once, make_pairs);
    for (; size >= 8; size -= 6, from += 6, to += 8)
        encode_six(to, from);
    while (size > 0) { /* at most seven bytes remain: copied, so that no byte past them is read */
        const size_t n = size < 6 ? size : 6;

        memset(rest, 0, sizeof(rest));
        memcpy(rest, from, n);
        encode_six(letters, rest);
        memcpy(to, letters, gsv_base64_size(n));
        for (size_t i = (n + 2) / 3 * 3 - n; i > 0; i--)
            to[gsv_base64_size(n) - i] = '=';
        to += gsv_base64_size(n);
        from += n;
        size -= n;
    }
}
