/*
 * convolution.h - the convolution of DeBERTa v2 beside its first layer.
 *
 *   x = norm(layer_0(e) + activation(bias + sum over j of W[j] e[t + j - kernel / 2]))
 *
 * e are the embeddings, zeros outside of the text. Each W[j] is one product on rows that are
 * gathered from the same text.
 */
#ifndef GSV_MODEL_CONVOLUTION_H
#define GSV_MODEL_CONVOLUTION_H

#include "lib/model/encoder/rows.h"
#include "lib/model/weight_map.h"

/* Add the products, that of the middle first, and the norm. */
gpuserve_status gsv_add_convolution(const struct gsv_collector *c);

/* Compute at->convolved from the embeddings in `hidden`; changes `context` and `wide`. */
gpuserve_status gsv_run_convolution(const struct gsv_net *net, struct gpuserve_stream *stream,
                                    const struct gpuserve_batch *batch,
                                    const struct gsv_activations *at);

#endif
