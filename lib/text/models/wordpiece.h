/*
 * wordpiece.h - a word to its pieces: from the left, the longest token each time.
 *
 * Trying lengths costs the square of the word's length. Instead one walk over a trie of all tokens
 * does it in linear time (LinMaxMatch; Song et al., "Fast WordPiece Tokenization", 2021): where
 * the walk can go no further, the node knows which tokens the walk so far is to be cut into and
 * from which node of the continuation tokens ("##...") to go on.
 */
#ifndef GSV_TEXT_WORDPIECE_H
#define GSV_TEXT_WORDPIECE_H

#include "lib/base/json_fields.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

struct gsv_piece {
    int32_t id;
    uint32_t end; /* bytes of the word up to its end */
};

/* What to do at a slot when the walk ends there. */
struct gsv_wordpiece_failure {
    uint32_t go_on; /* slot; GSV_TRIE_NO_SLOT: the word is unknown */
    uint32_t pops;  /* into `pops` */
    uint32_t n_pops;
};

struct gsv_wordpiece {
    struct gsv_trie trie;
    struct gsv_wordpiece_failure *failures; /* [trie.n] */
    struct gsv_piece *pops;                 /* `end` is the token's own length */
    size_t n_pops, pops_capacity;
    uint32_t first, continuing; /* slots: at the start of a word, and inside it */
    int32_t unknown;
    size_t max_chars;
    char *prefix;
};

/* From the members of "model"; the vocabulary has been read. */
gpuserve_status gsv_wordpiece_read(struct gsv_wordpiece *model, const struct gsv_member *fields,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error);
/* The fields unknown, max_chars and prefix are set before. */
gpuserve_status gsv_wordpiece_build(struct gsv_wordpiece *model, const struct gsv_vocab *vocab,
                                    const char *name, gpuserve_error *error);
void gsv_wordpiece_reset(struct gsv_wordpiece *model);

/* The pieces of a word of 1 or more bytes, into room for `size` of them; n_chars is the length in
 * characters. *steps is increased by the steps taken, at most 4 for each byte. */
size_t gsv_wordpiece_split(const struct gsv_wordpiece *model, const char *word, size_t size,
                           size_t n_chars, struct gsv_piece *pieces, uint64_t *steps);

#endif
