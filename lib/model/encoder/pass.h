/*
 * pass.h - one pass of a batch through the encoder, and the operations that its parts share.
 *
 * encoder.c runs the layers and the projections around a layer, embed.c the embeddings, low_rank.c
 * the products of adapters, decoder.c what a decoder has beyond an encoder.
 */
#ifndef GSV_MODEL_PASS_H
#define GSV_MODEL_PASS_H

#include "lib/model/encoder/encoder.h"

struct gsv_pass {
    const struct gsv_net *net;
    struct gpuserve_stream *stream;
    const struct gpuserve_batch *batch;
    const struct gsv_activations *at;
};

static inline bool gsv_is_post_norm(const struct gsv_spec *spec)
{
    return spec->config.family->norm_position == GSV_NORM_AFTER;
}

static inline bool gsv_is_bottleneck(const struct gsv_spec *spec)
{
    return spec->config.bottleneck.width > 0;
}

static inline const struct gpuserve_linear *gsv_stage_linear(const struct gsv_net *net,
                                                             int32_t layer, int32_t stage)
{
    return net->linears[gsv_stage_item(net->spec, layer, stage)];
}

/* The linear that reads the rows after the last norm of a layer; NULL after the last layer, and if
 * another device has the next one. */
static inline const struct gpuserve_linear *gsv_linear_behind(const struct gsv_net *net,
                                                              int32_t layer)
{
    return layer + 1 < net->spec->config.n_layers
               ? gsv_stage_linear(net, layer + 1, GSV_STAGE_ATTEND)
               : NULL;
}

/* The address of a row, of rows `ld` elements apart. */
static inline void *gsv_row_at(const struct gsv_net *net, const void *rows, int32_t row, int32_t ld)
{
    return (char *)(uintptr_t)rows +
           (size_t)row * (size_t)ld * net->backend->activation_size(net->dtype);
}

/* The rows of a range of at->ranges. */
struct gsv_adapter_rows {
    int32_t adapter, first, n;
};

static inline struct gsv_adapter_rows gsv_rows_of_range(const struct gsv_pass *pass, int32_t i)
{
    const struct gsv_adapter_range *range = &pass->at->ranges[i];
    const int32_t end = i + 1 < pass->at->n_ranges ? range[1].first : pass->batch->n_rows;

    return (struct gsv_adapter_rows){ range->adapter, range->first, end - range->first };
}

/* The number of rows without an adapter in a batch that has rows with one: they come first. */
static inline int32_t gsv_plain_rows(const struct gsv_activations *at)
{
    return at->n_ranges > 1 && at->ranges[0].adapter == 0 ? at->ranges[1].first : 0;
}

/* out = norm(in + residual) on rows of `cols` columns; `sum` receives in + residual. No gamma: no
 * norm. */
gpuserve_status gsv_pass_norm(const struct gsv_pass *pass, int32_t cols, void *out, const void *in,
                              const void *residual, void *sum, const struct gsv_norm_items *norm,
                              const struct gpuserve_linear *reader);

/* The same on rows of hidden_size columns. */
gpuserve_status gsv_pass_hidden_norm(const struct gsv_pass *pass, void *out, const void *in,
                                     const void *residual, void *sum,
                                     const struct gsv_norm_items *norm,
                                     const struct gpuserve_linear *reader);

/* out = the product of an item on all rows, with its activation, plus `residual` unless it is
 * NULL. */
gpuserve_status gsv_pass_multiply(const struct gsv_pass *pass, int32_t index, const void *in,
                                  void *out, int32_t out_ld, const void *residual);

/* With layer weights: add the output of layer `number` - 1, or the embeddings (0), to the weighted
 * sum. */
gpuserve_status gsv_pass_mix(const struct gsv_pass *pass, int32_t number);

/* Enter the bottleneck of a layer: the stream inside it, and the input of query and
 * key. */
gpuserve_status gsv_enter_bottleneck(const struct gsv_pass *pass, int32_t layer);

/* Leave the bottleneck of a layer, and enter that of the next one. */
gpuserve_status gsv_leave_bottleneck(const struct gsv_pass *pass, int32_t layer);

/* low_rank.c: run the linear of an item with the adapters of the batch's rows. */
gpuserve_status gsv_pass_adapted(const struct gsv_pass *pass, int32_t index,
                                 const struct gpuserve_op_linear *linear);

/* decoder.c: end the encoder after its last layer, whose feed-forward network wrote `in`, and embed
 * the decoder's input. */
gpuserve_status gsv_enter_decoder(const struct gsv_pass *pass, int32_t last, const void *in);

/* Cross-attention of a decoder layer, after its self-attention; `reader` reads the sum's norm. */
gpuserve_status gsv_cross_attend(const struct gsv_pass *pass, int32_t layer,
                                 const struct gpuserve_linear *reader);

#endif
