/*
 * token_model.h - the "model" of a tokenizer: a word to tokens, by one of several algorithms.
 */
#ifndef GSV_TEXT_TOKEN_MODEL_H
#define GSV_TEXT_TOKEN_MODEL_H

#include "lib/text/models/bpe.h"
#include "lib/text/models/unigram.h"
#include "lib/text/models/vocab.h"
#include "lib/text/models/wordpiece.h"

struct gsv_scratch;

enum gsv_token_model_kind { GSV_WORDPIECE, GSV_BPE, GSV_UNIGRAM };

struct gsv_token_model {
    enum gsv_token_model_kind kind;
    size_t max_chars; /* a longer word is unknown, whatever it is */
    struct gsv_wordpiece wordpiece;
    struct gsv_bpe bpe;
    struct gsv_unigram unigram;
};

/* From the JSON object "model", whose vocabulary goes into `vocab`. */
gpuserve_status gsv_token_model_read(struct gsv_token_model *model, struct gsv_vocab *vocab,
                                     struct gsv_json_slice json, const char *name,
                                     gpuserve_error *error);
/* Once all is read: what is derived from it. `bytes`: the pre-tokenizer is byte-level. */
gpuserve_status gsv_token_model_build(struct gsv_token_model *model, const struct gsv_vocab *vocab,
                                      bool bytes, const char *name, gpuserve_error *error);
void gsv_token_model_reset(struct gsv_token_model *model);

/* As tokenizer.json calls it. */
const char *gsv_token_model_name(const struct gsv_token_model *model);
/* The id for what the vocabulary lacks; -1: there is none. */
int32_t gsv_token_model_unknown(const struct gsv_token_model *model);
size_t gsv_token_model_bytes(const struct gsv_token_model *model);

/* The pieces of a word of `size` bytes, at least 1, and n_chars characters into scratch->pieces, in
 * which there is room for `size` of them. Returns how many, or sets scratch->failure. */
size_t gsv_token_model_split(const struct gsv_token_model *model, const char *word, size_t size,
                             size_t n_chars, struct gsv_scratch *scratch);

#endif
