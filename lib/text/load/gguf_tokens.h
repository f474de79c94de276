/*
 * gguf_tokens.h - the tokenizer in the key-values "tokenizer.ggml.*" of a GGUF file.
 *
 * The parts are built that equal the original tokenizer, not llama.cpp's reading of the file where
 * the two differ. What the file does not say is inferred as the comments describe.
 */
#ifndef GSV_TEXT_GGUF_TOKENS_H
#define GSV_TEXT_GGUF_TOKENS_H

#include "lib/base/gguf.h"
#include "lib/text/tokenizer_parts.h"

/* Values of "tokenizer.ggml.token_type". */
enum gsv_gguf_token_type {
    GSV_GGUF_TOKEN_NORMAL = 1,
    GSV_GGUF_TOKEN_UNKNOWN,
    GSV_GGUF_TOKEN_CONTROL,
    GSV_GGUF_TOKEN_USER_DEFINED,
    GSV_GGUF_TOKEN_UNUSED,
    GSV_GGUF_TOKEN_BYTE
};

/* State while a tokenizer is read. */
struct gguf_tokens {
    struct gsv_tokenizer *t;
    const struct gsv_gguf *gguf;
    const struct gsv_gguf_value *tokens; /* strings */
    const struct gsv_gguf_value *types;  /* int32 for each token; NULL: all are normal */
    const struct gsv_gguf_value *scores; /* float32 for each token; NULL: none */
    uint64_t n;                          /* tokens without the unused ones at the end */
    /* -1: the file has no such key. */
    int64_t bos, eos, unknown, separator, cls, mask;
    bool adds_bos, adds_eos, adds_separator;
};

static inline int32_t gsv_gguf_token_type(const struct gguf_tokens *from, uint64_t id)
{
    return from->types ? gsv_gguf_int_at(from->types, id) : GSV_GGUF_TOKEN_NORMAL;
}

/* Read the tokenizer models "gpt2" (byte-level BPE) and "llama" (SentencePiece's BPE), after the
 * vocabulary. */
gpuserve_status gsv_gguf_read_gpt2(struct gguf_tokens *from, gpuserve_error *error);
gpuserve_status gsv_gguf_read_llama(struct gguf_tokens *from, gpuserve_error *error);

/* Set both templates: `first` A `last`, and `first` A `last` ... B `last` with n_between tokens
 * `last` between the texts, and type_b for those after them. An id of -1: no such token. */
void gsv_gguf_set_templates(struct gsv_tokenizer *t, int64_t first, int64_t last, size_t n_between,
                            uint8_t type_b);

/* Read the tokenizer of a GGUF file into the parts; gsv_tokenizer_finish() remains to be done. */
gpuserve_status gsv_tokenizer_read_gguf(struct gsv_tokenizer *t, const struct gsv_gguf *gguf,
                                        gpuserve_error *error);

#endif
