/*
 * tei.h - what the files of the text-embeddings-inference dialect share.
 */
#ifndef GSV_HTTP_TEI_H
#define GSV_HTTP_TEI_H

#include "lib/http/protocol/exchange.h"

/* tei_info.c: GET /info */
void gsv_tei_info(struct gsv_exchange *exchange);

/* tei_predict.c: POST /predict */
void gsv_tei_predict(struct gsv_exchange *exchange);

#endif
