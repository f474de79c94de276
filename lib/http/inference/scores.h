/*
 * scores.h - scores with their labels, best first.
 */
#ifndef GSV_HTTP_SCORES_H
#define GSV_HTTP_SCORES_H

#include "lib/http/protocol/exchange.h"

struct gsv_ranked {
    size_t index;
    float score;
};

/* Falling; equal scores by index; NaN last. */
void gsv_rank(struct gsv_ranked *ranked, size_t n);

/* The labels of one row of scores, best first; NULL after gsv_refuse. */
struct gsv_ranked *gsv_rank_labels(struct gsv_exchange *exchange, const float *row, size_t n);

/* [{"score":0.9,"label":"POSITIVE"},...] of one row of scores, `most` of them (0: all). */
void gsv_put_labels(struct gsv_exchange *exchange, const float *row, size_t most);

#endif
