/*
 * bottleneck.c - the projections around a bottleneck layer.
 *
 *   before   narrow = norm(in(hidden)); with a projection for query and key: context =
 *            norm(attention(hidden))
 *   after    hidden = norm(hidden + out(narrow))
 */
#include "lib/model/encoder/pass.h"

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
