/*
 * tokenizer.h - text to token ids, equal to Hugging Face `tokenizers`.
 *
 * A tokenizer is immutable once loaded and may be used by any number of threads; each brings its
 * own gsv_encoding, whose buffers are reused from text to text.
 */
#ifndef GSV_TEXT_TOKENIZER_H
#define GSV_TEXT_TOKENIZER_H

#include "lib/base/dir.h"

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

struct gsv_tokenizer;

/* Tokens of one text or pair. Start with all zero; end with gsv_encoding_reset. */
struct gsv_encoding {
    int32_t *ids;         /* [n] */
    uint8_t *type_ids;    /* [n] */
    gpuserve_span *spans; /* [n] bytes of the text (or of the pair, where type says so) */
    size_t n;
    size_t capacity;
    bool truncated;
    void *scratch; /* the tokenizer's own: normalized text, words */
};

struct gsv_encode_options {
    size_t max_tokens;   /* special tokens included; 0: no limit */
    uint32_t truncation; /* gpuserve_truncation; DEFAULT is the tokenizer's own direction */
    bool no_special;
};

/* What the rest of a model's directory says of its tokenizer. All zero: nothing. */
struct gsv_tokenizer_place {
    const char *folder; /* looked in first, then in the directory itself; NULL: only there */
    bool do_lower_case; /* texts go through Unicode's lowercase before anything else */
};

/* From tokenizer.json of a model directory, else vocab.txt, vocab.json with merges.txt, or
 * sentencepiece.bpe.model (with the other files of their time: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json). `place` may be NULL. */
gpuserve_status gsv_tokenizer_load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                                   const struct gsv_tokenizer_place *place, gpuserve_error *error);
void gsv_tokenizer_free(struct gsv_tokenizer **tokenizer);

/* `pair` may be NULL. Text that is not UTF-8 is GPUSERVE_E_INVALID, naming the byte. The work is
 * bounded: it stops soon after max_tokens when the right end is cut. */
gpuserve_status gsv_tokenizer_encode(const struct gsv_tokenizer *tokenizer,
                                     struct gsv_encoding *encoding, const char *text, size_t size,
                                     const char *pair, size_t pair_size,
                                     const struct gsv_encode_options *options,
                                     gpuserve_error *error);
void gsv_encoding_reset(struct gsv_encoding *encoding);

/* See gpuserve_detokenize(). */
gpuserve_status gsv_tokenizer_decode(const struct gsv_tokenizer *tokenizer, const int32_t *ids,
                                     size_t n_ids, bool skip_special, char *text, size_t capacity,
                                     size_t *size, gpuserve_error *error);

/* One past the largest id. */
int32_t gsv_tokenizer_vocab_size(const struct gsv_tokenizer *tokenizer);
/* "WordPiece", "BPE", "Unigram" */
const char *gsv_tokenizer_kind(const struct gsv_tokenizer *tokenizer);
/* How many special tokens a single text, or a pair, gets. */
size_t gsv_tokenizer_special_count(const struct gsv_tokenizer *tokenizer, bool pair);
/* The token of an id as the vocabulary has it, lent, NUL-terminated; NULL: it is none. */
const char *gsv_tokenizer_token(const struct gsv_tokenizer *tokenizer, int32_t id, size_t *size);
/* The id for what the vocabulary lacks; -1: there is none. */
int32_t gsv_tokenizer_unknown(const struct gsv_tokenizer *tokenizer);
/* The id of a token by its text, -1 when it is none. */
int32_t gsv_tokenizer_id(const struct gsv_tokenizer *tokenizer, const char *token);
/* Host memory it holds. */
size_t gsv_tokenizer_bytes(const struct gsv_tokenizer *tokenizer);
/* Feed everything that decides ids to a digest, in a fixed order. */
void gsv_tokenizer_digest(const struct gsv_tokenizer *tokenizer,
                          void (*update)(void *state, const void *bytes, size_t size), void *state);

#endif
