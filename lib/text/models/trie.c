/*
 * trie.c - builds a double-array trie.
 *
 * gsv_trie_add() inserts keys into the builder's tree. gsv_trie_build() visits the nodes in
 * breadth-first order and places the children of each node by first fit.
 */
#include "lib/text/models/trie.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 1 << 24,
    MAX_SLOTS = 1 << 28,
    FIRST_SLOT = 256, /* keeps base = slot - byte positive */
    MANY_TRIES = 32,
};

#define NO_PARENT UINT32_MAX

/* The slots during placement. */
struct placing {
    struct gsv_trie_unit *units;
    size_t n;          /* one past the highest slot in use or examined */
    size_t capacity;   /* of units; all units from n on are zero */
    size_t first_free; /* all slots below are in use */
    size_t several;    /* start of the search for two children or more */
};

static bool add_node(struct gsv_trie_builder *b, uint32_t parent, unsigned char byte,
                     uint32_t *node)
{
    if (!gsv_grow((void **)&b->nodes, &b->capacity, b->n + 1, sizeof(*b->nodes), MAX_NODES))
        return false;
    *node = (uint32_t)b->n++;
    b->nodes[*node] = (struct gsv_trie_node){ .parent = parent, .value = -1, .byte = byte };
    if (*node > 0) {
        b->nodes[*node].sibling = b->nodes[parent].child;
        b->nodes[parent].child = *node;
    }
    return true;
}

/* The entry of a child in b->children, or the empty entry for it. Sibling lists instead of this
 * hash table would double the load time of a tokenizer. */
static uint32_t *find_child(const struct gsv_trie_builder *b, uint32_t parent, unsigned char byte)
{
    const uint64_t key = (uint64_t)parent << 8 | byte;
    size_t at = (key * 0x9E3779B97F4A7C15u >> 32) & (b->n_children - 1);

    while (b->children[at]) {
        const struct gsv_trie_node *child = &b->nodes[b->children[at]];

        if (child->parent == parent && child->byte == byte)
            break;
        at = (at + 1) & (b->n_children - 1);
    }
    return &b->children[at];
}

static bool grow_children(struct gsv_trie_builder *b)
{
    const size_t n_children = b->n_children ? 4 * b->n_children : 256;
    uint32_t *children;

    if (2 * b->n < b->n_children)
        return true;
    children = gsv_alloc_array(n_children, sizeof(*children));
    if (!children)
        return false;
    free(b->children);
    b->children = children;
    b->n_children = n_children;
    for (size_t i = 1; i < b->n; i++)
        *find_child(b, b->nodes[i].parent, b->nodes[i].byte) = (uint32_t)i;
    return true;
}

static bool descend(struct gsv_trie_builder *b, uint32_t *node, unsigned char byte)
{
    uint32_t *slot, child;

    if (!grow_children(b))
        return false;
    slot = find_child(b, *node, byte);
    child = *slot;
    if (!child) {
        if (!add_node(b, *node, byte, &child))
            return false;
        *slot = child;
    }
    *node = child;
    return true;
}

bool gsv_trie_add(struct gsv_trie_builder *b, int head, const char *key, size_t size, int32_t value)
{
    uint32_t node = 0;

    if (b->n == 0 && !add_node(b, 0, 0, &node))
        return false;
    if (head >= 0 && !descend(b, &node, (unsigned char)head))
        return false;
    for (size_t i = 0; i < size; i++)
        if (!descend(b, &node, (unsigned char)key[i]))
            return false;
    b->nodes[node].value = value;
    return true;
}

/* Grow the array to hold `slot` and 256 more slots. */
static bool reach(struct placing *p, size_t slot)
{
    const size_t before = p->capacity;

    if (slot + 257 > p->capacity) {
        if (!gsv_grow((void **)&p->units, &p->capacity, slot + 257, sizeof(*p->units), MAX_SLOTS))
            return false;
        memset(p->units + before, 0, (p->capacity - before) * sizeof(*p->units));
    }
    if (slot >= p->n)
        p->n = slot + 1;
    return true;
}

/* True if all slots are free. `check` of a used slot is the parent's slot, never 0; NO_PARENT for
 * the root. */
static bool fits(const struct placing *p, size_t base, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p->units[base + bytes[i]].check)
            return false;
    return true;
}

/* Find a base for children with these bytes (first fit). */
static bool find_base(struct placing *p, const unsigned char *bytes, size_t n, size_t *base)
{
    size_t slot = n == 1 ? p->first_free : p->several;

    for (unsigned tries = 0;; slot++) {
        if (!reach(p, slot + 256))
            return false;
        if (p->units[slot].check)
            continue;
        *base = slot - bytes[0];
        if (fits(p, *base, bytes, n))
            break;
        if (++tries == MANY_TRIES && n > 1)
            p->several = slot; /* the slots before are crowded: only single children use them */
    }
    return true;
}

static bool place_children(struct placing *p, struct gsv_trie_builder *b, uint32_t node)
{
    const uint32_t parent = b->nodes[node].slot;
    unsigned char bytes[256];
    size_t n = 0, base;

    for (uint32_t c = b->nodes[node].child; c; c = b->nodes[c].sibling)
        bytes[n++] = b->nodes[c].byte;
    if (n == 0)
        return true;
    if (!find_base(p, bytes, n, &base))
        return false;
    p->units[parent].base = (uint32_t)base;
    for (uint32_t c = b->nodes[node].child; c; c = b->nodes[c].sibling) {
        b->nodes[c].slot = (uint32_t)(base + b->nodes[c].byte);
        p->units[b->nodes[c].slot].check = parent;
    }
    while (p->units[p->first_free].check)
        p->first_free++;
    if (p->several < p->first_free)
        p->several = p->first_free;
    return true;
}

bool gsv_trie_build(struct gsv_trie *trie, struct gsv_trie_builder *b)
{
    struct placing p = { .first_free = FIRST_SLOT + 1, .several = FIRST_SLOT + 1 };
    size_t queued = 0;
    uint32_t root;

    if (b->n == 0 && !add_node(b, 0, 0, &root))
        return false;
    b->order = gsv_alloc_array(b->n, sizeof(*b->order));
    if (!b->order || !reach(&p, FIRST_SLOT + 512))
        goto fail;
    b->nodes[0].slot = FIRST_SLOT;
    p.units[FIRST_SLOT].check = NO_PARENT;
    b->order[queued++] = 0;
    for (size_t done = 0; done < queued; done++) {
        for (uint32_t c = b->nodes[b->order[done]].child; c; c = b->nodes[c].sibling)
            b->order[queued++] = c;
        if (!place_children(&p, b, b->order[done]))
            goto fail;
    }
    trie->units = p.units;
    trie->n = (uint32_t)p.n + 256;
    trie->root = FIRST_SLOT;
    return true;
fail:
    free(p.units);
    return false;
}

void gsv_trie_builder_reset(struct gsv_trie_builder *b)
{
    free(b->nodes);
    free(b->order);
    free(b->children);
    *b = (struct gsv_trie_builder){ 0 };
}

void gsv_trie_reset(struct gsv_trie *trie)
{
    free(trie->units);
    *trie = (struct gsv_trie){ 0 };
}
