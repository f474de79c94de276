/*
 * token_model.h - the "model" of a tokenizer: WordPiece, WordLevel, BPE, Unigram or a dictionary.
 *
 * Splits one pre-tokenized word into subword tokens. A built model is immutable; the buffers are in
 * the caller's scratch.
 */
#ifndef GSV_TEXT_TOKEN_MODEL_H
#define GSV_TEXT_TOKEN_MODEL_H

#include "lib/text/models/bpe.h"
#include "lib/text/models/dictionary.h"
#include "lib/text/models/unigram.h"
#include "lib/text/models/vocab.h"
#include "lib/text/models/wordpiece.h"

struct gsv_scratch;

/* WordLevel is a WordPiece model without continuation tokens and without a limit of characters: a
 * word in the vocabulary is one token, any other word is unknown. */
enum gsv_token_model_kind { GSV_WORDPIECE, GSV_BPE, GSV_UNIGRAM, GSV_WORDLEVEL, GSV_DICTIONARY };

struct gsv_token_model {
    enum gsv_token_model_kind kind;
    size_t max_chars; /* a word with more characters is unknown */
    struct gsv_wordpiece wordpiece;
    struct gsv_bpe bpe;
    struct gsv_unigram unigram;
    struct gsv_dictionary dictionary;
};

/* Read the JSON object "model"; its vocabulary goes into `vocab`. */
gpuserve_status gsv_token_model_read(struct gsv_token_model *model, struct gsv_vocab *vocab,
                                     struct gsv_json_slice json, const char *name,
                                     gpuserve_error *error);
/* Build the derived tables after all is read. `bytes`: the pre-tokenizer is byte-level. */
gpuserve_status gsv_token_model_build(struct gsv_token_model *model, const struct gsv_vocab *vocab,
                                      bool bytes, const char *name, gpuserve_error *error);
void gsv_token_model_reset(struct gsv_token_model *model);

/* The model type as in tokenizer.json; of a dictionary "WhitespaceTokenizer". */
const char *gsv_token_model_name(const struct gsv_token_model *model);
/* The id of the unknown token; -1 if the model has none. */
int32_t gsv_token_model_unknown(const struct gsv_token_model *model);
size_t gsv_token_model_bytes(const struct gsv_token_model *model);

/* Split a word of `size` > 0 bytes and n_chars characters into scratch->pieces, whose capacity must
 * be at least `size`. Returns the number of tokens; on failure sets scratch->failure. */
size_t gsv_token_model_split(const struct gsv_token_model *model, const char *word, size_t size,
                             size_t n_chars, struct gsv_scratch *scratch);

#endif
