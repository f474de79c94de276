/*
 * tokens.h - the tokens of one text, and the equality that the cache and coalescing use.
 */
#ifndef GSV_RUNTIME_TOKENS_H
#define GSV_RUNTIME_TOKENS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct gsv_tokens {
    const int32_t *ids;      /* [n] */
    const uint8_t *type_ids; /* [n], NULL: all zero */
    uint32_t n;
};

static inline bool gsv_types_equal(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    if (a && b)
        return memcmp(a, b, n) == 0;
    if (!a)
        a = b;
    for (uint32_t i = 0; a && i < n; i++) {
        if (a[i] != 0)
            return false;
    }
    return true;
}

static inline bool gsv_tokens_equal(const struct gsv_tokens *a, const struct gsv_tokens *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof(*a->ids)) == 0 &&
           gsv_types_equal(a->type_ids, b->type_ids, a->n);
}

#endif
