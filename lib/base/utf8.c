/*
 * utf8.c - validates UTF-8, eight ASCII bytes at a time.
 */
#include "lib/base/utf8.h"

#include <string.h>

/* Length of the well-formed character at p; 0 if malformed. The ranges of the second byte follow
 * table 3-7 of the Unicode Standard. */
static size_t character_length(const unsigned char *p, size_t left)
{
    unsigned char low = 0x80, high = 0xBF;
    size_t length;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        length = 2;
    } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        length = 3;
        if (p[0] == 0xE0)
            low = 0xA0; /* overlong forms */
        if (p[0] == 0xED)
            high = 0x9F; /* surrogates */
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        length = 4;
        if (p[0] == 0xF0)
            low = 0x90;
        if (p[0] == 0xF4)
            high = 0x8F; /* above U+10FFFF */
    } else {
        return 0;
    }
    if (left < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

size_t gsv_utf8_valid_length(const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;

    while (i < size) {
        uint64_t eight;
        size_t length;

        if (size - i >= sizeof(eight)) { /* most text is ASCII: test eight bytes at once */
            memcpy(&eight, p + i, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof(eight);
                continue;
            }
        }
        length = character_length(p + i, size - i);
        if (length == 0)
            return i;
        i += length;
    }
    return size;
}
