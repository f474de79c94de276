/*
 * base64.c - see base64.h.
 *
 * Six bytes become eight groups of six bits, and these eight letters, all in one 64-bit register:
 * no table, no branch, nothing that a processor might lack.
 */
#include "lib/http/base64.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define ALL(byte) ((byte)*UINT64_C(0x0101010101010101))

/* 1 in each byte that is at least `least`; bytes are below 64. */
static inline uint64_t at_least(uint64_t groups, unsigned least)
{
    return (groups + ALL(128 - least)) >> 7 & ALL(1);
}

/* A-Z, a-z, 0-9, + and / are runs of codes: what is added to a group changes at 26, 52, 62 and 63.
 * No byte leaves 0 to 255 on the way, so none touches its neighbour. */
static inline uint64_t to_letters(uint64_t groups)
{
    return groups + ALL('A') + at_least(groups, 26) * 6 - at_least(groups, 52) * 75 -
           at_least(groups, 62) * 15 + at_least(groups, 63) * 3;
}

/* Reads eight bytes, of which six count, and writes eight letters. */
static inline void encode_six(char *to, const unsigned char *from)
{
    uint64_t x;

    memcpy(&x, from, sizeof(x));
    x = be64toh(x) >> 16;
    x = (x << 8 & UINT64_C(0x00FFFFFF00000000)) | (x & UINT64_C(0xFFFFFF));
    x = (x << 4 & UINT64_C(0x0FFF00000FFF0000)) | (x & UINT64_C(0x00000FFF00000FFF));
    x = (x << 2 & UINT64_C(0x3F003F003F003F00)) | (x & UINT64_C(0x003F003F003F003F));
    x = htobe64(to_letters(x));
    memcpy(to, &x, sizeof(x));
}

void gsv_base64_encode(char *to, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    unsigned char rest[8];
    char letters[8];

    for (; size >= 8; size -= 6, from += 6, to += 8)
        encode_six(to, from);
    while (size > 0) { /* the last seven bytes at most: nothing past them is read */
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
