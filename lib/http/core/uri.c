/*
 * uri.c - percent-decoding with strict checks, in place.
 */
#include "lib/http/core/encoding.h"

#include "lib/base/utf8.h"

#include <string.h>

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
