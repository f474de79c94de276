/*
 * decoder.c - the parts that a decoder has beyond an encoder: its embeddings, which begin after the
 * encoder's last layer, and the cross-attention of its layers.
 *
 *   encoded = the encoder's output
 *   hidden = norm(word + position) of the text shifted by one token
 *   cross-attention:  hidden = norm(hidden + out(attention(query(hidden), key_value(encoded))))
 *
 * A text has as many tokens in the decoder as in the encoder. So the query of the decoder's rows
 * and the keys and values of the encoder's rows form one QKV buffer, which the attention operation
 * of the encoder reads.
 */
#include "lib/model/encoder/pass.h"

gpuserve_status gsv_enter_decoder(const struct gsv_pass *pass, int32_t last, const void *in)
{
    const struct gsv_net *net = pass->net;
    const struct gsv_spec *spec = net->spec;
    const struct gsv_ffn *ffn = &spec->layers[last].ffn[spec->config.n_ffns - 1];
    const struct gsv_activations *at = pass->at;
    const struct gsv_norm_items *norm = &spec->decoder_norm;
    struct gpuserve_batch shifted = *pass->batch;
    const struct gpuserve_op_embed op = {
        .batch = &shifted,
        .out = at->hidden,
        .word = gsv_net_address(net, spec->word),
        .position = gsv_net_address(net, spec->decoder_position),
        .gamma = gsv_net_address(net, norm->gamma),
        .beta = gsv_net_address(net, norm->beta),
        .eps = norm->eps,
        .hidden = spec->config.hidden_size,
        .norm = norm->kind,
        .word_scale = spec->config.word_scale,
        .table_dtype = net->dtype,
        .reader = gsv_linear_behind(net, last),
    };
    gpuserve_status st =
        gsv_pass_hidden_norm(pass, at->encoded, in, at->hidden, NULL, &ffn->after, NULL);

    shifted.ids = at->neighbours;
    gsv_begin_phase(net, GSV_PHASE_EMBED, -1);
    return st == GPUSERVE_OK ? net->backend->embed(pass->stream, &op) : st;
}

/* query(hidden), key_value(encoded) in `wide`, as rows of an encoder's QKV. */
static gpuserve_status multiply_query(const struct gsv_pass *pass,
                                      const struct gsv_cross_items *cross)
{
    const struct gsv_net *net = pass->net;
    const struct gsv_activations *at = pass->at;
    const int32_t columns = gsv_qkv_columns(&net->spec->config);
    const size_t behind_query =
        (size_t)net->spec->items[cross->query].n * net->backend->activation_size(net->dtype);
    const gpuserve_status st =
        gsv_pass_multiply(pass, cross->query, at->hidden, at->wide, columns, NULL);

    return st == GPUSERVE_OK ? gsv_pass_multiply(pass, cross->key_value, at->encoded,
                                                 (char *)at->wide + behind_query, columns, NULL)
                             : st;
}

gpuserve_status gsv_cross_attend(const struct gsv_pass *pass, int32_t layer,
                                 const struct gpuserve_linear *reader)
{
    const struct gsv_net *net = pass->net;
    const struct gsv_config *config = &net->spec->config;
    const struct gsv_cross_items *cross = &net->spec->layers[layer].cross;
    const struct gsv_activations *at = pass->at;
    const struct gpuserve_op_attention op = {
        .batch = pass->batch,
        .qkv = at->wide,
        .out = at->context,
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_size = config->head_size,
        .scale = config->attention_scale,
        .exact = net->int8.exact_attention,
    };
    gpuserve_status st;

    gsv_begin_phase(net, GSV_PHASE_QKV, layer);
    st = multiply_query(pass, cross);
    gsv_begin_phase(net, GSV_PHASE_ATTENTION, layer);
    if (st == GPUSERVE_OK)
        st = net->backend->attention(pass->stream, &op);
    gsv_begin_phase(net, GSV_PHASE_OUTPUT, layer);
    if (st == GPUSERVE_OK)
        st = gsv_pass_multiply(pass, cross->out, at->context, at->wide, config->hidden_size, NULL);
    gsv_begin_phase(net, GSV_PHASE_NORM, layer);
    return st == GPUSERVE_OK ? gsv_pass_hidden_norm(pass, at->hidden, at->wide, at->hidden, NULL,
                                                    &cross->after, reader)
                             : st;
}
