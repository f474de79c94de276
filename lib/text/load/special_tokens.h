/*
 * special_tokens.h - special and added tokens of models without a tokenizer.json.
 *
 * The tokens are spread over several files, merged as transformers does. Added tokens come from
 * "added_tokens_decoder" of tokenizer_config.json. Without it they come from added_tokens.json;
 * then special_tokens_map.json takes precedence over tokenizer_config.json for the special tokens.
 */
#ifndef GSV_TEXT_SPECIAL_TOKENS_H
#define GSV_TEXT_SPECIAL_TOKENS_H

#include "lib/text/tokenizer_parts.h"

#include <gpuserve/types.h>

/* The default of a transformers class for a key such as "cls_token". */
struct gsv_special {
    const char *key;
    const char *usual; /* default text if no file has the key; NULL: no such token */
    bool needed;       /* null, which means no such token, is refused */
    bool known; /* must be in the vocabulary or the added tokens; if false, a missing token is
                   appended */
    /* If true, a token given as plain text has the two flags below. If false, it has the flags of
     * its entry among the added tokens, or none. */
    bool flagged;
    bool lstrip, normalized;
};

/* Read the special and added tokens, after the vocabulary. Tokens missing from the vocabulary are
 * appended in the order of `keys`. ids[n] receives the id of each key; -1: no such token. */
gpuserve_status gsv_specials_read(struct gsv_tokenizer *tokenizer,
                                  const struct gsv_vocab_files *files,
                                  const struct gsv_special *keys, size_t n, int32_t *ids,
                                  const char *name, gpuserve_error *error);

/*
 * Validates "truncation" and "padding" of tokenizer.json.
 *
 * The values are checked but not used: they are the settings of the file's last user
 * (all-MiniLM-L6-v2 has 128 tokens). The token limit comes with each text, and texts are not
 * padded. Malformed values fail the load.
 */

struct gsv_json_value;

/* NULL and a JSON null are valid. */
gpuserve_status gsv_check_truncation(const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error);
gpuserve_status gsv_check_padding(const struct gsv_json_value *json, const char *name,
                                  gpuserve_error *error);

#endif
