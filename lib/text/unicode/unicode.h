/*
 * unicode.h - properties and mappings of a code point, as Hugging Face `tokenizers` has them.
 *
 * The tables reproduce that package, not one Unicode version; tools/unicode_tables.py generates
 * them. A lookup has two stages: the block of 128 code points, then the entry.
 */
#ifndef GSV_TEXT_UNICODE_H
#define GSV_TEXT_UNICODE_H

#include "lib/text/unicode/chars.h"
#include "lib/text/unicode/generated/unicode_tables.h"

#include <stdbool.h>

enum {
    GSV_UNICODE_SPACE = 1 << 1,       /* White_Space */
    GSV_UNICODE_CONTROL = 1 << 0,     /* dropped by BertNormalizer's clean_text */
    GSV_UNICODE_PUNCTUATION = 1 << 2, /* isolated by BertPreTokenizer */
    GSV_UNICODE_WORD = 1 << 3,        /* regular expression \w */
    GSV_UNICODE_NONSPACING = 1 << 4,  /* Mn: dropped by BertNormalizer's strip_accents */
    GSV_UNICODE_COMBINING = 1 << 5,   /* M: dropped by the StripAccents normalizer */
    GSV_UNICODE_CHANGES = 1 << 6,     /* has a lowercase mapping or a canonical decomposition */
    GSV_UNICODE_REORDERS = 1 << 7,    /* has a combining class and is not Mn: order matters */
};

/* Properties for the regular expressions of pre-tokenizers. */
enum {
    GSV_REGEX_LETTER = 1 << 0,      /* \p{L} */
    GSV_REGEX_NUMBER = 1 << 1,      /* \p{N} */
    GSV_REGEX_MARK = 1 << 2,        /* \p{M} */
    GSV_REGEX_PUNCTUATION = 1 << 3, /* \p{P} */
    GSV_REGEX_SYMBOL = 1 << 4,      /* \p{S} */
    GSV_REGEX_SPACE = 1 << 5,       /* \s */
    GSV_REGEX_NUMERIC = 1 << 6,     /* split by the pre-tokenizer "Digits" */
};

#define GSV_UNICODE_LOOKUP(table, c) table[(size_t)table##_blocks[(c) >> 7] << 7 | ((c)&127)]

/* The maximum number of code points in a mapping (U+FDFA has 18). */
#define GSV_UNICODE_MAX_MAPPING 18

static inline uint8_t gsv_unicode_get_flags(uint32_t c)
{
    return GSV_UNICODE_LOOKUP(gsv_unicode_flags, c);
}

static inline uint8_t gsv_unicode_get_regex(uint32_t c)
{
    return GSV_UNICODE_LOOKUP(gsv_unicode_regex, c);
}

static inline uint8_t gsv_unicode_get_class(uint32_t c)
{
    return GSV_UNICODE_LOOKUP(gsv_unicode_class, c);
}

/* The CJK blocks that BERT puts spaces around. */
static inline bool gsv_unicode_is_chinese(uint32_t c)
{
    if (c < 0x3400)
        return false;
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Write the mapping of c, at most GSV_UNICODE_MAX_MAPPING code points; without a mapping c itself.
 * Returns the number of code points. */
size_t gsv_unicode_to_lower(uint32_t c, uint32_t *out);
/* The same for the character at text[at], *length bytes, as Python's str.lower() of text[0, size)
 * maps it; implemented in unicode.c. */
size_t gsv_unicode_lower_at(const char *text, size_t size, size_t at, size_t *length,
                            uint32_t *out);
size_t gsv_unicode_decompose(uint32_t c, bool compatible, uint32_t *out);

/* The canonical composition of two characters; 0 if they do not compose. */
uint32_t gsv_unicode_compose(uint32_t first, uint32_t second);

/* The Unicode normalization forms NFD, NFC, NFKD and NFKC. */

/* Align the next character of a normalized text as `tokenizers` does. The characters of the old
 * text (at least one) are consumed in order, as `change` says (struct gsv_decomposed). */
static inline struct gsv_char gsv_normal_align(const struct gsv_chars *old, size_t *used,
                                               uint32_t c, int32_t change)
{
    size_t source = change > 0 ? (*used > 0 ? *used - 1 : 0) : *used;

    if (source >= old->n)
        source = old->n - 1;
    if (change <= 0)
        *used += 1 + (size_t)-change;
    return (struct gsv_char){ c, old->at[source].begin, old->at[source].end };
}

/* Normalize buffers->text. False when out of memory. */
bool gsv_normal_form(struct gsv_normal_buffers *buffers, bool compatible, bool compose);

#endif
