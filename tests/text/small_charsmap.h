/*
 * small_charsmap.h - making a charsmap, good or broken, as tokenizer.json has it.
 */
#ifndef GSV_TESTS_TEXT_SMALL_CHARSMAP_H
#define GSV_TESTS_TEXT_SMALL_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

enum { SMALL_CHARSMAP_UNITS = 1 << 14 };

struct small_charsmap {
    uint32_t
        units[SMALL_CHARSMAP_UNITS]; /* every node's children are in a block of 256 of their own */
    size_t n;
    char strings[4096];
    size_t size;
};

/* Start with all zero. */
void small_charsmap_add(struct small_charsmap *map, const char *from, const char *to);
/* As base64, owned. `units_size` is what its head claims; 0: the truth. */
char *encode_charsmap(const struct small_charsmap *map, size_t units_size);
/* One with a single text. */
char *small_charsmap(const char *from, const char *to);

#endif
