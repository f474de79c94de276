/*
 * zero_shot.h - labels a model was never trained on, by the similarity of their words.
 */
#ifndef GSV_HTTP_ZERO_SHOT_H
#define GSV_HTTP_ZERO_SHOT_H

#include "lib/http/protocol/exchange.h"

/* {"inputs":"a text","parameters":{"candidate_labels":[..],"multi_label","hypothesis_template"}} ->
 * [{"label","score"}], falling. The model is held. */
void gsv_zero_shot(struct gsv_exchange *exchange);

#endif
