/*
 * encoder.c - runs the transformer encoder as backend operations.
 *
 *   hidden = norm(word + position + type), projected if the embeddings are narrower
 *   post-norm layer:  hidden = norm(hidden + out(attention(qkv(hidden))))
 *                     hidden = norm(hidden + ffn_out(activation(ffn_in(hidden))))
 *   pre-norm layer:   hidden = hidden + out(attention(qkv(norm(hidden))))
 *                     hidden = hidden + ffn_out(activation(ffn_in(norm(hidden))))
 *   with a norm around each function (Gemma):  hidden = hidden + norm(f(norm(hidden)))
 *   bottleneck layer: narrow = norm(in(hidden)); attention and feed-forward networks on `narrow`;
 *                     hidden = norm(hidden + out(narrow))
 *   decoder (BART):   further layers with causal attention, on embeddings of their own, that read
 *                     the encoder's output (decoder.c)
 *
 * Each operation names the linear that reads its output (`reader`), so that an INT8 backend can
 * quantize the output in the same pass. Operations are queued on the stream of one thread.
 */
#include "lib/model/encoder/pass.h"

#include "lib/base/error.h"
#include "lib/model/encoder/encoder.h"

/* ---------------------------------------------------------- operations that several parts queue
 */

gpuserve_status gsv_pass_norm(const struct gsv_pass *pass, int32_t cols, void *out, const void *in,
                              const void *residual, void *sum, const struct gsv_norm_items *norm,
                              const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = {
        .out = out,
        .in = in,
        .residual = residual,
        .sum = sum,
        .gamma = gsv_net_address(pass->net, norm->gamma),
        .beta = gsv_net_address(pass->net, norm->beta),
        .eps = norm->eps,
        .norm = norm->gamma < 0 ? GPUSERVE_NORM_NONE : norm->kind,
        .rows = pass->batch->n_rows,
        .cols = cols,
        .reader = reader,
    };

    return pass->net->backend->add_norm(pass->stream, &op);
}

gpuserve_status gsv_pass_hidden_norm(const struct gsv_pass *pass, void *out, const void *in,
                                     const void *residual, void *sum,
                                     const struct gsv_norm_items *norm,
                                     const struct gpuserve_linear *reader)
{
    return gsv_pass_norm(pass, pass->net->spec->config.hidden_size, out, in, residual, sum, norm,
                         reader);
}

gpuserve_status gsv_pass_multiply(const struct gsv_pass *pass, int32_t index, const void *in,
                                  void *out, int32_t out_ld, const void *residual)
{
    const struct gsv_weight *item = &pass->net->spec->items[index];
    const struct gpuserve_op_linear op = {
        .weight = pass->net->linears[index],
        .in = in,
        .out = out,
        .residual = residual,
        .rows = pass->batch->n_rows,
        .in_ld = item->k,
        .out_ld = out_ld,
        .activation = item->activation,
    };

    return pass->net->backend->linear(pass->stream, &op);
}

gpuserve_status gsv_pass_mix(const struct gsv_pass *pass, int32_t number)
{
    const struct gsv_spec *spec = pass->net->spec;
    const float *weights = gsv_net_address(pass->net, spec->mix);
    const bool counts = weights && number >= spec->mix_first;
    const struct gpuserve_op_add_scaled op = {
        .out = pass->at->mix,
        .in = pass->at->hidden,
        .weights = counts ? weights + (number - spec->mix_first) : NULL,
        .weights_ld = 0, /* one weight for all rows */
        .rows = pass->batch->n_rows,
        .cols = spec->config.hidden_size,
        .first = number == spec->mix_first,
        .factor = 1.0f,
    };

    if (!counts)
        return GPUSERVE_OK;
    gsv_begin_phase(pass->net, GSV_PHASE_POOL, -1);
    return pass->net->backend->add_scaled(pass->stream, &op);
}

/*
 * The projections around a bottleneck layer.
 *
 *   before   narrow = norm(in(hidden)); with a projection for query and key: context =
 *            norm(attention(hidden))
 *   after    hidden = norm(hidden + out(narrow))
 */

gpuserve_status gsv_enter_bottleneck(const struct gsv_pass *pass, int32_t number)
{
    const struct gsv_spec *spec = pass->net->spec;
    const struct gsv_activations *at = pass->at;
    const struct gsv_layer *layer = &spec->layers[number];
    const int32_t width = spec->config.bottleneck.width;
    const struct gpuserve_linear *reader = gsv_stage_linear(pass->net, number, GSV_STAGE_ATTEND);
    const bool shared = layer->bottleneck_attention.linear >= 0;
    gpuserve_status st;

    gsv_begin_phase(pass->net, GSV_PHASE_QKV, number);
    st = gsv_pass_multiply(pass, layer->bottleneck_in.linear, at->hidden, at->narrow, width, NULL);
    if (st == GPUSERVE_OK)
        st = gsv_pass_norm(pass, width, at->narrow, at->narrow, NULL, NULL,
                           &layer->bottleneck_in.norm, shared ? NULL : reader);
    if (st == GPUSERVE_OK && shared)
        st = gsv_pass_multiply(pass, layer->bottleneck_attention.linear, at->hidden, at->context,
                               width, NULL);
    return st == GPUSERVE_OK && shared
               ? gsv_pass_norm(pass, width, at->context, at->context, NULL, NULL,
                               &layer->bottleneck_attention.norm, reader)
               : st;
}

gpuserve_status gsv_leave_bottleneck(const struct gsv_pass *pass, int32_t number)
{
    const struct gsv_spec *spec = pass->net->spec;
    const struct gsv_activations *at = pass->at;
    const struct gsv_bottleneck_items *out = &spec->layers[number].bottleneck_out;
    gpuserve_status st =
        gsv_pass_multiply(pass, out->linear, at->narrow, at->wide, spec->config.hidden_size, NULL);

    if (st == GPUSERVE_OK)
        st = gsv_pass_hidden_norm(pass, at->hidden, at->wide, at->hidden, NULL, &out->norm, NULL);
    return st == GPUSERVE_OK && number + 1 < spec->config.n_layers
               ? gsv_enter_bottleneck(pass, number + 1)
               : st;
}

/* ------------------------------------------------------------------------------------- layers */

int32_t gsv_stage_item(const struct gsv_spec *spec, int32_t layer, int32_t stage)
{
    const struct gsv_layer *l = &spec->layers[layer];

    if (stage < GSV_STAGE_EXPAND)
        return stage == GSV_STAGE_ATTEND ? l->qkv : l->out;
    return gsv_stage_kind(stage) == GSV_STAGE_EXPAND ? l->ffn[gsv_stage_ffn(stage)].in
                                                     : l->ffn[gsv_stage_ffn(stage)].out;
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

/* The residual stream inside a layer. */
static void *stream_of(const struct gsv_spec *spec, const struct gsv_activations *at)
{
    return gsv_is_bottleneck(spec) ? at->narrow : at->hidden;
}

/* The input of query and key, which in bottleneck layers may be a projection of their own. */
static void *attention_input(const struct gsv_spec *spec, const struct gsv_activations *at)
{
    if (!gsv_is_bottleneck(spec))
        return gsv_is_post_norm(spec) ? at->hidden : at->context;
    switch (spec->config.bottleneck.source) {
    case GSV_BOTTLENECK_HIDDEN:
        return at->hidden;
    case GSV_BOTTLENECK_SHARED:
        return at->context;
    default:
        return at->narrow;
    }
}

void *gsv_stage_input(const struct gsv_spec *spec, const struct gsv_activations *at, int32_t stage)
{
    switch (gsv_stage_kind(stage)) {
    case GSV_STAGE_ATTEND:
        return attention_input(spec, at);
    case GSV_STAGE_PROJECT:
        return at->context;
    case GSV_STAGE_CONTRACT:
        return at->wide;
    default:
        return gsv_is_post_norm(spec) ? stream_of(spec, at) : at->context;
    }
}

/* A gated linear unit leaves its rows where the gates were. In a batch with an adapter the
 * activation runs as one, see gsv_add_linear_adapters(). */
int32_t gsv_stage_input_ld(const struct gsv_spec *spec, const struct gsv_activations *at,
                           int32_t stage)
{
    const struct gsv_config *config = &spec->config;

    switch (gsv_stage_kind(stage)) {
    case GSV_STAGE_PROJECT:
        return gsv_context_columns(config);
    case GSV_STAGE_CONTRACT:
        return config->intermediate_size * (config->is_gated || at->n_ranges > 0 ? 2 : 1);
    default:
        return gsv_inner_size(config);
    }
}

/* --------------------------------------------------------------------------------------- layers */

/* RMSNorm of the query and key heads, and rotary positions. */
static gpuserve_status rotate(const struct gsv_pass *pass, const struct gsv_layer *layer,
                              bool is_local)
{
    const struct gsv_spec *spec = pass->net->spec;
    const int32_t which = is_local && spec->rotary[1] >= 0;
    const struct gsv_rotary *rotary = &spec->config.rotary[which];
    const struct gpuserve_op_rotate op = {
        .batch = pass->batch,
        .qkv = pass->at->wide,
        .query_gamma = gsv_net_address(pass->net, layer->query_gamma),
        .key_gamma = gsv_net_address(pass->net, layer->key_gamma),
        .table = gsv_net_address(pass->net, spec->rotary[which]),
        .eps = spec->config.eps,
        .n_heads = spec->config.n_heads,
        .n_kv_heads = spec->config.n_kv_heads,
        .head_size = spec->config.head_size,
        .rotary = rotary->dims,
        .interleaved = rotary->interleaved,
    };

    if (!op.table && !op.query_gamma)
        return GPUSERVE_OK;
    return pass->net->backend->rotate(pass->stream, &op);
}

/* A norm of `cols` columns from column `first` of the rows of query, key and value. */
static gpuserve_status norm_heads(const struct gsv_pass *pass, const struct gsv_norm_items *norm,
                                  int32_t first, int32_t cols)
{
    const struct gsv_net *net = pass->net;
    void *const rows =
        (char *)pass->at->wide + (size_t)first * net->backend->activation_size(net->dtype);
    const struct gpuserve_op_add_norm op = {
        .out = rows,
        .in = rows,
        .gamma = gsv_net_address(net, norm->gamma),
        .beta = gsv_net_address(net, norm->beta),
        .eps = norm->eps,
        .norm = norm->kind,
        .rows = pass->batch->n_rows,
        .cols = cols,
        .ld = gsv_qkv_columns(&net->spec->config),
    };

    return norm->gamma < 0 ? GPUSERVE_OK : net->backend->add_norm(pass->stream, &op);
}

/* LayerNorm of the query and of the key, each over all heads. */
static gpuserve_status norm_all_heads(const struct gsv_pass *pass, const struct gsv_layer *layer)
{
    const struct gsv_config *config = &pass->net->spec->config;
    const int32_t query = gsv_context_columns(config);
    const gpuserve_status st = norm_heads(pass, &layer->all_query_heads, 0, query);

    return st == GPUSERVE_OK ? norm_heads(pass, &layer->all_key_heads, query,
                                          config->n_kv_heads * config->head_size)
                             : st;
}

/* The value of bottleneck layers, behind query and key. */
static gpuserve_status add_value(const struct gsv_pass *pass, const struct gsv_layer *layer)
{
    const struct gsv_net *net = pass->net;
    const int32_t columns = gsv_qkv_columns(&net->spec->config);
    size_t first;

    if (layer->value < 0)
        return GPUSERVE_OK;
    first = (size_t)(columns - net->spec->items[layer->value].n);
    return gsv_pass_multiply(
        pass, layer->value, pass->at->hidden,
        (char *)pass->at->wide + first * net->backend->activation_size(net->dtype), columns, NULL);
}

static gpuserve_status attend(const struct gsv_pass *pass, int32_t number)
{
    const struct gsv_spec *spec = pass->net->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_layer *layer = &spec->layers[number];
    const bool is_local = gsv_is_local(config, number);
    const bool has_span = layer->relative >= 0 || spec->position_index >= 0;
    const struct gpuserve_op_attention op = {
        .batch = pass->batch,
        .qkv = pass->at->wide,
        .out = pass->at->context,
        .relative_bias = gsv_net_address(pass->net, layer->relative),
        .bias_span = has_span ? gsv_relative_span(spec) : 0,
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_size = config->head_size,
        .scale = config->attention_scale,
        .causal = config->is_causal || gsv_is_decoder_layer(config, number),
        .window = is_local ? config->window : 0,
        .softcap = config->softcap,
        .position_key = gsv_net_address(pass->net, layer->position_key),
        .position_query = gsv_net_address(pass->net, layer->position_query),
        .position_index = gsv_net_address(pass->net, spec->position_index),
        .position_rows = 2 * config->relative.span,
        .reader = gsv_stage_linear(pass->net, number, GSV_STAGE_PROJECT),
        .exact = pass->net->int8.exact_attention,
    };
    gpuserve_status st = add_value(pass, layer);

    gsv_begin_phase(pass->net, GSV_PHASE_ATTENTION, number);
    if (st == GPUSERVE_OK)
        st = norm_all_heads(pass, layer);
    if (st == GPUSERVE_OK)
        st = rotate(pass, layer, is_local);
    return st == GPUSERVE_OK ? pass->net->backend->attention(pass->stream, &op) : st;
}

/* The gated linear unit of the feed-forward network, in place. One that stands for the activation
 * of rows with an adapter leaves out the rows without one, whose linear has applied it. */
static gpuserve_status gate(const struct gsv_pass *pass, const struct gpuserve_linear *reader)
{
    const struct gsv_config *config = &pass->net->spec->config;
    const int32_t ld = 2 * config->intermediate_size;
    const int32_t first = config->is_gated ? 0 : gsv_plain_rows(pass->at);
    void *const rows = gsv_row_at(pass->net, pass->at->wide, first, ld);
    const struct gpuserve_op_glu op = {
        .in = rows,
        .out = rows,
        .rows = pass->batch->n_rows - first,
        .cols = config->intermediate_size,
        .in_ld = ld,
        .out_ld = ld,
        .activation = config->activation,
        .reader = first > 0 ? NULL : reader, /* the reader reads all rows */
    };

    return pass->net->backend->glu(pass->stream, &op);
}

/* The end of attention or of the feed-forward network, whose output is `in`: the residual sum and
 * the norms up to the next linear. `after` belongs to this function, `next` to the one after it; a
 * NULL `next` is the end of the encoder. */
static gpuserve_status end_block(const struct gsv_pass *pass, void *in,
                                 const struct gsv_norm_items *after,
                                 const struct gsv_norm_items *next,
                                 const struct gpuserve_linear *reader)
{
    const struct gsv_activations *at = pass->at;
    const struct gsv_spec *spec = pass->net->spec;
    void *stream = stream_of(spec, at);
    gpuserve_status st = GPUSERVE_OK;

    if (gsv_is_post_norm(spec))
        return gsv_pass_norm(pass, gsv_inner_size(&spec->config), stream, in, stream, NULL, after,
                             reader);
    if (after->gamma >= 0)
        st = gsv_pass_hidden_norm(pass, in, in, NULL, NULL, after, NULL);
    if (st != GPUSERVE_OK)
        return st;
    if (!next)
        return gsv_pass_hidden_norm(pass, at->hidden, in, at->hidden, NULL, &spec->final_norm,
                                    NULL);
    return gsv_pass_hidden_norm(pass, at->context, in, at->hidden, at->hidden, next, reader);
}

/* The end of attention, with a decoder's cross-attention. A second norm is of the first one's
 * output and the residual. */
static gpuserve_status end_attention(const struct gsv_pass *pass, int32_t layer, void *in)
{
    const struct gsv_layer *items = &pass->net->spec->layers[layer];
    const struct gpuserve_linear *reader = gsv_stage_linear(pass->net, layer, GSV_STAGE_EXPAND);
    const bool again = items->again_attention.gamma >= 0, crosses = items->cross.query >= 0;
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(pass->net, GSV_PHASE_NORM, layer);
    if (again)
        st = gsv_pass_hidden_norm(pass, in, in, pass->at->hidden, NULL, &items->after_attention,
                                  NULL);
    if (st == GPUSERVE_OK)
        st = end_block(pass, in, again ? &items->again_attention : &items->after_attention,
                       &items->ffn[0].before, crosses ? NULL : reader);
    return st == GPUSERVE_OK && crosses ? gsv_cross_attend(pass, layer, reader) : st;
}

/* The end of a feed-forward network, of the layer after the last one. */
static gpuserve_status end_ffn(const struct gsv_pass *pass, int32_t layer, int32_t stage, void *out)
{
    const struct gsv_spec *spec = pass->net->spec;
    const struct gsv_layer *items = &spec->layers[layer];
    const int32_t number = gsv_stage_ffn(stage);
    const bool is_last = number + 1 == spec->config.n_ffns;
    const struct gpuserve_linear *reader = is_last ? gsv_linear_behind(pass->net, layer)
                                                   : gsv_stage_linear(pass->net, layer, stage + 1);
    const struct gsv_norm_items *next = NULL;
    gpuserve_status st;

    if (is_last && !gsv_is_decoder_layer(&spec->config, layer) &&
        gsv_is_decoder_layer(&spec->config, layer + 1) && layer + 1 < spec->config.n_layers)
        return gsv_enter_decoder(pass, layer, out);
    if (!is_last)
        next = &items->ffn[number + 1].before;
    else if (layer + 1 < spec->config.n_layers)
        next = &spec->layers[layer + 1].before_attention;
    st = end_block(pass, out, &items->ffn[number].after, next, reader);
    if (st != GPUSERVE_OK || !is_last)
        return st;
    if (gsv_is_bottleneck(spec))
        return gsv_leave_bottleneck(pass, layer);
    if (layer == 0 && spec->convolution >= 0)
        st = gsv_pass_hidden_norm(pass, pass->at->hidden, pass->at->convolved, pass->at->hidden,
                                  NULL, &spec->convolution_norm, reader);
    return st;
}

/* The operations between the stage's linear, which wrote `out`, and the next linear. */
static gpuserve_status follow(const struct gsv_pass *pass, int32_t layer, int32_t stage, void *out)
{
    const struct gsv_net *net = pass->net;

    switch (gsv_stage_kind(stage)) {
    case GSV_STAGE_ATTEND:
        return attend(pass, layer);
    case GSV_STAGE_PROJECT:
        return end_attention(pass, layer, out);
    case GSV_STAGE_EXPAND:
        return net->spec->config.is_gated || pass->at->n_ranges > 0
                   ? gate(pass, gsv_stage_linear(net, layer, stage + 1))
                   : GPUSERVE_OK;
    default:
        gsv_begin_phase(net, GSV_PHASE_FFN_NORM, layer);
        return end_ffn(pass, layer, stage, out);
    }
}

gpuserve_status gsv_encode_stage(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at, int32_t layer, int32_t stage)
{
    static const enum gsv_phase phases[] = { GSV_PHASE_QKV, GSV_PHASE_OUTPUT, GSV_PHASE_EXPAND,
                                             GSV_PHASE_CONTRACT };
    const struct gsv_spec *spec = net->spec;
    const enum gsv_stage kind = gsv_stage_kind(stage);
    const struct gsv_pass pass = { net, stream, batch, at };
    const struct gsv_layer *items = &spec->layers[layer];
    const struct gsv_weight *item = &spec->items[gsv_stage_item(spec, layer, stage)];
    const bool has_experts = items->router >= 0 && kind >= GSV_STAGE_EXPAND;
    const bool has_own_value = kind == GSV_STAGE_ATTEND && items->value >= 0;
    void *out = has_experts ? at->sum : kind == GSV_STAGE_CONTRACT ? at->context : at->wide;
    struct gpuserve_op_linear op = {
        .weight = gsv_stage_linear(net, layer, stage),
        .in = gsv_stage_input(spec, at, stage),
        .out = out,
        .rows = batch->n_rows,
        .in_ld = gsv_stage_input_ld(spec, at, stage),
        .out_ld = has_own_value ? gsv_qkv_columns(&spec->config) : item->n,
        .activation = item->activation,
    };
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(net, phases[kind], layer);
    if (has_experts && kind == GSV_STAGE_EXPAND)
        return gsv_run_experts(net, stream, batch, at, layer, op.in);
    if (kind == GSV_STAGE_EXPAND && !spec->config.is_gated)
        op.reader = gsv_stage_linear(net, layer, stage + 1);
    if (!has_experts)
        st = at->n_ranges > 0 ? gsv_pass_adapted(&pass, gsv_stage_item(spec, layer, stage), &op)
                              : net->backend->linear(stream, &op);
    if (st == GPUSERVE_OK)
        st = follow(&pass, layer, stage, out);
    return st == GPUSERVE_OK && stage + 1 == gsv_stage_count(spec) ? gsv_pass_mix(&pass, layer + 1)
                                                                   : st;
}

/* With weight streaming: the first layer with the weights of a streamed layer waits for them, and
 * starts the copy of the next ones. */
static gpuserve_status enter_layer(const struct gsv_net *net, struct gpuserve_stream *stream,
                                   int32_t layer)
{
    const struct gsv_layer *items = &net->spec->layers[layer];
    const int32_t streamed = net->streaming.layer_of[items->qkv];
    const bool is_first = layer == 0 || items->qkv != items[-1].qkv;

    return streamed >= 0 && is_first ? gsv_streaming_prefetch(net, stream, streamed + 1)
                                     : GPUSERVE_OK;
}

gpuserve_status gsv_encode(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at)
{
    const int32_t stages = gsv_stage_count(net->spec);
    const struct gsv_layer_range *layers = &net->layers;
    const bool streams = net->streaming.n > 0;
    gpuserve_status st = streams ? gsv_streaming_prefetch(net, stream, 0) : GPUSERVE_OK;

    if (st == GPUSERVE_OK && layers->first == 0)
        st = gsv_encode_embed(net, stream, batch, at);
    for (int32_t i = layers->first * stages; i < layers->end * stages && st == GPUSERVE_OK; i++) {
        if (streams && i % stages == 0)
            st = enter_layer(net, stream, i / stages);
        if (st == GPUSERVE_OK)
            st = gsv_encode_stage(net, stream, batch, at, i / stages, i % stages);
    }
    return st;
}

gpuserve_status gsv_abandon_batch(const struct gpuserve_backend *backend,
                                  struct gpuserve_stream *stream, gpuserve_status refused,
                                  gpuserve_error *error)
{
    const gpuserve_status st = backend->stream_wait(stream, error);

    if (st != GPUSERVE_OK)
        return st;
    return gsv_fail(error, refused, "the %s backend rejected an operation%s", backend->name,
                    refused == GPUSERVE_E_NOMEM ? ": out of memory" : "");
}
