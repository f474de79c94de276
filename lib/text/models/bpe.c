/*
 * bpe.c - splits a word into tokens with byte-pair encoding.
 *
 *   characters -> initial symbols -> chunks -> merges (bpe_chunk.c, bpe_long.c) -> tokens
 *
 * The result does not depend on the chunk borders. A merge across a border would make a token that
 * contains the two border characters side by side, and the `joined` bitmap has all such pairs. A
 * border is never placed next to a symbol that is not a single known character (unknown, byte).
 */
#include "lib/text/models/bpe.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_CHUNK = 128 };

/* State while a word is split. */
struct bpe_reading {
    const struct gsv_bpe *model;
    struct gsv_bpe_work *work;
    struct gsv_piece *pieces;
    size_t n_pieces;
    size_t n;              /* symbols in the current chunk */
    uint32_t end;          /* bytes of the word covered by `pieces` */
    uint32_t unknown_size; /* bytes of pending unknown characters, not yet a symbol; 0: none */
    uint64_t *steps;
    bool no_memory;
};

/* ------------------------------------------------------------------ chunks and symbols */

static inline void put_piece(struct bpe_reading *r, int32_t id, uint32_t size)
{
    r->end += size;
    r->pieces[r->n_pieces++] = (struct gsv_piece){ id, r->end };
}

/* Merge the completed chunk and append its tokens. */
static void end_chunk(struct bpe_reading *r)
{
    struct gsv_bpe_work *const w = r->work;
    const size_t n = r->n;
    ptrdiff_t n_merged;

    if (n == 0 || r->no_memory)
        return;
    r->n = 0;
    if (n <= SHORT_CHUNK) {
        r->no_memory = !gsv_bpe_merge(r->model, w, 0, n, r->steps);
        for (size_t i = 0; i < n && !r->no_memory; i += w->window[i].width)
            put_piece(r, w->window[i].id, w->window[i].size);
        return;
    }
    n_merged = gsv_bpe_merge_long(r->model, w, n, r->steps);
    r->no_memory = n_merged == GSV_BPE_NO_MEMORY;
    for (ptrdiff_t i = 0; i < n_merged; i++)
        put_piece(r, w->merged[i].id, w->merged[i].size);
}

static void put_symbol(struct bpe_reading *r, int32_t id, uint32_t size)
{
    struct gsv_bpe_work *const w = r->work;

    if (r->n == w->symbols_capacity && !gsv_grow((void **)&w->symbols, &w->symbols_capacity,
                                                 r->n + 1, sizeof(*w->symbols), SIZE_MAX)) {
        r->no_memory = true;
        return;
    }
    w->symbols[r->n++] = (struct gsv_bpe_symbol){ id, size };
}

static void put_unknown(struct bpe_reading *r)
{
    if (r->unknown_size > 0)
        put_symbol(r, r->model->unknown, r->unknown_size);
    r->unknown_size = 0;
}

/* Add a character without a token: its byte tokens, or a pending unknown. As in `tokenizers`, the
 * byte tokens precede unknown characters that are still pending. */
static void put_other(struct bpe_reading *r, const char *at, uint32_t size)
{
    const struct gsv_bpe *const m = r->model;
    bool all = m->falls_back;

    for (uint32_t i = 0; i < size && all; i++)
        all = m->byte_ids[(unsigned char)at[i]] >= 0;
    for (uint32_t i = 0; i < size && all; i++)
        put_symbol(r, m->byte_ids[(unsigned char)at[i]], 1);
    if (all || m->unknown < 0)
        return;
    if (!m->fuses_unknown)
        put_unknown(r);
    r->unknown_size += size;
}

static inline int32_t id_of(const struct gsv_bpe *m, uint32_t c, unsigned position)
{
    const uint32_t key = position << 21 | c;
    size_t slot;

    if (c < 256)
        return m->low[position][c];
    slot = gsv_bpe_hash(key) & (m->n_chars - 1);
    while (m->chars[slot].key != key) {
        if (m->chars[slot].key == GSV_BPE_NO_CHAR)
            return -1;
        slot = (slot + 1) & (m->n_chars - 1);
    }
    return m->chars[slot].id;
}

static int32_t find_word(const struct gsv_bpe *m, const char *word, size_t size)
{
    uint32_t slot = m->words.root;

    for (size_t i = 0; i < size && slot != GSV_TRIE_NO_SLOT; i++)
        slot = gsv_trie_step(&m->words, slot, (unsigned char)word[i]);
    return slot == GSV_TRIE_NO_SLOT ? -1 : m->word_ids[slot];
}

ptrdiff_t gsv_bpe_split(const struct gsv_bpe *m, const char *word, size_t size,
                        struct gsv_bpe_work *work, struct gsv_piece *pieces, uint64_t *steps)
{
    struct bpe_reading r = { .model = m, .work = work, .pieces = pieces, .steps = steps };
    uint32_t before = GSV_BPE_NO_CHAR; /* the previous character if it has a token */
    const int32_t whole = m->ignores_merges ? find_word(m, word, size) : -1;

    if (whole >= 0) {
        pieces[0] = (struct gsv_piece){ whole, (uint32_t)size };
        *steps += size;
        return 1;
    }
    for (size_t i = 0, length = 1; i < size && !r.no_memory; i += length) {
        const uint32_t c = m->bytes ? (unsigned char)word[i] : gsv_utf8_decode(word + i, &length);
        const unsigned position = !m->has_affixes ? 0
                                                  : (i > 0 ? GSV_BPE_INNER : 0u) |
                                                        (i + length == size ? GSV_BPE_LAST : 0u);
        const int32_t id = id_of(m, c, position);

        if (id < 0) {
            put_other(&r, word + i, (uint32_t)length);
            before = GSV_BPE_NO_CHAR;
            continue;
        }
        put_unknown(&r);
        if (before != GSV_BPE_NO_CHAR && !gsv_bpe_are_joined(m, before, c))
            end_chunk(&r);
        put_symbol(&r, id, (uint32_t)length);
        before = c;
    }
    put_unknown(&r);
    end_chunk(&r);
    return r.no_memory ? GSV_BPE_NO_MEMORY : (ptrdiff_t)r.n_pieces;
}

void gsv_bpe_work_reset(struct gsv_bpe_work *work)
{
    free(work->symbols);
    free(work->window);
    free(work->merged);
    free(work->ranks);
    *work = (struct gsv_bpe_work){ 0 };
}
