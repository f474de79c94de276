/*
 * experts.c - finds the weights of a mixture of experts, and runs it.
 *
 * The first products of all experts are one tensor [n * wide, hidden]. So are the second products,
 * each of them transposed: [wide, hidden].
 */
#include "lib/model/encoder/encoder.h"

#include "lib/base/error.h"

gpuserve_status gsv_add_experts(const struct gsv_collector *c, struct gsv_layer *layer)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_tensor_names *names = spec->names;
    const int32_t n = config->experts.n, hidden = config->hidden_size;
    const int32_t wide = config->intermediate_size;
    struct gsv_tensor in = { 0 }, out = { 0 };
    gpuserve_status st;

    if (!names->router)
        return gsv_fail(c->error, GPUSERVE_E_UNSUPPORTED,
                        "%s: experts in these tensors are not supported",
                        gsv_weight_file_name(c->from->files[0]));
    layer->router = (int32_t)spec->n_items;
    st = gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, names->router, GSV_ABSENT, n, hidden,
                        GPUSERVE_ACT_NONE);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &gsv_add_item(spec, GSV_ITEM_LINEAR_PLAIN, hidden, n)->bias[0],
                             names->experts_bias, "", NULL, 0, hidden, GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &in, names->experts_in, "", NULL, n * wide, hidden, GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &out, names->experts_out, "", NULL, n * wide, hidden, GSV_REQUIRED);
    if (st != GPUSERVE_OK)
        return st;
    layer->ffn[0].in = (int32_t)spec->n_items;
    layer->ffn[0].out = layer->ffn[0].in + 1;
    for (int32_t i = 0; i < n; i++) {
        struct gsv_weight *up = gsv_add_item(spec, GSV_ITEM_LINEAR, wide, hidden);
        struct gsv_weight *down = gsv_add_item(spec, GSV_ITEM_LINEAR, hidden, wide);

        up->activation = config->activation;
        up->weight[0] = gsv_tensor_rows(&in, i * wide, wide);
        down->weight[0] = gsv_tensor_rows(&out, i * wide, wide);
        down->transposed = true;
    }
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- running */

struct mixture {
    const struct gsv_net *net;
    struct gpuserve_stream *stream;
    const struct gsv_activations *at;
    int32_t rows;
};

/* out = the linear of an item, with its activation. */
static gpuserve_status multiply(const struct mixture *m, int32_t index, const void *in, void *out)
{
    const struct gsv_weight *item = &m->net->spec->items[index];
    const struct gpuserve_op_linear op = {
        .weight = m->net->linears[index],
        .in = in,
        .out = out,
        .rows = m->rows,
        .in_ld = item->k,
        .out_ld = item->n,
        .activation = item->activation,
    };

    return m->net->backend->linear(m->stream, &op);
}

/* sum += weight * expert(in) */
static gpuserve_status add_expert(const struct mixture *m, int32_t layer, int32_t expert,
                                  const void *in)
{
    const struct gsv_config *config = &m->net->spec->config;
    const int32_t item = m->net->spec->layers[layer].ffn[0].in + 2 * expert;
    const struct gpuserve_op_add_scaled add = {
        .out = m->at->sum,
        .in = m->at->context,
        .weights = m->at->weights + expert,
        .weights_ld = config->experts.n,
        .rows = m->rows,
        .cols = config->hidden_size,
        .factor = 1.0f,
    };
    gpuserve_status st;

    gsv_begin_phase(m->net, GSV_PHASE_EXPAND, layer);
    st = multiply(m, item, in, m->at->wide);
    gsv_begin_phase(m->net, GSV_PHASE_CONTRACT, layer);
    if (st == GPUSERVE_OK)
        st = multiply(m, item + 1, m->at->wide, m->at->context);
    return st == GPUSERVE_OK ? m->net->backend->add_scaled(m->stream, &add) : st;
}

gpuserve_status gsv_run_experts(const struct gsv_net *net, struct gpuserve_stream *stream,
                                const struct gpuserve_batch *batch,
                                const struct gsv_activations *at, int32_t layer, const void *in)
{
    const struct gsv_layer *items = &net->spec->layers[layer];
    const struct mixture m = { net, stream, at, batch->n_rows };
    const struct gpuserve_op_route route = {
        .logits = at->low,
        .weights = at->weights,
        .rows = batch->n_rows,
        .experts = net->spec->config.experts.n,
        .top_k = net->spec->config.experts.top_k,
    };
    gpuserve_status st = multiply(&m, items->router, in, at->low);

    if (st == GPUSERVE_OK)
        st = net->backend->route(stream, &route);
    if (st == GPUSERVE_OK) /* its weights are zeros: the bias in every row */
        st = multiply(&m, items->router + 1, at->low, at->sum);
    for (int32_t i = 0; i < route.experts && st == GPUSERVE_OK; i++)
        st = add_expert(&m, layer, i, in);
    return st;
}
