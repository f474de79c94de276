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
/* Ranks `texts` of `body`, a request of TEI's /rerank. exchange->state stays the caller's. `finish`
 * writes the reply's list by gsv_tei_put_ranking(). */
void gsv_tei_rerank_start(struct gsv_exchange *exchange, const json_t *body, gsv_handler finish);
void gsv_tei_put_ranking(struct gsv_exchange *exchange);

/* tei_predict.c: classification of texts and pairs. */
void gsv_tei_predict(struct gsv_exchange *exchange);
/* The same of `inputs` in a form of /predict, with the options in `options`. Uses exchange->state.
 * `finish` reads the scores of input i by gsv_tei_predict_row(). */
void gsv_tei_predict_start(struct gsv_exchange *exchange, const json_t *inputs,
                           const json_t *options, gsv_handler finish);
const float *gsv_tei_predict_row(const struct gsv_exchange *exchange, size_t i);

/* tei.c: writes [{"index":1037,"value":0.5},...] from row i of a sparse embedding. Uses
 * exchange->state. False after gsv_refuse. */
bool gsv_tei_put_sparse(struct gsv_exchange *exchange, size_t i);

/* vertex.c: a request with `instances` */
void gsv_vertex(struct gsv_exchange *exchange);

#endif
