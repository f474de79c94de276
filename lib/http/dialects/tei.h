/*
 * tei.h - handlers of the text-embeddings-inference dialect that have a file of their own.
 */
#ifndef GSV_HTTP_TEI_H
#define GSV_HTTP_TEI_H

#include "lib/http/protocol/exchange.h"

/* tei_info.c: GET /info */
void gsv_tei_info(struct gsv_exchange *exchange);

/* rerank.c: POST /rerank */
void gsv_tei_rerank(struct gsv_exchange *exchange);

/* tei_predict.c: POST /predict */
void gsv_tei_predict(struct gsv_exchange *exchange);

#endif
