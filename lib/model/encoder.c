/*
 * encoder.c - runs the transformer encoder as backend operations.
 *
 *   hidden = LayerNorm(word + position + type)
 *   each layer:  hidden = LayerNorm(hidden + out(attention(qkv(hidden))))
 *                hidden = LayerNorm(hidden + ffn_out(activation(ffn_in(hidden))))
 *
 * Each operation names the linear that reads its output (`reader`), so that an INT8 backend can
 * quantize the output in the same pass. Operations are queued on the stream of one thread.
 */
#include "lib/model/encoder.h"

#include "lib/base/error.h"

#include <math.h>

static const struct gpuserve_linear *linear_of(const struct gsv_net *net, int32_t layer,
                                               enum gsv_stage stage)
{
    return net->linears[net->spec->first_layer + layer * GSV_LAYER_ITEMS + gsv_stage_linear(stage)];
}

/* The linear that reads `hidden` after the last LayerNorm of a layer; NULL after the last layer. */
static const struct gpuserve_linear *reader_behind(const struct gsv_net *net, int32_t layer)
{
    return layer + 1 < net->spec->config.n_layers ? linear_of(net, layer + 1, GSV_STAGE_ATTEND)
                                                  : NULL;
}

int32_t gsv_stage_linear(enum gsv_stage stage)
{
    static const int32_t offsets[GSV_STAGE_COUNT] = { GSV_LAYER_QKV, GSV_LAYER_OUT,
                                                      GSV_LAYER_FFN_IN, GSV_LAYER_FFN_OUT };

    return offsets[stage];
}

void *gsv_stage_input(const struct gsv_activations *at, enum gsv_stage stage)
{
    switch (stage) {
    case GSV_STAGE_PROJECT:
        return at->context;
    case GSV_STAGE_CONTRACT:
        return at->wide;
    default:
        return at->hidden;
    }
}

gpuserve_status gsv_encode_embed(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at)
{
    const struct gsv_spec *spec = net->spec;
    const struct gpuserve_op_embed op = {
        .batch = batch,
        .out = at->hidden,
        .word = gsv_net_place(net, spec->word),
        .position = gsv_net_place(net, spec->position),
        .type = gsv_net_place(net, spec->type),
        .gamma = gsv_net_place(net, spec->embedding_gamma),
        .beta = gsv_net_place(net, spec->embedding_beta),
        .eps = spec->config.eps,
        .hidden = spec->config.hidden_size,
        .reader = reader_behind(net, -1),
    };

    return net->backend->embed(stream, &op);
}

static gpuserve_status attend(const struct gsv_net *net, struct gpuserve_stream *stream,
                              const struct gpuserve_batch *batch, const struct gsv_activations *at,
                              const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = net->spec;
    const int32_t head_size = spec->config.hidden_size / spec->config.n_heads;
    const struct gpuserve_op_attention op = {
        .batch = batch,
        .qkv = at->wide,
        .out = at->context,
        .relative_bias = gsv_net_place(net, spec->relative),
        .bias_span = spec->relative < 0 ? 0 : gsv_relative_span(spec),
        .n_heads = spec->config.n_heads,
        .head_size = head_size,
        .scale = 1.0f / sqrtf((float)head_size),
        .reader = reader,
    };

    return net->backend->attention(stream, &op);
}

/* hidden = LayerNorm(in + hidden). `gamma` is an item's index; beta is the next item. */
static gpuserve_status add_norm(const struct gsv_net *net, struct gpuserve_stream *stream,
                                const struct gpuserve_batch *batch,
                                const struct gsv_activations *at, const void *in, int32_t gamma,
                                const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = {
        .out = at->hidden,
        .in = in,
        .residual = at->hidden,
        .gamma = gsv_net_place(net, gamma),
        .beta = gsv_net_place(net, gamma + 1),
        .eps = net->spec->config.eps,
        .rows = batch->n_rows,
        .cols = net->spec->config.hidden_size,
        .reader = reader,
    };

    return net->backend->add_norm(stream, &op);
}

gpuserve_status gsv_encode_stage(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at, int32_t layer,
                                 enum gsv_stage stage)
{
    const int32_t first = net->spec->first_layer + layer * GSV_LAYER_ITEMS;
    const struct gsv_weight *item = gsv_spec_layer_item(net->spec, layer, gsv_stage_linear(stage));
    void *out = stage == GSV_STAGE_CONTRACT ? at->context : at->wide;
    const struct gpuserve_op_linear op = {
        .weight = linear_of(net, layer, stage),
        .in = gsv_stage_input(at, stage),
        .out = out,
        .rows = batch->n_rows,
        .in_ld = item->k,
        .out_ld = item->n,
        .activation = item->activation,
        .reader = stage == GSV_STAGE_EXPAND ? linear_of(net, layer, GSV_STAGE_CONTRACT) : NULL,
    };
    const gpuserve_status st = net->backend->linear(stream, &op);

    if (st != GPUSERVE_OK)
        return st;
    switch (stage) {
    case GSV_STAGE_ATTEND:
        return attend(net, stream, batch, at, linear_of(net, layer, GSV_STAGE_PROJECT));
    case GSV_STAGE_PROJECT:
        return add_norm(net, stream, batch, at, out, first + GSV_LAYER_ATTENTION_GAMMA,
                        linear_of(net, layer, GSV_STAGE_EXPAND));
    case GSV_STAGE_CONTRACT:
        return add_norm(net, stream, batch, at, out, first + GSV_LAYER_OUTPUT_GAMMA,
                        reader_behind(net, layer));
    default:
        return GPUSERVE_OK;
    }
}

gpuserve_status gsv_encode(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at)
{
    gpuserve_status st = gsv_encode_embed(net, stream, batch, at);

    for (int32_t i = 0; i < net->spec->config.n_layers * GSV_STAGE_COUNT && st == GPUSERVE_OK; i++)
        st = gsv_encode_stage(net, stream, batch, at, i / GSV_STAGE_COUNT,
                              (enum gsv_stage)(i % GSV_STAGE_COUNT));
    return st;
}

gpuserve_status gsv_give_up_batch(const struct gpuserve_backend *backend,
                                  struct gpuserve_stream *stream, gpuserve_status refused,
                                  gpuserve_error *error)
{
    const gpuserve_status st = backend->stream_wait(stream, error);

    if (st != GPUSERVE_OK)
        return st;
    return gsv_fail(error, refused, "the %s backend rejected an operation%s", backend->name,
                    refused == GPUSERVE_E_NOMEM ? ": out of memory" : "");
}
