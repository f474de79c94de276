/*
 * unigram.c - Unigram model: builds the trie of pieces and finds the best segmentation.
 *
 * Viterbi over the word: from each character on, the trie yields all pieces that begin there, and
 * each piece relaxes the state at its end. The backward pass follows the best states and fuses
 * adjacent unknown characters, which are then replaced by byte pieces or the unknown token.
 */
#include "lib/text/models/unigram.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Score of an unknown character below that of the worst piece; from SentencePiece. */
#define UNKNOWN_PENALTY 10.0

/* ------------------------------------------------------------------ building */

static int32_t find_piece(const struct gsv_unigram *m, const char *text, size_t size)
{
    uint32_t slot = m->trie.root;

    for (size_t i = 0; i < size; i++) {
        slot = gsv_trie_step(&m->trie, slot, (unsigned char)text[i]);
        if (slot == GSV_TRIE_NO_SLOT)
            return -1;
    }
    return m->ids[slot];
}

static bool build_trie(struct gsv_unigram *m, const struct gsv_vocab *vocab)
{
    struct gsv_trie_builder builder = { 0 };
    bool good = true;

    for (size_t i = 0; i < vocab->n_model && good; i++) {
        const struct gsv_vocab_token *token = &vocab->tokens[i];

        /* Of duplicate texts the later one counts. */
        good = gsv_trie_add(&builder, -1, vocab->text + token->at, token->size,
                            token->size > 0 ? token->id : -1);
    }
    good = good && gsv_trie_build(&m->trie, &builder) &&
           (m->ids = gsv_alloc_array(m->trie.n, sizeof(*m->ids)));
    for (size_t i = 0; good && i < m->trie.n; i++)
        m->ids[i] = -1;
    for (size_t i = 0; good && i < builder.n; i++)
        m->ids[builder.nodes[i].slot] = builder.nodes[i].value;
    gsv_trie_builder_reset(&builder);
    return good;
}

gpuserve_status gsv_unigram_build(struct gsv_unigram *m, const struct gsv_vocab *vocab,
                                  const char *name, gpuserve_error *error)
{
    double min_score = INFINITY;

    if (!build_trie(m, vocab))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a trie of %zu pieces", name,
                        vocab->n_model);
    for (size_t i = 0; i < m->n_scores; i++)
        min_score = m->scores[i] < min_score ? m->scores[i] : min_score;
    m->unknown_score = min_score - UNKNOWN_PENALTY;
    for (unsigned byte = 0; byte < 256; byte++) {
        char piece[8];

        snprintf(piece, sizeof(piece), "<0x%02X>", byte);
        m->bytes[byte] = find_piece(m, piece, 6);
    }
    return GPUSERVE_OK;
}

void gsv_unigram_reset(struct gsv_unigram *m)
{
    gsv_trie_reset(&m->trie);
    free(m->ids);
    free(m->scores);
    *m = (struct gsv_unigram){ 0 };
}

size_t gsv_unigram_bytes(const struct gsv_unigram *m)
{
    return m->trie.n * (sizeof(*m->trie.units) + sizeof(*m->ids)) +
           m->scores_capacity * sizeof(*m->scores);
}

/* ------------------------------------------------------------------ Viterbi */

/* Relax a state: only a strictly higher score replaces it. Of equal scores the longest last piece
 * wins, since it is offered first. */
static inline void offer(struct gsv_best_way *to, double score, size_t begin, int32_t id)
{
    if (to->begin == GSV_NO_WAY || score > to->score)
        *to = (struct gsv_best_way){ score, (uint32_t)begin, id };
}

/* Offer all pieces that begin at `begin`; returns true if one of them is exactly one character. */
static inline bool offer_pieces(const struct gsv_unigram *m, const char *word, size_t size,
                                size_t begin, size_t length, struct gsv_scratch *scratch)
{
    struct gsv_best_way *ways = scratch->ways;
    const double score = ways[begin].score;
    uint32_t slot = m->trie.root;
    bool single = false;
    size_t end = begin;

    while (end < size) {
        slot = gsv_trie_step(&m->trie, slot, (unsigned char)word[end++]);
        if (slot == GSV_TRIE_NO_SLOT)
            break;
        if (m->ids[slot] < 0)
            continue;
        offer(&ways[end], score + m->scores[m->ids[slot]], begin, m->ids[slot]);
        single = single || end - begin == length;
    }
    scratch->steps += end - begin;
    return single;
}

static size_t character_size(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Forward pass. False if a character is unknown and the model has no unknown token. */
static bool find_ways(const struct gsv_unigram *m, const char *word, size_t size,
                      struct gsv_scratch *scratch)
{
    struct gsv_best_way *ways = scratch->ways;

    ways[0] = (struct gsv_best_way){ 0.0, GSV_NO_WAY, 0 };
    for (size_t i = 1; i <= size; i++)
        ways[i].begin = GSV_NO_WAY;
    for (size_t begin = 0, length; begin < size; begin += length) {
        struct gsv_best_way *next;

        length = character_size((unsigned char)word[begin]);
        next = &ways[begin + length];
        if (offer_pieces(m, word, size, begin, length, scratch))
            continue;
        offer(next, m->unknown_score + ways[begin].score, begin, m->unknown);
        if (next->begin == begin && next->id < 0)
            return false;
    }
    return true;
}

/* Backward pass: the pieces of the best segmentation, adjacent unknown ones fused, written to the
 * end of pieces[size]. Returns their number. */
static size_t follow(const struct gsv_unigram *m, size_t size, const struct gsv_scratch *scratch)
{
    struct gsv_piece *const pieces = scratch->pieces;
    bool unknown_follows = false;
    size_t n = 0;

    for (size_t end = size; end > 0;) {
        const struct gsv_best_way *way = &scratch->ways[end];
        const bool unknown = way->id == m->unknown;

        if (!unknown || !unknown_follows)
            pieces[size - ++n] = (struct gsv_piece){ way->id, (uint32_t)end };
        unknown_follows = unknown;
        end = way->begin;
    }
    return n;
}

/* Write the pieces of an unknown text; all have the same `end`. Returns their number. */
static size_t put_unknown(const struct gsv_unigram *m, const char *text, size_t size, uint32_t end,
                          struct gsv_piece *pieces)
{
    const int32_t known = find_piece(m, text, size); /* fused unknown characters may be a piece */
    size_t n = 0;

    if (known < 0 && m->byte_fallback)
        while (n < size && m->bytes[(unsigned char)text[n]] >= 0) {
            pieces[n] = (struct gsv_piece){ m->bytes[(unsigned char)text[n]], end };
            n++;
        }
    if (n == size)
        return n;
    pieces[0] = (struct gsv_piece){ known < 0 ? m->unknown : known, end };
    return 1;
}

size_t gsv_unigram_split(const struct gsv_unigram *m, const char *word, size_t size,
                         struct gsv_scratch *scratch)
{
    struct gsv_piece *const pieces = scratch->pieces;
    size_t from, n = 0, begin = 0;

    scratch->failure = GSV_SPLIT_NO_MEMORY;
    if (size >= GSV_NO_WAY || !gsv_grow((void **)&scratch->ways, &scratch->ways_capacity, size + 1,
                                        sizeof(*scratch->ways), SIZE_MAX))
        return 0;
    scratch->failure = GSV_SPLIT_NO_UNKNOWN;
    if (!find_ways(m, word, size, scratch))
        return 0;
    scratch->failure = GSV_SPLIT_GOOD;
    /* Writing never overtakes reading: each byte has at most one piece. */
    for (from = size - follow(m, size, scratch); from < size; from++) {
        const struct gsv_piece piece = pieces[from];

        if (piece.id == m->unknown)
            n += put_unknown(m, word + begin, piece.end - begin, piece.end, pieces + n);
        else
            pieces[n++] = piece;
        begin = piece.end;
    }
    return n;
}
