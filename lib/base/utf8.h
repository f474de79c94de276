/*
 * utf8.h - validates, decodes and encodes UTF-8 (RFC 3629: no surrogates, nothing above U+10FFFF,
 * shortest form only).
 */
#ifndef GSV_BASE_UTF8_H
#define GSV_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The number of leading well-formed bytes; `size` if all are well formed. */
size_t gsv_utf8_valid_length(const char *text, size_t size);

/* Decodes one character of well-formed UTF-8: returns its code point, its length in *length. */
static inline uint32_t gsv_utf8_decode(const char *text, size_t *length)
{
    const unsigned char *p = (const unsigned char *)text;

    if (p[0] < 0x80) {
        *length = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
           (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

/* Encodes a code point; returns the number of bytes written, 1 to 4. */
static inline size_t gsv_utf8_encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* The number of characters of well-formed UTF-8. */
static inline size_t gsv_utf8_count(const char *text, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80; /* not a continuation byte */
    return n;
}

/* The number of bytes of the first n characters of well-formed UTF-8, at most `size`. */
static inline size_t gsv_utf8_prefix(const char *text, size_t size, size_t n)
{
    size_t at = 0, length;

    for (; n > 0 && at < size; n--, at += length)
        gsv_utf8_decode(text + at, &length);
    return at;
}

#endif
