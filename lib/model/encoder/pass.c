/*
 * pass.c - operations that several parts of the encoder queue, and the projections around a
 * bottleneck layer.
 */
#include "lib/model/encoder/pass.h"

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
