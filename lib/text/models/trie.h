/*
 * trie.h - byte trie as a double array: a step is one addition, one load and one comparison.
 *
 * Keys go into a builder, a plain tree. gsv_trie_build() assigns a slot to each node. The child by
 * byte b of the node in slot s is in slot units[s].base + b, and exists only if that slot's check
 * equals s. The array ends with 256 empty slots, so the sum is always inside it.
 */
#ifndef GSV_TEXT_TRIE_H
#define GSV_TEXT_TRIE_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_trie_node {
    uint32_t child, sibling, parent; /* 0: none; the root is node 0 */
    uint32_t slot;
    int32_t value; /* -1: no key ends here */
    unsigned char byte;
};

struct gsv_trie_builder {
    struct gsv_trie_node *nodes;
    uint32_t *order; /* [n] nodes in breadth-first order, after gsv_trie_build() */
    size_t n, capacity;
    uint32_t *children; /* [n_children] hash table of nodes by parent and byte, open addressing */
    size_t n_children;  /* a power of two */
};

struct gsv_trie_unit {
    uint32_t base, check;
};

struct gsv_trie {
    struct gsv_trie_unit *units; /* [n] */
    uint32_t n;
    uint32_t root; /* slot */
};

enum { GSV_TRIE_NO_SLOT = 0 }; /* slot 0 is never used */

/* Add a key with a value >= 0; an existing key gets the new value. A `head` >= 0 is a byte put
 * before the key. False when out of memory or above 16 M nodes. */
bool gsv_trie_add(struct gsv_trie_builder *builder, int head, const char *key, size_t size,
                  int32_t value);
bool gsv_trie_build(struct gsv_trie *trie, struct gsv_trie_builder *builder);
void gsv_trie_builder_reset(struct gsv_trie_builder *builder);
void gsv_trie_reset(struct gsv_trie *trie);

/* The child slot by a byte; GSV_TRIE_NO_SLOT if it does not exist. */
static inline uint32_t gsv_trie_step(const struct gsv_trie *trie, uint32_t slot, unsigned char byte)
{
    const uint32_t next = trie->units[slot].base + byte;

    return trie->units[next].check == slot ? next : GSV_TRIE_NO_SLOT;
}

#endif
