/*
 * wordpiece.c - WordPiece by LinMaxMatch: longest match from the left in linear time.
 *
 * Two tries share one double array: under the byte FIRST all tokens, under CONTINUING the tokens
 * with the continuation prefix, stored without it. Failure links of both tries lead into the
 * second.
 */
#include "lib/text/models/wordpiece.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST = 0,
    CONTINUING = 1,
    /* Real vocabularies need one or two for each node. Tokens that are long repetitions need up to
     * the square of their length. */
    MAX_POPS = 1 << 23,
    MAX_COPIED = 1 << 26,
};

/* State while the failure links are computed. */
struct finding {
    struct gsv_wordpiece *model;
    size_t copied; /* tokens copied, also for links that are discarded; bounds the work */
};

static bool add_tokens(struct gsv_trie_builder *b, const struct gsv_wordpiece *m,
                       const struct gsv_vocab *vocab)
{
    const size_t prefix_size = m->prefix ? strlen(m->prefix) : 0;

    for (size_t i = 0; i < vocab->n_model; i++) {
        const struct gsv_vocab_token *token = &vocab->tokens[i];
        const char *text = vocab->text + token->at;

        if (token->size > 0 && !gsv_trie_add(b, FIRST, text, token->size, token->id))
            return false;
        if (m->prefix && token->size > prefix_size && memcmp(text, m->prefix, prefix_size) == 0 &&
            !gsv_trie_add(b, CONTINUING, text + prefix_size, token->size - prefix_size, token->id))
            return false;
    }
    /* Creates both nodes even without tokens. */
    return gsv_trie_add(b, FIRST, NULL, 0, -1) && gsv_trie_add(b, CONTINUING, NULL, 0, -1);
}

/* Append a copy of a slot's tokens to `pops`. */
static bool push_pops(struct finding *finding, uint32_t slot)
{
    struct gsv_wordpiece *m = finding->model;
    const struct gsv_wordpiece_failure f = m->failures[slot];

    finding->copied += f.n_pops;
    if (finding->copied > MAX_COPIED || !gsv_grow((void **)&m->pops, &m->pops_capacity,
                                                  m->n_pops + f.n_pops, sizeof(*m->pops), MAX_POPS))
        return false;
    memcpy(m->pops + m->n_pops, m->pops + f.pops, f.n_pops * sizeof(*m->pops));
    m->n_pops += f.n_pops;
    return true;
}

/* Failure link of a node without a token: cut as the parent does, then follow failure links until
 * the node's byte has a child. */
static bool fail_as_parent(struct finding *finding, const struct gsv_trie_node *node,
                           uint32_t parent_slot)
{
    struct gsv_wordpiece *m = finding->model;
    const size_t pops = m->n_pops;
    uint32_t from = parent_slot;

    for (;;) {
        const uint32_t go_on = m->failures[from].go_on;
        uint32_t next;

        if (go_on == GSV_TRIE_NO_SLOT) {
            m->n_pops = pops;
            return true;
        }
        if (!push_pops(finding, from))
            return false;
        next = gsv_trie_step(&m->trie, go_on, node->byte);
        if (next != GSV_TRIE_NO_SLOT) {
            m->failures[node->slot] =
                (struct gsv_wordpiece_failure){ next, (uint32_t)pops,
                                                (uint32_t)(m->n_pops - pops) };
            return true;
        }
        from = go_on;
    }
}

static bool fail_as_token(struct gsv_wordpiece *m, const struct gsv_trie_node *node, uint32_t size)
{
    if (!gsv_grow((void **)&m->pops, &m->pops_capacity, m->n_pops + 1, sizeof(*m->pops), MAX_POPS))
        return false;
    m->failures[node->slot] =
        (struct gsv_wordpiece_failure){ m->continuing, (uint32_t)m->n_pops, 1 };
    m->pops[m->n_pops++] = (struct gsv_piece){ node->value, size };
    return true;
}

/* Breadth-first order: a failure link leads to a node of smaller depth, which is done before. */
static bool find_failures(struct finding *finding, const struct gsv_trie_builder *b)
{
    uint32_t *depths = gsv_alloc_array(b->n, sizeof(*depths)); /* depth below FIRST or CONTINUING */
    bool done = depths != NULL;

    for (size_t i = 0; i < b->n && done; i++) {
        const struct gsv_trie_node *node = &b->nodes[i];

        if (i == 0 || node->parent == 0)
            continue; /* the root, FIRST and CONTINUING have no failure link */
        depths[i] = depths[node->parent] + 1;
        done = node->value >= 0 ? fail_as_token(finding->model, node, depths[i])
                                : fail_as_parent(finding, node, b->nodes[node->parent].slot);
    }
    free(depths);
    return done;
}

gpuserve_status gsv_wordpiece_build(struct gsv_wordpiece *m, const struct gsv_vocab *vocab,
                                    const char *name, gpuserve_error *error)
{
    struct gsv_trie_builder builder = { 0 };
    struct finding finding = { .model = m };
    bool done = add_tokens(&builder, m, vocab) && gsv_trie_build(&m->trie, &builder);

    if (done) {
        m->failures = gsv_alloc_array(m->trie.n, sizeof(*m->failures));
        m->first = gsv_trie_step(&m->trie, m->trie.root, FIRST);
        m->continuing = gsv_trie_step(&m->trie, m->trie.root, CONTINUING);
        done = m->failures && find_failures(&finding, &builder);
    }
    gsv_trie_builder_reset(&builder);
    if (done)
        return GPUSERVE_OK;
    if (m->n_pops >= MAX_POPS / 2 || finding.copied > MAX_COPIED)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: the vocabulary has too many repetitive tokens for the trie", name);
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a trie of %zu tokens", name,
                    vocab->n_model);
}

void gsv_wordpiece_reset(struct gsv_wordpiece *m)
{
    gsv_trie_reset(&m->trie);
    free(m->failures);
    free(m->pops);
    free(m->prefix);
    *m = (struct gsv_wordpiece){ 0 };
}

/* Emit the tokens of the failure link of `slot`; returns the slot to resume at. */
static inline uint32_t pop(const struct gsv_wordpiece *m, uint32_t slot, struct gsv_piece *pieces,
                           size_t *n, uint32_t *end)
{
    const struct gsv_wordpiece_failure *f = &m->failures[slot];

    for (uint32_t i = 0; i < f->n_pops; i++) {
        *end += m->pops[f->pops + i].end;
        pieces[(*n)++] = (struct gsv_piece){ m->pops[f->pops + i].id, *end };
    }
    return f->go_on;
}

size_t gsv_wordpiece_split(const struct gsv_wordpiece *m, const char *word, size_t size,
                           size_t n_chars, struct gsv_piece *pieces, uint64_t *steps)
{
    uint32_t slot = m->first, end = 0;
    size_t n = 0;

    if (n_chars > m->max_chars)
        goto unknown;
    for (size_t i = 0; i < size; i++) {
        uint32_t next;

        while ((next = gsv_trie_step(&m->trie, slot, (unsigned char)word[i])) == GSV_TRIE_NO_SLOT) {
            const size_t before = n;

            slot = pop(m, slot, pieces, &n, &end);
            *steps += 1 + n - before;
            if (slot == GSV_TRIE_NO_SLOT)
                goto unknown;
        }
        slot = next;
    }
    *steps += size;
    while (slot != m->continuing) {
        slot = pop(m, slot, pieces, &n, &end);
        ++*steps;
        if (slot == GSV_TRIE_NO_SLOT)
            goto unknown;
    }
    return n;
unknown:
    pieces[0] = (struct gsv_piece){ m->unknown, (uint32_t)size };
    return 1;
}
