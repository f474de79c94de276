/*
 * trie.h - byte trie as a double array: a step is one addition, one load and one comparison.
 *
 * Keys go into a builder. gsv_trie_build() makes the tree of them and assigns a slot to each node.
 * The child by byte b of the node in slot s is in slot units[s].base + b, and exists only if that
 * slot's check equals s. The array ends with 256 empty slots, so the sum is always inside it.
 */
#ifndef GSV_TEXT_TRIE_H
#define GSV_TEXT_TRIE_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_trie_node {
    uint32_t parent; /* the root is node 0 */
    uint32_t child;  /* the first child; the others follow it, by ascending byte */
    uint32_t slot;
    int32_t value; /* -1: no key ends here */
    uint16_t n_children;
    unsigned char byte;
};

struct gsv_trie_key {
    uint32_t at, size; /* bytes of `text` */
    int32_t value;
};

struct gsv_trie_builder {
    struct gsv_trie_key *keys; /* [n_keys] in order of gsv_trie_add(), then sorted */
    size_t n_keys, keys_capacity;
    char *text;
    size_t text_size, text_capacity;
    struct gsv_trie_node *nodes; /* [n] in breadth-first order, after gsv_trie_build() */
    size_t n, capacity;
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

/* Add a key with a value >= 0, or with -1 for a node without a value; an existing key gets the new
 * value. A `head` >= 0 is a byte put before the key. False when out of memory or above 1 GiB of
 * keys. */
bool gsv_trie_add(struct gsv_trie_builder *builder, int head, const char *key, size_t size,
                  int32_t value);
/* Call once. False when out of memory or above 16 M nodes. */
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
