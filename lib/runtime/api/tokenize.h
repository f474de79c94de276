/*
 * tokenize.h - the calls between text and token ids, shared by models and tokenizers.
 */
#ifndef GSV_RUNTIME_TOKENIZE_H
#define GSV_RUNTIME_TOKENIZE_H

#include "lib/runtime/scheduler/tokenize_chunk.h"

/* The arguments of one call. An output array is NULL or has `capacity` elements; without any array
 * only *n_tokens is set. */
struct gsv_tokenize_call {
    const char *text, *pair; /* pair may be NULL */
    size_t size, pair_size;
    int32_t *ids, *type_ids;
    gpuserve_span *spans;
    size_t capacity;
    size_t *n_tokens;
};

/* Check the arguments and read the options; `given` may be NULL. */
gpuserve_status gsv_tokenize_check(const struct gsv_tokenize_call *call,
                                   const gpuserve_tokenize_options *given,
                                   struct gsv_encode_options *how, gpuserve_error *error);

/* Any thread; takes an encoder from the pool. */
gpuserve_status gsv_tokenize(const struct gsv_tokenizer *tokenizer, struct gsv_encoders *encoders,
                             const struct gsv_tokenize_call *call,
                             const struct gsv_encode_options *how, gpuserve_error *error);

gpuserve_status gsv_detokenize_check(const int32_t *ids, size_t n_ids, int32_t skip_special,
                                     gpuserve_error *error);

/* The contract of gpuserve_token_text(); implemented in entities.c. */
gpuserve_status gsv_put_token_text(const struct gsv_tokenizer *tokenizer, int32_t id, char *text,
                                   size_t capacity, size_t *size, gpuserve_error *error);

#endif
