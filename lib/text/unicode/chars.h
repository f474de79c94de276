/*
 * chars.h - a text as code points, each with the bytes of the original it stands for.
 */
#ifndef GSV_TEXT_CHARS_H
#define GSV_TEXT_CHARS_H

#include <stddef.h>
#include <stdint.h>

struct gsv_char {
    uint32_t c;
    uint32_t begin, end; /* bytes of the text as given */
};

struct gsv_chars {
    struct gsv_char *at; /* [n] */
    size_t n, capacity;
};

/* One while it is being decomposed and composed. */
struct gsv_decomposed {
    uint32_t c;
    /* Of `tokenizers`: 1 for one more than there was, 0 for one in place of another, -n for one in
     * place of another and of n more after it. It decides which bytes a character stands for. */
    int32_t change;
    uint8_t combining_class;
};

/* Buffers of the normalizer: two texts to go to and fro between, and two for decomposing. */
struct gsv_normal_buffers {
    struct gsv_chars text, other;
    struct gsv_decomposed *decomposed, *sorted;
    size_t decomposed_capacity, sorted_capacity;
};

#endif
