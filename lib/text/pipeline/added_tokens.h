/*
 * added_tokens.h - added tokens ("[MASK]"): matched in the text before the model sees it.
 *
 * Tokens with normalized = false are matched in the original text, the others in the normalized
 * segments between those. Matching is leftmost-longest by a trie, without overlap.
 */
#ifndef GSV_TEXT_ADDED_TOKENS_H
#define GSV_TEXT_ADDED_TOKENS_H

#include "lib/text/pipeline/normalizer.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

struct gsv_added_token {
    char *content;
    size_t size;
    char *normalized_content; /* matched and decoded text, if not `content` */
    size_t normalized_size;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

/* A search index over the tokens of one kind. */
struct gsv_added_search {
    struct gsv_trie trie;
    int32_t *tokens;  /* [trie.n] index of the token that ends in a slot; -1: none */
    bool begins[256]; /* true for the first byte of any token */
    int only;         /* the common first byte of all tokens; -1 if they differ */
    size_t n;
};

struct gsv_added_tokens {
    struct gsv_added_token *tokens; /* [n] */
    size_t n, capacity;
    struct gsv_added_search raw, normalized;
};

enum {
    GSV_ADDED_MAX = 1 << 14,    /* loading compares each with all others */
    GSV_ADDED_MAX_BYTES = 4096, /* each match attempt costs at most this many steps */
};

/* Parse the array "added_tokens". Tokens missing from the vocabulary are appended to it, with the
 * ids that `tokenizers` assigns. */
gpuserve_status gsv_added_parse(struct gsv_added_tokens *added, const struct gsv_json_value *json,
                                struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* Parse one element; `special` is its default. */
gpuserve_status gsv_added_parse_one(struct gsv_added_tokens *added,
                                    const struct gsv_json_value *json, bool special,
                                    struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error);
/* Add one token; `token.content` is borrowed. */
gpuserve_status gsv_added_add(struct gsv_added_tokens *added, struct gsv_added_token token,
                              struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* Build the search indexes, after all tokens are added; again after further ones. */
gpuserve_status gsv_added_build(struct gsv_added_tokens *added,
                                const struct gsv_normalizer *normalizer, const char *name,
                                gpuserve_error *error);
void gsv_added_reset(struct gsv_added_tokens *added);

/* Find the next token in text[from, end) and set [*begin, *stop); NULL if no token is found. */
const struct gsv_added_token *gsv_added_find(const struct gsv_added_tokens *added,
                                             const struct gsv_added_search *search,
                                             const char *text, size_t from, size_t end,
                                             size_t *begin, size_t *stop);

/* The token with an id, or NULL. Requires gsv_added_build(). */
const struct gsv_added_token *gsv_added_by_id(const struct gsv_added_tokens *added, int32_t id);

#endif
