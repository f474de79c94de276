/*
 * trie.c - builds a double-array trie.
 *
 * gsv_trie_build() sorts the keys byte by byte (MSD radix sort), a level of the tree at a time, so
 * that the nodes are made in breadth-first order. Then it places the children of each node by first
 * fit. Keys inserted one by one into a tree would double the load time of a tokenizer.
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
    MAX_TEXT_BYTES = 1 << 30,
    FEW_KEYS = 32, /* insertion sort is faster */
};

#define NO_PARENT UINT32_MAX

/* The slots during placement. */
struct placing {
    struct gsv_trie_unit *units;
    size_t n;          /* one past the highest slot in use or examined */
    size_t capacity;   /* of units; all units from n on are zero */
    uint64_t *used;    /* a bit for each slot: a search reads 64 slots at once */
    size_t n_used;     /* words of `used` */
    size_t first_free; /* all slots below are in use */
    size_t several;    /* start of the search for two children or more */
};

/* The keys of one node, which share their first bytes. */
struct key_range {
    uint32_t first, end;
};

/* The tree while it grows: one level of nodes is one step of a radix sort of the keys. */
struct growing {
    struct gsv_trie_builder *b;
    struct key_range *ranges; /* [b->n] */
    size_t ranges_capacity;
    struct gsv_trie_key *sorted; /* [b->n_keys] */
};

static bool append_text(struct gsv_trie_builder *b, const char *text, size_t size)
{
    if (size > MAX_TEXT_BYTES - b->text_size ||
        !gsv_grow((void **)&b->text, &b->text_capacity, b->text_size + size, 1, MAX_TEXT_BYTES))
        return false;
    if (size > 0)
        memcpy(b->text + b->text_size, text, size);
    b->text_size += size;
    return true;
}

bool gsv_trie_add(struct gsv_trie_builder *b, int head, const char *key, size_t size, int32_t value)
{
    const char first = (char)head;
    const size_t at = b->text_size;

    if (!gsv_grow((void **)&b->keys, &b->keys_capacity, b->n_keys + 1, sizeof(*b->keys),
                  MAX_TEXT_BYTES) ||
        (head >= 0 && !append_text(b, &first, 1)) || !append_text(b, key, size))
        return false;
    b->keys[b->n_keys++] =
        (struct gsv_trie_key){ (uint32_t)at, (uint32_t)(b->text_size - at), value };
    return true;
}

static bool add_node(struct growing *g, uint32_t parent, unsigned char byte, size_t first,
                     size_t end)
{
    struct gsv_trie_builder *b = g->b;

    if ((b->n == b->capacity || b->n == g->ranges_capacity) &&
        (!gsv_grow((void **)&b->nodes, &b->capacity, b->n + 1, sizeof(*b->nodes), MAX_NODES) ||
         !gsv_grow((void **)&g->ranges, &g->ranges_capacity, b->n + 1, sizeof(*g->ranges),
                   MAX_NODES)))
        return false;
    b->nodes[b->n] = (struct gsv_trie_node){ .parent = parent, .value = -1, .byte = byte };
    g->ranges[b->n] = (struct key_range){ (uint32_t)first, (uint32_t)end };
    b->n++;
    return true;
}

/* 0 for a key that ends at this depth, else its byte there + 1. */
static size_t digit_at(const struct gsv_trie_builder *b, const struct gsv_trie_key *key,
                       size_t depth)
{
    return key->size > depth ? 1 + (size_t)(unsigned char)b->text[key->at + depth] : 0;
}

/* Insertion sort and counting sort; both are stable, so the last of equal keys stays the last. */
static void sort_few(struct gsv_trie_builder *b, struct key_range range, size_t depth)
{
    for (size_t i = range.first + 1; i < range.end; i++) {
        const struct gsv_trie_key key = b->keys[i];
        const size_t digit = digit_at(b, &key, depth);
        size_t at = i;

        for (; at > range.first && digit_at(b, &b->keys[at - 1], depth) > digit; at--)
            b->keys[at] = b->keys[at - 1];
        b->keys[at] = key;
    }
}

static void sort_many(struct growing *g, struct key_range range, size_t depth)
{
    struct gsv_trie_key *keys = g->b->keys + range.first;
    const size_t n = range.end - range.first;
    size_t starts[258] = { 0 };

    for (size_t i = 0; i < n; i++)
        starts[digit_at(g->b, &keys[i], depth) + 1]++;
    for (size_t digit = 1; digit < 258; digit++)
        starts[digit] += starts[digit - 1];
    for (size_t i = 0; i < n; i++)
        g->sorted[starts[digit_at(g->b, &keys[i], depth)]++] = keys[i];
    memcpy(keys, g->sorted, n * sizeof(*keys));
}

/* Give a node its value and its children. */
static bool split_node(struct growing *g, size_t node, size_t depth)
{
    struct gsv_trie_builder *b = g->b;
    const struct key_range range = g->ranges[node];
    size_t at = range.first;

    if (range.end - range.first > FEW_KEYS)
        sort_many(g, range, depth);
    else if (range.end - range.first > 1)
        sort_few(b, range, depth);
    while (at < range.end && digit_at(b, &b->keys[at], depth) == 0)
        b->nodes[node].value = b->keys[at++].value;
    b->nodes[node].child = (uint32_t)b->n;
    while (at < range.end) {
        const size_t first = at++, digit = digit_at(b, &b->keys[first], depth);

        while (at < range.end && digit_at(b, &b->keys[at], depth) == digit)
            at++;
        if (!add_node(g, (uint32_t)node, (unsigned char)(digit - 1), first, at))
            return false;
        b->nodes[node].n_children++;
    }
    return true;
}

static bool make_nodes(struct gsv_trie_builder *b)
{
    struct growing g = { .b = b, .sorted = gsv_alloc_array(b->n_keys, sizeof(*g.sorted)) };
    bool good = g.sorted && add_node(&g, 0, 0, 0, b->n_keys);
    size_t depth = 0;

    for (size_t node = 0, end = 1; good && node < b->n; node++) {
        if (node == end) {
            end = b->n;
            depth++;
        }
        good = split_node(&g, node, depth);
    }
    free(g.ranges);
    free(g.sorted);
    return good;
}

static bool grow_slots(struct placing *p, size_t n)
{
    const size_t before = p->capacity, words_before = p->n_used;

    if (!gsv_grow((void **)&p->units, &p->capacity, n, sizeof(*p->units), MAX_SLOTS))
        return false;
    memset(p->units + before, 0, (p->capacity - before) * sizeof(*p->units));
    if (!gsv_grow((void **)&p->used, &p->n_used, p->capacity / 64 + 1, sizeof(*p->used), MAX_SLOTS))
        return false;
    memset(p->used + words_before, 0, (p->n_used - words_before) * sizeof(*p->used));
    return true;
}

/* Grow the arrays to hold `slot` and 256 more slots, in whole words of `used`. */
static bool reach(struct placing *p, size_t slot)
{
    if (slot + 257 > p->capacity && !grow_slots(p, slot + 257))
        return false;
    if (slot >= p->n)
        p->n = slot + 1;
    return true;
}

static bool is_used(const struct placing *p, size_t slot)
{
    return p->used[slot / 64] >> slot % 64 & 1;
}

/* `check` is the parent's slot; NO_PARENT for the root. */
static void use_slot(struct placing *p, size_t slot, uint32_t check)
{
    p->units[slot].check = check;
    p->used[slot / 64] |= UINT64_C(1) << slot % 64;
}

/* The first free slot from `slot` on, or the end of `used`. */
static size_t next_free(const struct placing *p, size_t slot)
{
    size_t word = slot / 64;
    uint64_t free_slots = ~p->used[word] & UINT64_MAX << slot % 64;

    while (!free_slots && ++word < p->n_used)
        free_slots = ~p->used[word];
    return free_slots ? word * 64 + (size_t)__builtin_ctzll(free_slots) : p->n_used * 64;
}

static bool fits(const struct placing *p, size_t base, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_used(p, base + bytes[i]))
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
        slot = next_free(p, slot);
        if (!reach(p, slot + 256))
            return false;
        *base = slot - bytes[0];
        if (fits(p, *base, bytes, n))
            break;
        if (++tries == MANY_TRIES && n > 1)
            p->several = slot; /* the slots before are crowded: only single children use them */
    }
    return true;
}

static bool place_children(struct placing *p, struct gsv_trie_builder *b, size_t node)
{
    const uint32_t parent = b->nodes[node].slot;
    const size_t n = b->nodes[node].n_children;
    struct gsv_trie_node *children = b->nodes + b->nodes[node].child;
    unsigned char bytes[256];
    size_t base;

    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        bytes[i] = children[i].byte;
    if (!find_base(p, bytes, n, &base))
        return false;
    p->units[parent].base = (uint32_t)base;
    for (size_t i = 0; i < n; i++) {
        children[i].slot = (uint32_t)(base + bytes[i]);
        use_slot(p, children[i].slot, parent);
    }
    p->first_free = next_free(p, p->first_free);
    if (p->several < p->first_free)
        p->several = p->first_free;
    return true;
}

bool gsv_trie_build(struct gsv_trie *trie, struct gsv_trie_builder *b)
{
    struct placing p = { .first_free = FIRST_SLOT + 1, .several = FIRST_SLOT + 1 };

    if (!make_nodes(b) || !reach(&p, FIRST_SLOT + 512))
        goto fail;
    b->nodes[0].slot = FIRST_SLOT;
    use_slot(&p, FIRST_SLOT, NO_PARENT);
    for (size_t node = 0; node < b->n; node++)
        if (!place_children(&p, b, node))
            goto fail;
    free(p.used);
    trie->units = p.units;
    trie->n = (uint32_t)p.n + 256;
    trie->root = FIRST_SLOT;
    return true;
fail:
    free(p.used);
    free(p.units);
    return false;
}

void gsv_trie_builder_reset(struct gsv_trie_builder *b)
{
    free(b->keys);
    free(b->text);
    free(b->nodes);
    *b = (struct gsv_trie_builder){ 0 };
}

void gsv_trie_reset(struct gsv_trie *trie)
{
    free(trie->units);
    *trie = (struct gsv_trie){ 0 };
}
