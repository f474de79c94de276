/*
 * byte_alphabet.h - the 256 characters by which byte-level vocabularies write bytes (GPT-2's).
 *
 * A byte that is a printable character of Latin-1 is that character; the others follow U+0100 in
 * their order, so that a space is U+0120.
 */
#ifndef GSV_TEXT_BYTE_ALPHABET_H
#define GSV_TEXT_BYTE_ALPHABET_H

#include <stdint.h>

/* -1: no character of the alphabet. */
static inline int gsv_byte_of_char(uint32_t c)
{
    if (c > 0x143)
        return -1;
    if (c == 0x143)
        return 0xAD;
    if (c > 0x120)
        return (int)(c - 0x121 + 0x7F);
    if (c >= 0x100)
        return (int)(c - 0x100);
    return c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD ? -1 : (int)c;
}

#endif
