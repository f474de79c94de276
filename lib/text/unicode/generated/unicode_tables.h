/*
 * unicode_tables.h - the generated tables (tools/unicode_tables.py); read them through unicode.h.
 *
 * A table is in two stages: NAME_blocks[c / 128] is the number of the block of 128 values in NAME
 * that holds the value of code point c.
 */
#ifndef GSV_TEXT_UNICODE_TABLES_H
#define GSV_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

extern const uint16_t gsv_unicode_flags_blocks[];
extern const uint8_t gsv_unicode_flags[];
extern const uint16_t gsv_unicode_regex_blocks[];
extern const uint8_t gsv_unicode_regex[];
extern const uint16_t gsv_unicode_class_blocks[];
extern const uint8_t gsv_unicode_class[];

/* Indices into the pool, where a length and so many code points stand; 0 is no mapping. */
extern const uint16_t gsv_unicode_lower_blocks[];
extern const uint16_t gsv_unicode_lower[];
extern const uint16_t gsv_unicode_canonical_blocks[];
extern const uint16_t gsv_unicode_canonical[];
extern const uint16_t gsv_unicode_compatible_blocks[];
extern const uint16_t gsv_unicode_compatible[];
extern const uint32_t gsv_unicode_pool[];

/* [n][3]: first, second, composed; sorted by the first two. */
extern const uint32_t gsv_unicode_pairs[];
extern const size_t gsv_unicode_n_pairs;

#endif
