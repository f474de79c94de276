/*
 * grapheme_tables.h - what decides where grapheme clusters end; made by tools/grapheme_tables.py.
 */
#ifndef GSV_TEXT_GRAPHEME_TABLES_H
#define GSV_TEXT_GRAPHEME_TABLES_H

#include "lib/text/unicode/unicode.h"

/* A class, and marks that several classes have. */
enum {
    GSV_GRAPHEME_CLASS = 15,
    GSV_GRAPHEME_CONTROL = 1, /* and CR, LF */
    GSV_GRAPHEME_EXTEND = 2,  /* ZWJ has no class */
    GSV_GRAPHEME_SPACING = 3,
    GSV_GRAPHEME_PREPEND = 4,
    GSV_GRAPHEME_L = 5,
    GSV_GRAPHEME_V = 6,
    GSV_GRAPHEME_T = 7,
    GSV_GRAPHEME_LV = 8,
    GSV_GRAPHEME_LVT = 9,
    GSV_GRAPHEME_PICTURE = 1 << 4,
    GSV_GRAPHEME_CONSONANT = 1 << 5, /* of Indic conjuncts, as the next two */
    GSV_GRAPHEME_LINKER = 1 << 6,
    GSV_GRAPHEME_CONJUNCT = 1 << 7, /* may stand within one */
};

extern const uint16_t gsv_grapheme_blocks[];
extern const uint8_t gsv_grapheme[];

static inline uint8_t gsv_grapheme_property(uint32_t c)
{
    return GSV_UNICODE_LOOKUP(gsv_grapheme, c);
}

#endif
