/*
 * neighbours.h - row indices that let an operation read the tokens beside a token of the same text.
 *
 *   convolution    [kernel - 1, max_tokens]: rows of `hidden`, whose row max_tokens is zeros
 *   trigram input  [max_tokens, 3]: word ids of the next token, the token, the previous token; the
 *                  last row of the word table is zeros
 *
 * Tokens outside of the text count as zeros. Written before a batch begins.
 */
#ifndef GSV_MODEL_NEIGHBOURS_H
#define GSV_MODEL_NEIGHBOURS_H

#include "lib/model/encoder/encoder.h"

/* Indices of each token; 0: the model needs none. */
static inline int32_t gsv_neighbours_per_token(const struct gsv_config *config)
{
    return config->is_trigram               ? 3
           : config->convolution.kernel > 0 ? config->convolution.kernel - 1
                                            : 0;
}

/* Write the indices of a batch to `to`, in device memory. `host` has as many elements. */
gpuserve_status gsv_write_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                     const struct gpuserve_host_batch *batch, int32_t *host,
                                     void *to, gpuserve_error *error);

/* The same with memory of its own, for a batch that runs several times. */
gpuserve_status gsv_fill_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                    const struct gpuserve_host_batch *batch, void *to,
                                    gpuserve_error *error);

#endif
