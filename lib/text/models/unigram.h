/*
 * unigram.h - a word to the pieces whose scores add up to the most (Viterbi over a trie).
 *
 * As the `tokenizers` package does it, ties included: ids depend on the order in which sums are
 * compared and on every bit of the scores.
 */
#ifndef GSV_TEXT_UNIGRAM_H
#define GSV_TEXT_UNIGRAM_H

#include "lib/base/json_fields.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

#include <stdbool.h>

struct gsv_scratch;

/* The best way from a word's beginning to one of its bytes. */
struct gsv_best_way {
    double score;
    uint32_t begin; /* of its last piece; GSV_NO_WAY: none is known yet */
    int32_t id;
};

#define GSV_NO_WAY UINT32_MAX

struct gsv_unigram {
    struct gsv_trie trie;
    int32_t *ids;   /* [trie.n] the piece that ends in a slot, -1: none */
    double *scores; /* [n_scores] by id */
    size_t n_scores, scores_capacity;
    double unknown_score; /* of a character that is no piece */
    int32_t unknown;      /* -1: the model has none */
    bool byte_fallback; /* unknown texts become the pieces <0x00> to <0xFF>, where all are there */
    int32_t bytes[256]; /* those pieces, -1 where they are not */
};

/* From the members of "model"; reads the vocabulary too. */
gpuserve_status gsv_unigram_read(struct gsv_unigram *model, const struct gsv_member *fields,
                                 struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* The score of the next piece, in the order of ids. */
gpuserve_status gsv_unigram_add_score(struct gsv_unigram *model, double score, const char *name,
                                      gpuserve_error *error);
gpuserve_status gsv_unigram_build(struct gsv_unigram *model, const struct gsv_vocab *vocab,
                                  const char *name, gpuserve_error *error);
void gsv_unigram_reset(struct gsv_unigram *model);
size_t gsv_unigram_bytes(const struct gsv_unigram *model);

/* A score as the package reads numbers, which is not always the nearest double. False when it is
 * out of range or no JSON number. */
bool gsv_unigram_score(const char *text, size_t size, double *score);

/* The pieces of a word of 1 or more bytes into scratch->pieces, in which there is room for `size`
 * of them. Returns how many; 0 when it failed, see scratch->failure. At each character as many
 * steps are taken as the longest piece that could begin there has bytes. */
size_t gsv_unigram_split(const struct gsv_unigram *model, const char *word, size_t size,
                         struct gsv_scratch *scratch);

#endif
