/*
 * tokenizer.h - tokenizer interface: text to token ids and back, equal to Hugging Face
 * `tokenizers`.
 *
 * Threading: a tokenizer is immutable once loaded and given its special tokens, and any number of
 * threads may share it. Each thread uses its own gsv_encoding, whose buffers are reused for each
 * text.
 */
#ifndef GSV_TEXT_TOKENIZER_H
#define GSV_TEXT_TOKENIZER_H

#include "lib/base/dir.h"

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

struct gsv_tokenizer;

/* Tokens of one text or pair. Initialise to zero; free with gsv_encoding_reset(). */
struct gsv_encoding {
    int32_t *ids;         /* [n] */
    uint8_t *type_ids;    /* [n] */
    gpuserve_span *spans; /* [n] bytes of the text, or of the pair's second text */
    size_t n;
    size_t capacity;
    bool truncated;
    void *scratch; /* owned; a struct gsv_scratch: normalized text, words, word cache */
};

struct gsv_encode_options {
    size_t max_tokens;   /* including special tokens; 0: no limit */
    uint32_t truncation; /* gpuserve_truncation; DEFAULT: the tokenizer's own direction */
    bool no_special;
};

/* Tokenizer settings from other files of the model directory. All zero: no settings. */
struct gsv_tokenizer_settings {
    const char *folder; /* searched first, then the directory itself; NULL: only the directory */
    bool do_lower_case; /* Unicode-lowercase texts before any other step */
    bool no_special;    /* add no special tokens to texts */
    bool skips_unknown; /* leave out unknown tokens, after truncation */
    /* Before tokenization cut a text after max_tokens times the median length of the vocabulary's
     * tokens, in characters. */
    bool cuts_characters;
};

/* Load the tokenizer of a model directory: from tokenizer.json, else from vocab.txt, vocab.json
 * with merges.txt, sentencepiece.bpe.model, or whitespacetokenizer_config.json.
 * tokenizer_config.json is read too; the older formats also read special_tokens_map.json and
 * added_tokens.json. `settings` may be NULL. */
gpuserve_status gsv_tokenizer_load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                                   const struct gsv_tokenizer_settings *settings,
                                   gpuserve_error *error);
void gsv_tokenizer_free(struct gsv_tokenizer **tokenizer);

/* Encode a text or a pair; `pair` may be NULL. Text that is not UTF-8 returns GPUSERVE_E_INVALID,
 * and the message names the byte. With right truncation the work stops soon after max_tokens. */
gpuserve_status gsv_tokenizer_encode(const struct gsv_tokenizer *tokenizer,
                                     struct gsv_encoding *encoding, const char *text, size_t size,
                                     const char *pair, size_t pair_size,
                                     const struct gsv_encode_options *options,
                                     gpuserve_error *error);
void gsv_encoding_reset(struct gsv_encoding *encoding);

/* The contract is that of gpuserve_detokenize(): *size includes the NUL. */
gpuserve_status gsv_tokenizer_decode(const struct gsv_tokenizer *tokenizer, const int32_t *ids,
                                     size_t n_ids, bool skip_special, char *text, size_t capacity,
                                     size_t *size, gpuserve_error *error);

/* The largest token id plus one. */
int32_t gsv_tokenizer_vocab_size(const struct gsv_tokenizer *tokenizer);
/* "WordPiece", "WordLevel", "BPE", "Unigram", "WhitespaceTokenizer" */
const char *gsv_tokenizer_kind(const struct gsv_tokenizer *tokenizer);
/* The number of special tokens added to a single text, or to a pair. */
size_t gsv_tokenizer_special_count(const struct gsv_tokenizer *tokenizer, bool pair);
/* The special tokens of a single text: the first *n_before of the *n are before it, the others
 * after it. Borrowed. */
const int32_t *gsv_tokenizer_special_ids(const struct gsv_tokenizer *tokenizer, size_t *n_before,
                                         size_t *n);
/* True for added tokens that are special, for the tokens around a text, and for the unknown
 * token. */
bool gsv_tokenizer_is_special(const struct gsv_tokenizer *tokenizer, int32_t id);
/* The text of an id as in the vocabulary: borrowed, *size bytes. NULL if no token has the id. */
const char *gsv_tokenizer_token(const struct gsv_tokenizer *tokenizer, int32_t id, size_t *size);
/* The id of the unknown token; -1 if the model has none. */
int32_t gsv_tokenizer_unknown(const struct gsv_tokenizer *tokenizer);
/* True if tokens inside a word have a prefix in the vocabulary, such as "##". */
bool gsv_tokenizer_has_prefix(const struct gsv_tokenizer *tokenizer);
/* The id of the token with this text; -1 if the vocabulary lacks it. */
int32_t gsv_tokenizer_id(const struct gsv_tokenizer *tokenizer, const char *token);
/* Make a token of the vocabulary a special token, found in texts before any other step, unless its
 * text is one token already. Not once threads share the tokenizer. */
gpuserve_status gsv_tokenizer_add_special(struct gsv_tokenizer *tokenizer, const char *token,
                                          gpuserve_error *error);
/* Host memory in use. */
size_t gsv_tokenizer_bytes(const struct gsv_tokenizer *tokenizer);
/* Find the word at or after byte `at` of well-formed UTF-8: a run of letters, numbers and "_",
 * joined by "-" to further runs, or one other character that is no white space. False if there is
 * none. Implemented in words.c. */
bool gsv_next_word(const char *text, size_t size, size_t at, gpuserve_span *word);
/* Feed all data that determines token ids to a digest, in a fixed order. */
void gsv_tokenizer_digest(const struct gsv_tokenizer *tokenizer,
                          void (*update)(void *state, const void *bytes, size_t size), void *state);

#endif
