/*
 * byte_alphabet.h - GPT-2's byte alphabet: 256 characters that stand for bytes in vocabularies.
 *
 * A byte that is a printable Latin-1 character stands for itself. The other bytes map, in their
 * order, to the characters from U+0100; a space is U+0120.
 */
#ifndef GSV_TEXT_BYTE_ALPHABET_H
#define GSV_TEXT_BYTE_ALPHABET_H

#include <stdint.h>

/* The byte of a character; -1 if the character is not in the alphabet. */
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
