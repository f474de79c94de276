/*
 * added_tokens.h - tokens found in the text before the model sees it ("[MASK]").
 *
 * Those with normalized = false are looked for in the text as given, the others in the normalized
 * pieces between them. Of those that begin at one place the longest is taken, and the search goes
 * on behind it.
 */
#ifndef GSV_TEXT_ADDED_TOKENS_H
#define GSV_TEXT_ADDED_TOKENS_H

#include "lib/text/pipeline/normalizer.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"

struct gsv_added_token {
    char *content;
    size_t size;
    char *normalized_content; /* what is looked for and decoded to, when that is not `content` */
    size_t normalized_size;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

/* Tokens of one kind, ready to be looked for. */
struct gsv_added_search {
    struct gsv_trie trie;
    int32_t *tokens;  /* [trie.n] index of the token that ends in a slot; -1 */
    bool begins[256]; /* a token begins with this byte */
    int only;         /* the one byte that all begin with; -1 when there are several */
    size_t n;
};

struct gsv_added_tokens {
    struct gsv_added_token *tokens; /* [n] */
    size_t n, capacity;
    struct gsv_added_search raw, normalized;
};

enum {
    GSV_ADDED_MAX = 1 << 14,    /* each is looked for among the others while loading */
    GSV_ADDED_MAX_BYTES = 4096, /* looking for one costs at most its length at each byte */
};

/* `json` is the array "added_tokens". Tokens that the vocabulary lacks are appended to it, with
 * the ids that `tokenizers` gives them. */
gpuserve_status gsv_added_parse(struct gsv_added_tokens *added, const struct gsv_json_value *json,
                                struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* One of its elements; `special` is what it is if it does not say. */
gpuserve_status gsv_added_parse_one(struct gsv_added_tokens *added,
                                    const struct gsv_json_value *json, bool special,
                                    struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error);
/* One more; `token.content` is borrowed. */
gpuserve_status gsv_added_add(struct gsv_added_tokens *added, struct gsv_added_token token,
                              struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* Once all are there. */
gpuserve_status gsv_added_build(struct gsv_added_tokens *added,
                                const struct gsv_normalizer *normalizer, const char *name,
                                gpuserve_error *error);
void gsv_added_reset(struct gsv_added_tokens *added);

/* The next token in text[from, end), at *begin to *stop; NULL when there is none. */
const struct gsv_added_token *gsv_added_find(const struct gsv_added_tokens *added,
                                             const struct gsv_added_search *search,
                                             const char *text, size_t from, size_t end,
                                             size_t *begin, size_t *stop);

/* The token that has an id, or NULL. */
const struct gsv_added_token *gsv_added_by_id(const struct gsv_added_tokens *added, int32_t id);

#endif
