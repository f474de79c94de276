/*
 * special_tokens.h - special and added tokens, where several files tell of them and none all.
 *
 * As transformers puts them together: added tokens are those of tokenizer_config.json's
 * "added_tokens_decoder"; where a file has none, those of added_tokens.json, and the special ones
 * are what special_tokens_map.json calls so before tokenizer_config.json.
 */
#ifndef GSV_TEXT_SPECIAL_TOKENS_H
#define GSV_TEXT_SPECIAL_TOKENS_H

#include "lib/text/tokenizer_parts.h"

/* What a class of transformers has under a key such as "cls_token". */
struct gsv_special {
    const char *key;
    const char *usual; /* the text where no file names one; NULL: then there is none */
    bool needed;       /* null, which says that there is none, is refused */
    bool known; /* it is in the vocabulary or among the added tokens; else it becomes one of them */
    /* A text without flags has those below. Else it has those of its entry among the added tokens,
     * or none. */
    bool flagged;
    bool lstrip, normalized;
};

/* Once the vocabulary has been read. Tokens that it lacks are added in the order of `keys`; ids[n]
 * receives the id of each, -1: there is no such token. */
gpuserve_status gsv_specials_read(struct gsv_tokenizer *tokenizer,
                                  const struct gsv_vocab_files *files,
                                  const struct gsv_special *keys, size_t n, int32_t *ids,
                                  const char *name, gpuserve_error *error);

#endif
