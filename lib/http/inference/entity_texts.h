/*
 * entity_texts.h - functions of both kinds of entity requests: token classification (entities.c)
 * and given labels (label_entities.c).
 */
#ifndef GSV_HTTP_ENTITY_TEXTS_H
#define GSV_HTTP_ENTITY_TEXTS_H

#include "lib/http/inference/inputs.h"

struct gsv_entity_inputs {
    const char **texts; /* [n] of the inputs, as sent */
    const size_t *sizes;
    bool is_list; /* the reply is a list of lists */
};

/* Reads `inputs` and, of `parameters`, the truncation; `known` (NULL-terminated) are all parameters
 * that the request may have. False after gsv_refuse. */
bool gsv_entity_texts_read(struct gsv_exchange *exchange, const char *const *known,
                           struct gsv_entity_inputs *texts, gpuserve_job *job,
                           struct gsv_inputs *inputs);

/* The host program swapped the model during the request. Returns false. */
bool gsv_refuse_swapped(struct gsv_exchange *exchange);

#endif
