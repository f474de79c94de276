/*
 * entities.h - named entity recognition with a token classifier, in Hugging Face's format for
 * token classification.
 */
#ifndef GSV_HTTP_ENTITIES_H
#define GSV_HTTP_ENTITIES_H

#include "lib/http/protocol/exchange.h"

/* Handles {"inputs":"text" or ["text",...],"parameters":{"aggregation_strategy","ignore_labels"}}.
 * Replies [{"entity_group","score","word","start","end"},...], or a list of these for a list of
 * texts. */
void gsv_entities(struct gsv_exchange *exchange);

#endif
