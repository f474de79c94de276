/*
 * long_texts.h - the field `chunking` of an embedding request (windows, late chunking) and Jina's
 * `late_chunking`.
 */
#ifndef GSV_HTTP_LONG_TEXTS_H
#define GSV_HTTP_LONG_TEXTS_H

#include "lib/http/inference/compact.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

struct gsv_long {
    bool is_asked;  /* the request has one of the fields */
    bool is_joined; /* `late_chunking`: the inputs are the chunks of one text */
    const json_t *spans;
    gpuserve_long_options options;
    gpuserve_job
        how; /* private: fields of every job; the rest is for the start after calibration */
    struct gsv_inputs inputs;
    gsv_handler finish;
};

/* Reads `chunking` or `late_chunking`; is_asked stays false without them. False after gsv_refuse.
 */
bool gsv_long_read(struct gsv_exchange *exchange, const json_t *object, struct gsv_long *wanted);

/* Starts the embedding of texts as `wanted` says, with the prompt and vector form of `job`.
 * `finish` runs with the vectors as rows of exchange->work: one for each text, or for each chunk.
 * `wanted` and `compact` live as long as the exchange. False after gsv_refuse. */
bool gsv_long_start(struct gsv_exchange *exchange, struct gsv_long *wanted,
                    struct gsv_compact *compact, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish);

/* Appends the fields of a reply that tell the chunk of row i, or the windows of text i: each
 * begins with a comma. *at counts the chunks already written, from 0. */
void gsv_put_chunks(struct gsv_exchange *exchange, const struct gsv_long *wanted, size_t i,
                    size_t *at);

#endif
