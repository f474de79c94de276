/*
 * base64.c - see base64.h.
 */
#include "lib/http/base64.h"

#include <stdint.h>
#include <string.h>

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Three bytes as four letters. */
static inline void encode_three(char *to, uint32_t bits)
{
    to[0] = letters[bits >> 18 & 63];
    to[1] = letters[bits >> 12 & 63];
    to[2] = letters[bits >> 6 & 63];
    to[3] = letters[bits & 63];
}

void gsv_base64_encode(char *to, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;

    for (; size >= 3; size -= 3, from += 3, to += 4)
        encode_three(to, (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2]);
    if (size == 0)
        return;
    encode_three(to, (uint32_t)from[0] << 16 | (size > 1 ? (uint32_t)from[1] << 8 : 0));
    to[3] = '=';
    if (size == 1)
        to[2] = '=';
}
