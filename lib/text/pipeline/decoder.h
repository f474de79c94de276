/*
 * decoder.h - the "decoder" of tokenizer.json: tokens back to text.
 *
 * A decoder is a chain of steps, each of which makes other tokens of all tokens; the text is what
 * is left, end to end.
 */
#ifndef GSV_TEXT_DECODER_H
#define GSV_TEXT_DECODER_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_decoder_kind {
    GSV_DECODE_WORDPIECE,     /* `text` before continuing pieces goes, others get a space */
    GSV_DECODE_METASPACE,     /* `text` becomes a space; with `drops`, in the first token nothing */
    GSV_DECODE_BYTE_LEVEL,    /* bytes by GPT-2's alphabet, all in one token */
    GSV_DECODE_SUFFIX,        /* BPEDecoder: `text` becomes a space, in the last token nothing */
    GSV_DECODE_REPLACE,       /* `text` becomes `content` */
    GSV_DECODE_BYTE_FALLBACK, /* "<0x61>" becomes a byte */
    GSV_DECODE_FUSE,          /* one token of all */
    GSV_DECODE_STRIP,         /* up to `count` times `text` at the beginning goes */
};

struct gsv_decoder_step {
    enum gsv_decoder_kind kind;
    bool cleanup; /* of WORDPIECE: no space before punctuation and short forms */
    bool drops;
    char *text, *content;
    size_t text_size, content_size;
    size_t count;
};

enum { GSV_DECODER_MAX_STEPS = 16 };

struct gsv_decoder {
    struct gsv_decoder_step steps[GSV_DECODER_MAX_STEPS];
    size_t n;
    bool joins; /* there is a decoder, if only an empty one; else tokens are joined by spaces */
};

/* Tokens end to end. Start with all zero. */
struct gsv_decoded {
    char *bytes;
    size_t size, capacity;
    size_t *ends; /* [n] */
    size_t n, ends_capacity;
};

/* `json` may be null. */
gpuserve_status gsv_decoder_parse(struct gsv_decoder *decoder, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error);
gpuserve_status gsv_decoder_wordpiece(struct gsv_decoder *decoder, const char *prefix, bool cleanup,
                                      const char *name, gpuserve_error *error);
gpuserve_status gsv_decoder_byte_level(struct gsv_decoder *decoder, const char *name,
                                       gpuserve_error *error);
/* U+2581 becomes a space, in the first token nothing. */
gpuserve_status gsv_decoder_metaspace(struct gsv_decoder *decoder, const char *name,
                                      gpuserve_error *error);
void gsv_decoder_reset(struct gsv_decoder *decoder);

/* One more token. False when out of memory. */
bool gsv_decoded_add(struct gsv_decoded *tokens, const char *text, size_t size);
/* tokens->bytes becomes their text. False when out of memory. */
bool gsv_decoder_run(const struct gsv_decoder *decoder, struct gsv_decoded *tokens);
void gsv_decoded_reset(struct gsv_decoded *tokens);

#endif
