/*
 * drawn_ids.h - sequences of token ids drawn from a vocabulary: probes that do not depend on the
 * words that a tokenizer knows.
 */
#ifndef GSV_RUNTIME_DRAWN_IDS_H
#define GSV_RUNTIME_DRAWN_IDS_H

#include "lib/runtime/plan/load_plan.h"

/* The ordinary tokens of a model, and the state of the generator. */
struct gsv_drawn_ids {
    int32_t *ids; /* [n]; owned */
    int32_t n;
    uint64_t state;
};

/* Collect the tokens that texts consist of: those with rows in the model's table, without special
 * tokens, the pad token and ids that no token has. */
gpuserve_status gsv_drawn_ids_init(struct gsv_drawn_ids *drawn, const struct gsv_plan *plan,
                                   gpuserve_error *error);
void gsv_drawn_ids_reset(struct gsv_drawn_ids *drawn);

/* Draw `n` ids with replacement; there must be an ordinary token. The sequences are the same in
 * each load. */
void gsv_drawn_ids_next(struct gsv_drawn_ids *drawn, int32_t *ids, size_t n);

/* The number of different ids among the `n`, up to `enough`, without special tokens. */
int32_t gsv_count_distinct(const struct gsv_tokenizer *tokenizer, const int32_t *ids, size_t n,
                           int32_t enough);

#endif
