/*
 * unicode.h - what Hugging Face `tokenizers` knows of a code point.
 *
 * The data is that package's, not a Unicode version's: see tools/unicode_tables.py.
 */
#ifndef GSV_TEXT_UNICODE_H
#define GSV_TEXT_UNICODE_H

#include "lib/text/unicode/generated/unicode_tables.h"

#include <stdbool.h>

enum {
    GSV_UNICODE_SPACE = 1 << 1,       /* White_Space */
    GSV_UNICODE_CONTROL = 1 << 0,     /* BertNormalizer's clean_text drops it */
    GSV_UNICODE_PUNCTUATION = 1 << 2, /* BertPreTokenizer isolates it */
    GSV_UNICODE_WORD = 1 << 3,        /* \w of a regular expression */
    GSV_UNICODE_NONSPACING = 1 << 4,  /* Mn: BertNormalizer's strip_accents drops it */
    GSV_UNICODE_COMBINING = 1 << 5,   /* M: the StripAccents normalizer drops it */
    GSV_UNICODE_CHANGES = 1 << 6,     /* has a lowercase or a canonical decomposition */
    GSV_UNICODE_REORDERS = 1 << 7,    /* has a combining class and is not Mn: its order matters */
};

/* What the regular expressions of pre-tokenizers ask. */
enum {
    GSV_REGEX_LETTER = 1 << 0,      /* \p{L} */
    GSV_REGEX_NUMBER = 1 << 1,      /* \p{N} */
    GSV_REGEX_MARK = 1 << 2,        /* \p{M} */
    GSV_REGEX_PUNCTUATION = 1 << 3, /* \p{P} */
    GSV_REGEX_SYMBOL = 1 << 4,      /* \p{S} */
    GSV_REGEX_SPACE = 1 << 5,       /* \s */
    GSV_REGEX_NUMERIC = 1 << 6,     /* the pre-tokenizer "Digits" */
};

#define GSV_UNICODE_LOOKUP(table, c) table[(size_t)table##_blocks[(c) >> 7] << 7 | ((c)&127)]

/* The most code points that one becomes in any mapping (U+FDFA has 18). */
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

/* The blocks that BERT puts spaces around. */
static inline bool gsv_unicode_is_chinese(uint32_t c)
{
    if (c < 0x3400)
        return false;
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Each writes what becomes of c, at most GSV_UNICODE_MAX_MAPPING code points, and returns how
 * many: c itself when there is no mapping. */
size_t gsv_unicode_to_lower(uint32_t c, uint32_t *out);
size_t gsv_unicode_decompose(uint32_t c, bool compatible, uint32_t *out);

/* The character that two compose to; 0 when they do not. */
uint32_t gsv_unicode_compose(uint32_t first, uint32_t second);

#endif
