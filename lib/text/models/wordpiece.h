/*
 * wordpiece.h - WordPiece: splits a word by longest match from the left.
 *
 * Trying all lengths is quadratic in the word's length. One walk over a trie of all tokens with
 * failure links is linear (LinMaxMatch; Song et al., "Fast WordPiece Tokenization", 2021). A
 * failure link says which tokens the bytes walked so far are cut into, and the node of the
 * continuation tokens ("##...") where the walk resumes.
 */
#ifndef GSV_TEXT_WORDPIECE_H
#define GSV_TEXT_WORDPIECE_H

#include "lib/base/json_reader.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

struct gsv_piece {
    int32_t id;
    uint32_t end; /* end of the token, in bytes from the start of the word */
};

/* Failure link of a slot: followed if the walk cannot go on. */
struct gsv_wordpiece_failure {
    uint32_t go_on; /* slot to resume at; GSV_TRIE_NO_SLOT: the word is unknown */
    uint32_t pops;  /* index into `pops`: the tokens to emit */
    uint32_t n_pops;
};

struct gsv_wordpiece {
    struct gsv_trie trie;
    struct gsv_wordpiece_failure *failures; /* [trie.n] */
    struct gsv_piece *pops; /* tokens of the failure links; `end` is the token's own length */
    size_t n_pops, pops_capacity;
    uint32_t first, continuing; /* root slots: at the start of a word, and inside it */
    int32_t unknown;
    size_t max_chars;
    char *prefix; /* NULL: no tokens continue a word (WordLevel) */
};

/* Read the fields of "model"; the vocabulary must have been read. */
gpuserve_status gsv_wordpiece_read(struct gsv_wordpiece *model, const struct gsv_member *fields,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error);
/* As gsv_wordpiece_read() for a model of type WordLevel, which has only "unk_token". */
gpuserve_status gsv_wordlevel_read(struct gsv_wordpiece *model, const struct gsv_member *fields,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error);
/* Build the trie and the failure links; the fields unknown, max_chars and prefix must be set. */
gpuserve_status gsv_wordpiece_build(struct gsv_wordpiece *model, const struct gsv_vocab *vocab,
                                    const char *name, gpuserve_error *error);
void gsv_wordpiece_reset(struct gsv_wordpiece *model);

/* Split a word of at least 1 byte; `pieces` has a capacity of `size`; n_chars is the length in
 * characters. Adds the number of steps to *steps, at most 4 for each byte. */
size_t gsv_wordpiece_split(const struct gsv_wordpiece *model, const char *word, size_t size,
                           size_t n_chars, struct gsv_piece *pieces, uint64_t *steps);

#endif
