/*
 * decoder.h - the "decoder" of tokenizer.json: tokens to text.
 *
 * A decoder is a list of steps. Each step transforms the whole token list; the text is the
 * concatenation of the final list.
 */
#ifndef GSV_TEXT_DECODER_H
#define GSV_TEXT_DECODER_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_decoder_kind {
    GSV_DECODE_WORDPIECE,  /* drop `text` before continuation tokens, put a space before others */
    GSV_DECODE_METASPACE,  /* `text` becomes a space; with `drops`, nothing in the first token */
    GSV_DECODE_BYTE_LEVEL, /* decode GPT-2's byte alphabet; the result is one token */
    GSV_DECODE_SUFFIX,     /* BPEDecoder: `text` becomes a space, nothing in the last token */
    GSV_DECODE_REPLACE,    /* `text` becomes `content` */
    GSV_DECODE_BYTE_FALLBACK, /* "<0x61>" becomes a byte */
    GSV_DECODE_FUSE,          /* concatenate all tokens into one */
    GSV_DECODE_STRIP,         /* remove `text` at the beginning, at most `count` times */
};

struct gsv_decoder_step {
    enum gsv_decoder_kind kind;
    bool cleanup; /* WORDPIECE: no space before punctuation and contractions */
    bool drops;
    char *text, *content;
    size_t text_size, content_size;
    size_t count;
};

enum { GSV_DECODER_MAX_STEPS = 16 };

struct gsv_decoder {
    struct gsv_decoder_step steps[GSV_DECODER_MAX_STEPS];
    size_t n;
    bool joins; /* a decoder exists, possibly empty; if false, tokens are joined by spaces */
};

/* A token list in one buffer. Initialise to zero. */
struct gsv_decoded {
    char *bytes;
    size_t size, capacity;
    size_t *ends; /* [n] end offset of each token */
    size_t n, ends_capacity;
};

/* Parse the decoder; `json` may be NULL or a JSON null. */
gpuserve_status gsv_decoder_parse(struct gsv_decoder *decoder, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error);
gpuserve_status gsv_decoder_wordpiece(struct gsv_decoder *decoder, const char *prefix, bool cleanup,
                                      const char *name, gpuserve_error *error);
gpuserve_status gsv_decoder_byte_level(struct gsv_decoder *decoder, const char *name,
                                       gpuserve_error *error);
/* Append a step: U+2581 becomes a space, nothing in the first token. */
gpuserve_status gsv_decoder_metaspace(struct gsv_decoder *decoder, const char *name,
                                      gpuserve_error *error);
void gsv_decoder_reset(struct gsv_decoder *decoder);

/* Append a token. False when out of memory. */
bool gsv_decoded_add(struct gsv_decoded *tokens, const char *text, size_t size);
/* Run all steps; the text is then tokens->bytes. False when out of memory. */
bool gsv_decoder_run(const struct gsv_decoder *decoder, struct gsv_decoded *tokens);
void gsv_decoded_reset(struct gsv_decoded *tokens);

#endif
