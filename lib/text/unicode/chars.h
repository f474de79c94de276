/*
 * chars.h - text as code points, each with the byte range of the original text it stands for.
 *
 * These buffers carry a text through the normalizer. The ranges become the tokens' spans.
 */
#ifndef GSV_TEXT_CHARS_H
#define GSV_TEXT_CHARS_H

#include <stddef.h>
#include <stdint.h>

struct gsv_char {
    uint32_t c;
    uint32_t begin, end; /* bytes of the original text */
};

struct gsv_chars {
    struct gsv_char *at; /* [n] */
    size_t n, capacity;
};

/* A code point during decomposition and composition. */
struct gsv_decomposed {
    uint32_t c;
    /* Alignment of `tokenizers`: 1 for an additional character, 0 for a replaced one, -n for a
     * replaced one followed by n removed ones. It decides which bytes a character stands for. */
    int32_t change;
    uint8_t combining_class;
};

/* Buffers of the normalizer: two texts used alternately, and two for decomposition. */
struct gsv_normal_buffers {
    struct gsv_chars text, other;
    struct gsv_decomposed *decomposed, *sorted;
    size_t decomposed_capacity, sorted_capacity;
};

#endif
