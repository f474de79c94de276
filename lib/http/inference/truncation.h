/*
 * truncation.h - truncates texts to a number of tokens that the request gives.
 *
 * The job applies the model's own limit. A text is cut at the end of a token, because the job
 * tokenizes the rest again. Prompts are prepended afterwards.
 */
#ifndef GSV_HTTP_TRUNCATION_H
#define GSV_HTTP_TRUNCATION_H

#include "lib/http/inference/inputs.h"

struct gsv_cut {
    const char *name;    /* of the field, for messages */
    size_t limit;        /* tokens; 0: no limit */
    bool special;        /* the limit includes special tokens */
    uint32_t truncation; /* gpuserve_truncation; strict rejects longer texts */
};

/* Replaces the arrays of texts; a copy of *inputs made before keeps the full texts. Lists of token
 * ids over the limit are rejected. False after gsv_refuse. */
bool gsv_inputs_cut(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                    const struct gsv_cut *cut);

#endif
