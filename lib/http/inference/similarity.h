/*
 * similarity.h - one sentence against others: TEI's /similarity and Hugging Face's
 * sentence_similarity send the same body.
 */
#ifndef GSV_HTTP_SIMILARITY_H
#define GSV_HTTP_SIMILARITY_H

#include "lib/http/protocol/exchange.h"

/* {"inputs":{"source_sentence","sentences"},"parameters":{}} -> [f, ...]. The model is held. */
void gsv_similarity(struct gsv_exchange *exchange);

#endif
