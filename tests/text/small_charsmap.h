/*
 * small_charsmap.h - builds a small SentencePiece charsmap, valid or damaged, as in tokenizer.json.
 */
#ifndef GSV_TESTS_TEXT_SMALL_CHARSMAP_H
#define GSV_TESTS_TEXT_SMALL_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

enum { SMALL_CHARSMAP_UNITS = 1 << 14 };

struct small_charsmap {
    uint32_t units[SMALL_CHARSMAP_UNITS]; /* each node's children have their own block of 256 */
    size_t n;
    char strings[4096];
    size_t size;
};

/* Call with a zeroed struct first. */
void small_charsmap_add(struct small_charsmap *map, const char *from, const char *to);
/* As base64, owned. `units_size` is the size in its header; 0: the real size. */
char *encode_charsmap(const struct small_charsmap *map, size_t units_size);
/* A map with a single entry. */
char *small_charsmap(const char *from, const char *to);

#endif
