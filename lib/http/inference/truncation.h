/*
 * truncation.h - texts cut to a number of tokens that the request names.
 *
 * The limit of the model itself is the job's affair. A text is cut at a token's end, so the job
 * tokenizes what is left; prompts are put before it afterwards.
 */
#ifndef GSV_HTTP_TRUNCATION_H
#define GSV_HTTP_TRUNCATION_H

#include "lib/http/inference/inputs.h"

struct gsv_cut {
    const char *name;    /* of the field, for messages */
    size_t limit;        /* tokens; 0: no limit, nothing is done */
    bool special;        /* the limit counts special tokens too */
    uint32_t truncation; /* gpuserve_truncation: strict refuses a longer text */
};

/* The arrays of texts are replaced: a copy of *inputs made before still has the whole texts. Lists
 * of token ids over the limit are refused. False after gsv_refuse. */
bool gsv_inputs_cut(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                    const struct gsv_cut *cut);

#endif
