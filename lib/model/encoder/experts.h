/*
 * experts.h - a mixture of experts in place of a feed-forward network.
 *
 *   weights = softmax(router(x)), of all but the top_k largest 0
 *   sum = bias + weights[0] * expert_0(x) + weights[1] * expert_1(x) + ...
 *
 * Every expert runs on every token, and adds nothing to the tokens that did not choose it.
 */
#ifndef GSV_MODEL_EXPERTS_H
#define GSV_MODEL_EXPERTS_H

#include "lib/model/encoder/encoder.h"
#include "lib/model/weight_map.h"

/* Items of a layer: router, bias, and two products of each expert. */
static inline size_t gsv_experts_items(const struct gsv_config *config)
{
    return config->experts.n > 0 ? 2 + 2 * (size_t)config->experts.n : 0;
}

static inline bool gsv_has_experts(const struct gsv_config *config, int32_t layer)
{
    return config->experts.n > 0 && layer % config->experts.every == config->experts.first;
}

/* Add the items; ffn[0] becomes the first expert. */
gpuserve_status gsv_add_experts(const struct gsv_collector *c, struct gsv_layer *layer);

/* Compute at->sum from `in`; changes `context` and `wide`. */
gpuserve_status gsv_run_experts(const struct gsv_net *net, struct gpuserve_stream *stream,
                                const struct gpuserve_batch *batch,
                                const struct gsv_activations *at, int32_t layer, const void *in);

#endif
