/*
 * similarity.h - cosine similarity of one sentence to others. TEI's /similarity and Hugging Face's
 * sentence_similarity send the same body.
 */
#ifndef GSV_HTTP_SIMILARITY_H
#define GSV_HTTP_SIMILARITY_H

#include "lib/http/protocol/exchange.h"

/* Handles {"inputs":{"source_sentence","sentences"},"parameters":{}} -> [f, ...]. Needs
 * exchange->served. */
void gsv_similarity(struct gsv_exchange *exchange);

#endif
