/*
 * encoder.c - runs the transformer encoder as backend operations.
 *
 *   hidden = norm(word + position + type), projected if the embeddings are narrower
 *   post-norm layer:  hidden = norm(hidden + out(attention(qkv(hidden))))
 *                     hidden = norm(hidden + ffn_out(activation(ffn_in(hidden))))
 *   pre-norm layer:   hidden = hidden + out(attention(qkv(norm(hidden))))
 *                     hidden = hidden + ffn_out(activation(ffn_in(norm(hidden))))
 *   with a norm around each function (Gemma):  hidden = hidden + norm(f(norm(hidden)))
 *
 * Each operation names the linear that reads its output (`reader`), so that an INT8 backend can
 * quantize the output in the same pass. Operations are queued on the stream of one thread.
 */
#include "lib/model/encoder/encoder.h"

#include "lib/base/error.h"
#include "lib/model/weights/adapters.h"
#include "lib/model/encoder/convolution.h"
#include "lib/model/encoder/experts.h"

/* What the functions below share. */
struct run {
    const struct gsv_net *net;
    struct gpuserve_stream *stream;
    const struct gpuserve_batch *batch;
    const struct gsv_activations *at;
};

int32_t gsv_stage_item(const struct gsv_spec *spec, int32_t layer, enum gsv_stage stage)
{
    const struct gsv_layer *l = &spec->layers[layer];
    const int32_t items[GSV_STAGE_COUNT] = { l->qkv, l->out, l->ffn_in, l->ffn_out };

    return items[stage];
}

int32_t gsv_stored_layer(const struct gsv_spec *spec, int32_t stored)
{
    int32_t layer = 0;

    for (int32_t i = 1; i < spec->config.n_layers && stored > 0; i++) {
        if (spec->layers[i].qkv == spec->layers[i - 1].qkv)
            continue;
        layer = i;
        stored--;
    }
    return layer;
}

static bool is_post_norm(const struct gsv_spec *spec)
{
    return spec->config.family->norm_position == GSV_NORM_AFTER;
}

void *gsv_stage_input(const struct gsv_spec *spec, const struct gsv_activations *at,
                      enum gsv_stage stage)
{
    switch (stage) {
    case GSV_STAGE_PROJECT:
        return at->context;
    case GSV_STAGE_CONTRACT:
        return at->wide;
    default:
        return is_post_norm(spec) ? at->hidden : at->context;
    }
}

/* A gated linear unit leaves its rows where the gates were. With an adapter the activation runs as
 * one, see gsv_add_linear_adapters(). */
int32_t gsv_stage_input_ld(const struct gsv_spec *spec, const struct gsv_activations *at,
                           enum gsv_stage stage)
{
    const struct gsv_config *config = &spec->config;

    switch (stage) {
    case GSV_STAGE_PROJECT:
        return gsv_context_columns(config);
    case GSV_STAGE_CONTRACT:
        return config->intermediate_size * (config->is_gated || at->adapter > 0 ? 2 : 1);
    default:
        return config->hidden_size;
    }
}

static const struct gpuserve_linear *linear_of(const struct gsv_net *net, int32_t layer,
                                               enum gsv_stage stage)
{
    return net->linears[gsv_stage_item(net->spec, layer, stage)];
}

/* The linear that reads the rows after the last norm of a layer; NULL after the last layer. */
static const struct gpuserve_linear *reader_behind(const struct gsv_net *net, int32_t layer)
{
    return layer + 1 < net->spec->config.n_layers ? linear_of(net, layer + 1, GSV_STAGE_ATTEND)
                                                  : NULL;
}

/* out = norm(in + residual); `sum` receives in + residual. No gamma: no norm. */
static gpuserve_status add_norm(const struct run *run, void *out, const void *in,
                                const void *residual, void *sum, const struct gsv_norm_items *norm,
                                const struct gpuserve_linear *reader)
{
    const struct gsv_config *config = &run->net->spec->config;
    const struct gpuserve_op_add_norm op = {
        .out = out,
        .in = in,
        .residual = residual,
        .sum = sum,
        .gamma = gsv_net_address(run->net, norm->gamma),
        .beta = gsv_net_address(run->net, norm->beta),
        .eps = config->eps,
        .norm = norm->gamma < 0 ? GPUSERVE_NORM_NONE : config->family->norm,
        .rows = run->batch->n_rows,
        .cols = config->hidden_size,
        .reader = reader,
    };

    return run->net->backend->add_norm(run->stream, &op);
}

/* ----------------------------------------------------------------------------------- embeddings */

static gpuserve_status embed(const struct run *run, void *out, bool normalize,
                             const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = run->net->spec;
    const bool has_norm = normalize && spec->embedding_norm.gamma >= 0;
    const struct gpuserve_op_embed op = {
        .batch = run->batch,
        .out = out,
        .word = gsv_net_address(run->net, spec->word),
        .position = gsv_net_address(run->net, spec->position),
        .type = gsv_net_address(run->net, gsv_adapter_types(spec->type, run->at->adapter)),
        .gamma = has_norm ? gsv_net_address(run->net, spec->embedding_norm.gamma) : NULL,
        .beta = has_norm ? gsv_net_address(run->net, spec->embedding_norm.beta) : NULL,
        .eps = spec->config.eps,
        .hidden = spec->config.embedding_size,
        .norm = has_norm ? spec->config.family->norm : GPUSERVE_NORM_NONE,
        .word_scale = spec->config.word_scale,
        .reader = reader,
    };

    return run->net->backend->embed(run->stream, &op);
}

/* Embeddings narrower than the layers: embed -> projection, with the norm before it or after it. */
static gpuserve_status embed_projected(const struct run *run)
{
    const struct gsv_spec *spec = run->net->spec;
    const bool after = spec->config.family->norm_after_projection;
    const struct gpuserve_op_linear op = {
        .weight = run->net->linears[spec->projection],
        .in = run->at->wide,
        .out = run->at->hidden,
        .rows = run->batch->n_rows,
        .in_ld = spec->config.embedding_size,
        .out_ld = spec->config.hidden_size,
    };
    gpuserve_status st = embed(run, run->at->wide, !after, NULL);

    if (st == GPUSERVE_OK)
        st = run->net->backend->linear(run->stream, &op);
    if (st == GPUSERVE_OK && after)
        st = add_norm(run, run->at->hidden, run->at->hidden, NULL, NULL, &spec->embedding_norm,
                      NULL);
    return st;
}

/* The words of an adapter: the vectors of A, and a product with B. */
static gpuserve_status embed_adapted(const struct run *run, const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = run->net->spec;
    const int32_t item = gsv_adapter_item(spec->word, run->at->adapter);
    const int32_t rank = spec->config.adapters.rank;
    const struct gpuserve_op_embed down = {
        .batch = run->batch,
        .out = run->at->low,
        .word = gsv_net_address(run->net, item),
        .hidden = rank,
        .norm = GPUSERVE_NORM_NONE,
    };
    const struct gpuserve_op_linear up = {
        .weight = run->net->linears[item + 1],
        .in = run->at->low,
        .out = run->at->hidden,
        .residual = run->at->hidden,
        .rows = run->batch->n_rows,
        .in_ld = rank,
        .out_ld = spec->config.hidden_size,
    };
    gpuserve_status st = embed(run, run->at->hidden, false, NULL);

    if (st == GPUSERVE_OK)
        st = run->net->backend->embed(run->stream, &down);
    if (st == GPUSERVE_OK)
        st = run->net->backend->linear(run->stream, &up);
    return st == GPUSERVE_OK ? add_norm(run, run->at->hidden, run->at->hidden, NULL, NULL,
                                        &spec->embedding_norm, reader)
                             : st;
}

gpuserve_status gsv_encode_embed(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at)
{
    const struct run run = { net, stream, batch, at };
    const struct gsv_spec *spec = net->spec;
    const struct gpuserve_linear *reader = reader_behind(net, -1);
    gpuserve_status st;

    gsv_begin_phase(net, GSV_PHASE_EMBED, -1);
    if (spec->projection >= 0)
        st = embed_projected(&run);
    else if (at->adapter > 0)
        st = embed_adapted(&run, is_post_norm(spec) ? reader : NULL);
    else
        st = embed(&run, at->hidden, true, is_post_norm(spec) ? reader : NULL);
    if (st == GPUSERVE_OK && spec->convolution >= 0)
        st = gsv_run_convolution(net, stream, batch, at);
    if (st == GPUSERVE_OK && !is_post_norm(spec))
        st = add_norm(&run, at->context, at->hidden, NULL, NULL, &spec->layers[0].before_attention,
                      reader);
    return st;
}

/* --------------------------------------------------------------------------------------- layers */

/* RMSNorm of the query and key heads, and rotary positions. */
static gpuserve_status rotate(const struct run *run, const struct gsv_layer *layer, bool is_local)
{
    const struct gsv_spec *spec = run->net->spec;
    const int32_t which = is_local && spec->rotary[1] >= 0;
    const struct gsv_rotary *rotary = &spec->config.rotary[which];
    const struct gpuserve_op_rotate op = {
        .batch = run->batch,
        .qkv = run->at->wide,
        .query_gamma = gsv_net_address(run->net, layer->query_gamma),
        .key_gamma = gsv_net_address(run->net, layer->key_gamma),
        .table = gsv_net_address(run->net, spec->rotary[which]),
        .eps = spec->config.eps,
        .n_heads = spec->config.n_heads,
        .n_kv_heads = spec->config.n_kv_heads,
        .head_size = spec->config.head_size,
        .rotary = rotary->dims,
        .interleaved = rotary->interleaved,
    };

    if (!op.table && !op.query_gamma)
        return GPUSERVE_OK;
    return run->net->backend->rotate(run->stream, &op);
}

static gpuserve_status attend(const struct run *run, int32_t number)
{
    const struct gsv_spec *spec = run->net->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_layer *layer = &spec->layers[number];
    const bool is_local = gsv_is_local(config, number);
    const bool has_span = layer->relative >= 0 || spec->position_index >= 0;
    const struct gpuserve_op_attention op = {
        .batch = run->batch,
        .qkv = run->at->wide,
        .out = run->at->context,
        .relative_bias = gsv_net_address(run->net, layer->relative),
        .bias_span = has_span ? gsv_relative_span(spec) : 0,
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_size = config->head_size,
        .scale = config->attention_scale,
        .causal = config->is_causal,
        .window = is_local ? config->window : 0,
        .softcap = config->softcap,
        .position_key = gsv_net_address(run->net, layer->position_key),
        .position_query = gsv_net_address(run->net, layer->position_query),
        .position_index = gsv_net_address(run->net, spec->position_index),
        .position_rows = 2 * config->relative.span,
        .reader = linear_of(run->net, number, GSV_STAGE_PROJECT),
    };
    gpuserve_status st;

    gsv_begin_phase(run->net, GSV_PHASE_ATTENTION, number);
    st = rotate(run, layer, is_local);
    return st == GPUSERVE_OK ? run->net->backend->attention(run->stream, &op) : st;
}

/* The gated linear unit of the feed-forward network, in place. */
static gpuserve_status gate(const struct run *run, const struct gpuserve_linear *reader)
{
    const struct gsv_config *config = &run->net->spec->config;
    const struct gpuserve_op_glu op = {
        .in = run->at->wide,
        .out = run->at->wide,
        .rows = run->batch->n_rows,
        .cols = config->intermediate_size,
        .in_ld = 2 * config->intermediate_size,
        .out_ld = 2 * config->intermediate_size,
        .activation = config->activation,
        .reader = reader,
    };

    return run->net->backend->glu(run->stream, &op);
}

/* The end of attention or of the feed-forward network, whose output is `in`: the residual sum and
 * the norms up to the next linear. `after` belongs to this function, `next` to the one after it; a
 * NULL `next` is the end of the encoder. */
static gpuserve_status end_block(const struct run *run, void *in,
                                 const struct gsv_norm_items *after,
                                 const struct gsv_norm_items *next,
                                 const struct gpuserve_linear *reader)
{
    const struct gsv_activations *at = run->at;
    gpuserve_status st = GPUSERVE_OK;

    if (is_post_norm(run->net->spec))
        return add_norm(run, at->hidden, in, at->hidden, NULL, after, reader);
    if (after->gamma >= 0)
        st = add_norm(run, in, in, NULL, NULL, after, NULL);
    if (st != GPUSERVE_OK)
        return st;
    if (!next)
        return add_norm(run, at->hidden, in, at->hidden, NULL, &run->net->spec->final_norm, NULL);
    return add_norm(run, at->context, in, at->hidden, at->hidden, next, reader);
}

/* Write the adapter's product to the linear's output, as its residual. */
static gpuserve_status adapt(const struct run *run, int32_t index, struct gpuserve_op_linear *op)
{
    const struct gsv_spec *spec = run->net->spec;
    const int32_t item = gsv_adapter_item(index, run->at->adapter);
    const struct gpuserve_op_linear down = {
        .weight = run->net->linears[item],
        .in = op->in,
        .out = run->at->low,
        .rows = op->rows,
        .in_ld = op->in_ld,
        .out_ld = spec->config.adapters.rank,
    };
    const struct gpuserve_op_linear up = {
        .weight = run->net->linears[item + 1],
        .in = run->at->low,
        .out = op->out,
        .rows = op->rows,
        .in_ld = spec->config.adapters.rank,
        .out_ld = spec->items[item + 1].n,
    };
    const gpuserve_status st = run->net->backend->linear(run->stream, &down);

    op->residual = op->out;
    op->out_ld = up.out_ld;
    op->activation = GPUSERVE_ACT_NONE;
    op->reader = NULL;
    return st == GPUSERVE_OK ? run->net->backend->linear(run->stream, &up) : st;
}

/* The end of the feed-forward network, with the convolution's output after layer 0. */
static gpuserve_status end_layer(const struct run *run, void *in, int32_t layer)
{
    const struct gsv_net *net = run->net;
    const struct gsv_spec *spec = net->spec;
    const struct gsv_activations *at = run->at;
    const struct gsv_norm_items *next =
        layer + 1 < spec->config.n_layers ? &spec->layers[layer + 1].before_attention : NULL;
    const gpuserve_status st =
        end_block(run, in, &spec->layers[layer].after_ffn, next, reader_behind(net, layer));

    if (st != GPUSERVE_OK || layer > 0 || spec->convolution < 0)
        return st;
    return add_norm(run, at->hidden, at->convolved, at->hidden, NULL, &spec->convolution_norm,
                    reader_behind(net, layer));
}

/* The operations between the stage's linear, which wrote `out`, and the next linear. */
static gpuserve_status follow(const struct run *run, int32_t layer, enum gsv_stage stage, void *out)
{
    const struct gsv_net *net = run->net;
    const struct gsv_layer *items = &net->spec->layers[layer];

    switch (stage) {
    case GSV_STAGE_ATTEND:
        return attend(run, layer);
    case GSV_STAGE_PROJECT:
        gsv_begin_phase(net, GSV_PHASE_NORM, layer);
        return end_block(run, out, &items->after_attention, &items->before_ffn,
                         linear_of(net, layer, GSV_STAGE_EXPAND));
    case GSV_STAGE_EXPAND:
        return net->spec->config.is_gated || run->at->adapter > 0
                   ? gate(run, linear_of(net, layer, GSV_STAGE_CONTRACT))
                   : GPUSERVE_OK;
    default:
        gsv_begin_phase(net, GSV_PHASE_FFN_NORM, layer);
        return end_layer(run, out, layer);
    }
}

gpuserve_status gsv_encode_stage(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at, int32_t layer,
                                 enum gsv_stage stage)
{
    static const enum gsv_phase phases[GSV_STAGE_COUNT] = { GSV_PHASE_QKV, GSV_PHASE_OUTPUT,
                                                            GSV_PHASE_EXPAND, GSV_PHASE_CONTRACT };
    const struct gsv_spec *spec = net->spec;
    const struct run run = { net, stream, batch, at };
    const struct gsv_layer *items = &spec->layers[layer];
    const struct gsv_weight *item = &spec->items[gsv_stage_item(spec, layer, stage)];
    const bool has_experts = items->router >= 0 && stage >= GSV_STAGE_EXPAND;
    const bool plain = stage == GSV_STAGE_EXPAND && !spec->config.is_gated;
    void *out = has_experts ? at->sum : stage == GSV_STAGE_CONTRACT ? at->context : at->wide;
    struct gpuserve_op_linear op = {
        .weight = linear_of(net, layer, stage),
        .in = gsv_stage_input(spec, at, stage),
        .out = out,
        .rows = batch->n_rows,
        .in_ld = gsv_stage_input_ld(spec, at, stage),
        .out_ld = item->n,
        .activation = item->activation,
        .reader = plain ? linear_of(net, layer, GSV_STAGE_CONTRACT) : NULL,
    };
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(net, phases[stage], layer);
    if (has_experts && stage == GSV_STAGE_EXPAND)
        return gsv_run_experts(net, stream, batch, at, layer, op.in);
    if (at->adapter > 0)
        st = adapt(&run, gsv_stage_item(spec, layer, stage), &op);
    if (st == GPUSERVE_OK && !has_experts)
        st = net->backend->linear(stream, &op);
    return st == GPUSERVE_OK ? follow(&run, layer, stage, out) : st;
}

/* Add the output of layer `number`, or the embeddings (0), to the weighted sum. */
static gpuserve_status mix(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at,
                           int32_t number)
{
    const struct gsv_spec *spec = net->spec;
    const float *weights = gsv_net_address(net, spec->mix);
    const bool counts = weights && number >= spec->mix_first;
    const struct gpuserve_op_add_scaled op = {
        .out = at->mix,
        .in = at->hidden,
        .weights = counts ? weights + (number - spec->mix_first) : NULL,
        .weights_ld = 0, /* one weight for all rows */
        .rows = batch->n_rows,
        .cols = spec->config.hidden_size,
        .first = number == spec->mix_first,
        .factor = 1.0f,
    };

    if (!counts)
        return GPUSERVE_OK;
    gsv_begin_phase(net, GSV_PHASE_POOL, -1);
    return net->backend->add_scaled(stream, &op);
}

gpuserve_status gsv_encode(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at)
{
    gpuserve_status st = gsv_encode_embed(net, stream, batch, at);

    if (st == GPUSERVE_OK)
        st = mix(net, stream, batch, at, 0);
    for (int32_t i = 0; i < net->spec->config.n_layers * GSV_STAGE_COUNT && st == GPUSERVE_OK;
         i++) {
        const enum gsv_stage stage = (enum gsv_stage)(i % GSV_STAGE_COUNT);

        st = gsv_encode_stage(net, stream, batch, at, i / GSV_STAGE_COUNT, stage);
        if (st == GPUSERVE_OK && stage == GSV_STAGE_CONTRACT)
            st = mix(net, stream, batch, at, i / GSV_STAGE_COUNT + 1);
    }
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
