/*
 * zero_shot.h - zero-shot classification: labels that the model was not trained on, by similarity
 * of embeddings.
 */
#ifndef GSV_HTTP_ZERO_SHOT_H
#define GSV_HTTP_ZERO_SHOT_H

#include "lib/http/protocol/exchange.h"

/* Handles {"inputs":"a text","parameters":{"candidate_labels":[..],"multi_label",
 * "hypothesis_template"}} -> [{"label","score"}], in descending order. Needs exchange->served. */
void gsv_zero_shot(struct gsv_exchange *exchange);

#endif
