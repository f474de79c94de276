/*
 * entities.h - what a token classifier finds in texts, as Hugging Face's token classification tells
 * it.
 */
#ifndef GSV_HTTP_ENTITIES_H
#define GSV_HTTP_ENTITIES_H

#include "lib/http/protocol/exchange.h"

/* Answer {"inputs":"text" or ["text",...],"parameters":{"aggregation_strategy","ignore_labels"}}
 * with
 * [{"entity_group","score","word","start","end"},...], a list of these for a list of texts. */
void gsv_entities(struct gsv_exchange *exchange);

#endif
