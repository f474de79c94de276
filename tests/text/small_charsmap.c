/*
 * small_charsmap.c - builds a small SentencePiece charsmap (double-array trie), valid or damaged.
 */
#include "tests/text/small_charsmap.h"

#include <stdlib.h>
#include <string.h>

static size_t base_of(struct small_charsmap *m, size_t at)
{
    const size_t base = m->n;

    if (m->units[at] >> 10)
        return at ^ m->units[at] >> 10;
    m->n += 256;
    m->units[at] |= (uint32_t)(at ^ base) << 10;
    return base;
}

void small_charsmap_add(struct small_charsmap *m, const char *from, const char *to)
{
    size_t at = 0;

    if (m->n == 0)
        m->n = 256;
    for (; *from; from++) {
        const unsigned char byte = (unsigned char)*from;

        at = base_of(m, at) ^ byte;
        m->units[at] |= byte;
    }
    m->units[base_of(m, at)] = 1u << 31 | (uint32_t)m->size;
    m->units[at] |= 1u << 8;
    memcpy(m->strings + m->size, to, strlen(to) + 1);
    m->size += strlen(to) + 1;
}

static char *base64_of(const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = calloc(1, n / 3 * 4 + 8), *to = text;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = 0;

        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (i + k < n ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = i + k > n ? '=' : digits[group >> (18 - 6 * k) & 63];
    }
    return text;
}

char *encode_charsmap(const struct small_charsmap *m, size_t units_size)
{
    const size_t n = 4 + 4 * m->n + m->size;
    unsigned char *bytes = calloc(1, n);
    const uint32_t head = (uint32_t)(units_size ? units_size : 4 * m->n);
    char *text;

    for (size_t i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(head >> 8 * i);
    for (size_t i = 0; i < 4 * m->n; i++)
        bytes[4 + i] = (unsigned char)(m->units[i / 4] >> 8 * (i % 4));
    memcpy(bytes + 4 + 4 * m->n, m->strings, m->size);
    text = base64_of(bytes, n);
    free(bytes);
    return text;
}

char *small_charsmap(const char *from, const char *to)
{
    struct small_charsmap *map = calloc(1, sizeof(*map));
    char *text;

    small_charsmap_add(map, from, to);
    text = encode_charsmap(map, 0);
    free(map);
    return text;
}
