/*
 * unigram.h - Unigram model: the segmentation of a word with the highest sum of scores (Viterbi).
 *
 * The result equals that of `tokenizers`, ties included: ids depend on the order in which sums are
 * compared and on every bit of the scores.
 */
#ifndef GSV_TEXT_UNIGRAM_H
#define GSV_TEXT_UNIGRAM_H

#include "lib/base/json_reader.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

#include <stdbool.h>

struct gsv_scratch;

/* Viterbi state: the best segmentation of the word up to one of its bytes. */
struct gsv_best_way {
    double score;
    uint32_t begin; /* of its last piece; GSV_NO_WAY: not reached yet */
    int32_t id;
};

#define GSV_NO_WAY UINT32_MAX

struct gsv_unigram {
    struct gsv_trie trie;
    int32_t *ids;   /* [trie.n] piece that ends in a slot; -1: none */
    double *scores; /* [n_scores] by id */
    size_t n_scores, scores_capacity;
    double unknown_score; /* of a character without a piece */
    int32_t unknown;      /* -1: the model has no unknown token */
    bool byte_fallback;   /* unknown text becomes the pieces <0x00> to <0xFF>, if all needed ones
                             exist */
    int32_t bytes[256];   /* ids of those pieces; -1: missing */
};

/* Read the fields of "model", including the vocabulary. */
gpuserve_status gsv_unigram_read(struct gsv_unigram *model, const struct gsv_member *fields,
                                 struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* Append the score of the next id. */
gpuserve_status gsv_unigram_add_score(struct gsv_unigram *model, double score, const char *name,
                                      gpuserve_error *error);
gpuserve_status gsv_unigram_build(struct gsv_unigram *model, const struct gsv_vocab *vocab,
                                  const char *name, gpuserve_error *error);
void gsv_unigram_reset(struct gsv_unigram *model);
size_t gsv_unigram_bytes(const struct gsv_unigram *model);

/* Parse a score with the arithmetic of `tokenizers`, which is not always the nearest double. False
 * if it is out of range or not a JSON number. */
bool gsv_unigram_score(const char *text, size_t size, double *score);

/* Split a word of at least 1 byte into scratch->pieces, whose capacity must be at least `size`.
 * Returns the number of tokens; 0 on failure, with scratch->failure set. The number of steps at
 * each character is bounded by the bytes of the longest piece that could begin there. */
size_t gsv_unigram_split(const struct gsv_unigram *model, const char *word, size_t size,
                         struct gsv_scratch *scratch);

#endif
