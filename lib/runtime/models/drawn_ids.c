/*
 * drawn_ids.c - token ids drawn from a vocabulary with a fixed generator (SplitMix64).
 *
 * A tokenizer that knows none of the built-in texts' words encodes all of them as one id, the
 * unknown token. What an int8 model does with that one id says nothing about its other tokens.
 */
#include "lib/runtime/models/drawn_ids.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(16)

static bool is_ordinary(const struct gsv_plan *plan, int32_t id)
{
    size_t size;

    return id != plan->facts->first_position - 1 && /* RoBERTa's pad token */
           gsv_tokenizer_token(plan->tokenizer, id, &size) &&
           !gsv_tokenizer_is_special(plan->tokenizer, id);
}

gpuserve_status gsv_drawn_ids_init(struct gsv_drawn_ids *drawn, const struct gsv_plan *plan,
                                   gpuserve_error *error)
{
    const int32_t known = gsv_tokenizer_vocab_size(plan->tokenizer);
    const int32_t rows = plan->facts->vocab_size, end = known < rows ? known : rows;

    memset(drawn, 0, sizeof(*drawn));
    drawn->state = SEED;
    drawn->ids = gsv_alloc_array((size_t)(end > 0 ? end : 1), sizeof(*drawn->ids));
    if (!drawn->ids)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the token ids of the probes");
    for (int32_t id = 0; id < end; id++)
        if (is_ordinary(plan, id))
            drawn->ids[drawn->n++] = id;
    return GPUSERVE_OK;
}

void gsv_drawn_ids_reset(struct gsv_drawn_ids *drawn)
{
    free(drawn->ids);
    memset(drawn, 0, sizeof(*drawn));
}

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void gsv_drawn_ids_next(struct gsv_drawn_ids *drawn, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = drawn->ids[(next(&drawn->state) >> 32) * (uint64_t)drawn->n >> 32];
}

int32_t gsv_count_distinct(const struct gsv_tokenizer *tokenizer, const int32_t *ids, size_t n,
                           int32_t enough)
{
    int32_t count = 0;

    for (size_t i = 0; i < n && count < enough; i++) {
        bool is_new = !gsv_tokenizer_is_special(tokenizer, ids[i]);

        for (size_t j = 0; j < i && is_new; j++)
            is_new = ids[j] != ids[i];
        count += is_new;
    }
    return count;
}
