/*
 * decoder.h - the "decoder" of tokenizer.json: tokens back to text.
 */
#ifndef GSV_TEXT_DECODER_H
#define GSV_TEXT_DECODER_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_decoder {
    bool wordpiece; /* else tokens are joined by spaces */
    bool cleanup;   /* no space before punctuation and short forms */
    char *prefix;   /* of continuing pieces */
};

/* `json` may be null. */
gpuserve_status gsv_decoder_parse(struct gsv_decoder *decoder, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error);
gpuserve_status gsv_decoder_wordpiece(struct gsv_decoder *decoder, const char *prefix, bool cleanup,
                                      const char *name, gpuserve_error *error);
void gsv_decoder_reset(struct gsv_decoder *decoder);

/* The text of one token, the first of its line or a later one, into room for size + 1 bytes.
 * Returns its bytes. */
size_t gsv_decoder_token(const struct gsv_decoder *decoder, const char *token, size_t size,
                         bool first, char *out);

#endif
