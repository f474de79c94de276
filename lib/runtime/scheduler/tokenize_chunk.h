/*
 * tokenize_chunk.h - tokenization of a request's items, cache lookup, and the buffers for both.
 */
#ifndef GSV_RUNTIME_TOKENIZE_CHUNK_H
#define GSV_RUNTIME_TOKENIZE_CHUNK_H

#include "lib/runtime/scheduler/request.h"
#include "lib/text/tokenizer.h"

/* Tokenization buffers of one thread; reused from call to call. */
struct gsv_encoder {
    struct gsv_encoder *next;
    struct gsv_encoding encoding;
    char *text; /* prompt and text, joined */
    size_t capacity;
};

/* Pool of idle encoders. */
struct gsv_encoders {
    pthread_mutex_t lock;
    struct gsv_encoder *idle;
    size_t n_idle;
};

void gsv_encoders_init(struct gsv_encoders *encoders);
void gsv_encoders_reset(struct gsv_encoders *encoders);

/* NULL when out of memory. */
struct gsv_encoder *gsv_encoder_acquire(struct gsv_encoders *encoders);
void gsv_encoder_release(struct gsv_encoders *encoders, struct gsv_encoder *encoder);

/* Tokenize a chunk's items. Sets `ids`, `type_ids` and `n_tokens` of the chunk and the fields of
 * its items on success. Any thread; the calling thread owns the chunk meanwhile. */
gpuserve_status gsv_encode_chunk(struct gsv_model *model, gpuserve_request *request,
                                 struct gsv_chunk *chunk, gpuserve_error *error);

/* Copy the caller's ids to a chunk of all items, each filled up as a query. Sets what
 * gsv_encode_chunk() sets. */
gpuserve_status gsv_fill_ids(const struct gsv_model *model, gpuserve_request *request,
                             struct gsv_chunk *chunk, gpuserve_error *error);

/* The rows by token of an item, whose tokens are set. */
void gsv_count_rows(const struct gsv_plan *plan, const gpuserve_request *request,
                    const struct gsv_chunk *chunk, struct gsv_item *item);

/* Number of tokens of a text that belong to the prompt before it, counted as sentence-transformers
 * does: the tokens of the prompt alone with its special tokens, minus the last one. */
gpuserve_status gsv_prompt_tokens(struct gsv_model *model, const char *prompt, int32_t *n,
                                  gpuserve_error *error);

/* Hash the tokens of a chunk's items and look their rows up in the model's cache. A hit is copied
 * to the request's staging and counts as computed. The calling thread owns the chunk meanwhile. */
void gsv_recall_chunk(struct gsv_model *model, gpuserve_request *request, struct gsv_chunk *chunk);

#endif
