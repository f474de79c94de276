/*
 * scores.h - ranking of scores and their labels, best first.
 */
#ifndef GSV_HTTP_SCORES_H
#define GSV_HTTP_SCORES_H

#include "lib/http/protocol/exchange.h"

struct gsv_ranked {
    size_t index;
    float score;
};

/* Sorts by descending score; equal scores by index; NaN last. */
void gsv_rank(struct gsv_ranked *ranked, size_t n);

/* Ranks the labels of one row of scores; NULL after gsv_refuse. */
struct gsv_ranked *gsv_rank_labels(struct gsv_exchange *exchange, const float *row, size_t n);

/* Writes [{"score":0.9,"label":"POSITIVE"},...] from one row of scores, at most `most` (0: all). */
void gsv_put_labels(struct gsv_exchange *exchange, const float *row, size_t most);

#endif
