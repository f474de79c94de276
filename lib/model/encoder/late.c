/*
 * late.c - the heads of BGE-M3 on token vectors: weights of tokens, and vectors of late
 * interaction.
 *
 * Both read the encoder's output and write rows by token. The runtime makes a text's sparse vector
 * of the weights of its tokens with gsv_gather_words(): a batch of vectors as wide as the
 * vocabulary would be far larger than its other outputs.
 */
#include "lib/model/encoder/rows.h"

#include <math.h>
#include <string.h>

gpuserve_status gsv_rows_late(struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const struct gsv_activations *at = &rows->work->at;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    return gsv_token_linear(rows, spec->late, at->hidden, at->context, spec->facts.token_dim, NULL);
}

gpuserve_status gsv_rows_weigh_tokens(struct gsv_rows *rows)
{
    const struct gsv_activations *at = &rows->work->at;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    return gsv_token_linear(rows, rows->work->net->spec->lexical, at->hidden, at->wide, 1, NULL);
}

/* A NaN stays. */
static void raise_to(float *word, float weight)
{
    if (weight > *word || isnan(weight))
        *word = weight;
}

void gsv_gather_words(const struct gsv_spec *spec, const int32_t *ids, const float *weights,
                      size_t n, float *row)
{
    memset(row, 0, (size_t)spec->config.vocab_size * sizeof(*row));
    for (size_t i = 0; i < n; i++)
        if (gsv_is_weighted(spec, ids[i]))
            raise_to(&row[ids[i]], weights[i]);
}
