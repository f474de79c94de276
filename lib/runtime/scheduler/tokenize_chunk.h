/*
 * tokenize_chunk.h - tokenizing the items of a request, and the buffers for it.
 */
#ifndef GSV_RUNTIME_TOKENIZE_CHUNK_H
#define GSV_RUNTIME_TOKENIZE_CHUNK_H

#include "lib/runtime/scheduler/request.h"
#include "lib/text/tokenizer.h"

/* Buffers of one thread while it tokenizes; reused from call to call. */
struct gsv_encoder {
    struct gsv_encoder *next;
    struct gsv_encoding encoding;
    char *text; /* prompt and text, joined */
    size_t capacity;
};

/* Encoders that no thread uses now. */
struct gsv_encoders {
    pthread_mutex_t lock;
    struct gsv_encoder *idle;
    size_t n_idle;
};

void gsv_encoders_init(struct gsv_encoders *encoders);
void gsv_encoders_reset(struct gsv_encoders *encoders);

/* NULL when out of memory. */
struct gsv_encoder *gsv_encoder_take(struct gsv_encoders *encoders);
void gsv_encoder_give(struct gsv_encoders *encoders, struct gsv_encoder *encoder);

/* Tokenize a chunk's items; its `ids`, `type_ids`, `n_tokens` and the items' fields are set on
 * success. Any thread; the chunk is its own meanwhile. */
gpuserve_status gsv_encode_chunk(struct gsv_model *model, gpuserve_request *request,
                                 struct gsv_chunk *chunk, gpuserve_error *error);

/* How many of a text's tokens stand for the prompt before it, as sentence-transformers counts:
 * those of the prompt alone with its special tokens, less the last one. */
gpuserve_status gsv_prompt_tokens(struct gsv_model *model, const char *prompt, int32_t *n,
                                  gpuserve_error *error);

/* Hash the tokens of a chunk's items and look for their rows in the model's cache; what is found is
 * copied to the request's staging and counts as computed. The chunk is the thread's own meanwhile.
 */
void gsv_recall_chunk(struct gsv_model *model, gpuserve_request *request, struct gsv_chunk *chunk);

#endif
