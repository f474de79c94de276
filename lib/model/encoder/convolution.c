/*
 * convolution.c - finds the weights of a convolution over the tokens of a text, and runs it.
 */
#include "lib/model/encoder/rows.h"

#include "lib/base/error.h"

#include <stdio.h>

/* The activation follows the sum, so the linears cannot apply it: as with adapters the sum becomes
 * the gates of a gated linear unit whose values are 1. */
static gpuserve_status add_products(const struct gsv_collector *c, const struct gsv_tensor *weight,
                                    const struct gsv_tensor *bias)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const int32_t hidden = config->hidden_size, kernel = config->convolution.kernel;

    spec->convolution = (int32_t)spec->n_items;
    for (int32_t i = 0; i < kernel; i++) {
        const bool is_middle = i == 0;
        struct gsv_weight *item =
            gsv_add_item(spec, GSV_ITEM_LINEAR_PLAIN, is_middle ? 2 * hidden : hidden, hidden);

        item->rows[0] = hidden;
        item->n_taps = kernel;
        item->tap = is_middle ? kernel / 2 : i - (i <= kernel / 2);
        item->weight[0] = *weight;
        if (is_middle) {
            item->n_ones = hidden;
            item->bias[0] = *bias;
        }
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_add_convolution(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const uint64_t hidden = (uint64_t)config->hidden_size;
    const uint64_t inputs = hidden / (uint64_t)config->convolution.groups;
    const uint64_t kernel = (uint64_t)config->convolution.kernel;
    char full[GSV_TENSOR_NAME_BYTES];
    struct gsv_tensor weight = { 0 }, bias = { 0 };
    gpuserve_status st;

    if (!gsv_lookup(c, &weight, "encoder.conv.conv", ".weight", full) ||
        !gsv_lookup(c, &bias, "encoder.conv.conv", ".bias", full))
        return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_weight_file_name(c->from->files[0]), full);
    if (weight.rank != 3 || weight.shape[0] != hidden || weight.shape[1] != inputs ||
        weight.shape[2] != kernel)
        return gsv_fail(c->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' has rank %llu and %llu elements, expected shape "
                        "[%llu, %llu, %llu]",
                        gsv_weight_file_name(weight.file), weight.name,
                        (unsigned long long)weight.rank, (unsigned long long)weight.count,
                        (unsigned long long)hidden, (unsigned long long)inputs,
                        (unsigned long long)kernel);
    weight.rank = 2;
    weight.shape[1] = inputs * kernel;
    st = gsv_check_tensor(&weight, hidden, inputs * kernel, c->error);
    if (st == GPUSERVE_OK)
        st = gsv_check_tensor(&bias, 0, hidden, c->error);
    if (st == GPUSERVE_OK)
        st = add_products(c, &weight, &bias);
    return st == GPUSERVE_OK ? gsv_add_norm(c, "encoder.conv.LayerNorm", config->hidden_size,
                                            &spec->convolution_norm)
                             : st;
}

/* -------------------------------------------------------------------------------------- running */

/* wide += the product of an item with the neighbours of its rows. */
static gpuserve_status add_tap(const struct gsv_net *net, struct gpuserve_stream *stream,
                               const struct gpuserve_batch *batch, const struct gsv_activations *at,
                               int32_t number)
{
    const int32_t hidden = net->spec->config.hidden_size;
    struct gpuserve_batch neighbours = *batch;
    const struct gpuserve_op_embed gather = {
        .batch = &neighbours,
        .out = at->context,
        .word = at->hidden,
        .hidden = hidden,
        .norm = GPUSERVE_NORM_NONE,
    };
    const struct gpuserve_op_linear add = {
        .weight = net->linears[net->spec->convolution + number],
        .in = at->context,
        .out = at->wide,
        .residual = at->wide,
        .rows = batch->n_rows,
        .in_ld = hidden,
        .out_ld = 2 * hidden,
    };
    gpuserve_status st;

    neighbours.ids = at->neighbours + (size_t)(number - 1) * (size_t)at->neighbours_ld;
    st = net->backend->embed(stream, &gather);
    return st == GPUSERVE_OK ? net->backend->linear(stream, &add) : st;
}

gpuserve_status gsv_run_convolution(const struct gsv_net *net, struct gpuserve_stream *stream,
                                    const struct gpuserve_batch *batch,
                                    const struct gsv_activations *at)
{
    const struct gsv_spec *spec = net->spec;
    const int32_t hidden = spec->config.hidden_size;
    const struct gpuserve_op_linear middle = {
        .weight = net->linears[spec->convolution],
        .in = at->hidden,
        .out = at->wide,
        .rows = batch->n_rows,
        .in_ld = hidden,
        .out_ld = 2 * hidden,
    };
    const struct gpuserve_op_glu activate = {
        .in = at->wide,
        .out = at->convolved,
        .rows = batch->n_rows,
        .cols = hidden,
        .in_ld = 2 * hidden,
        .out_ld = hidden,
        .activation = spec->config.convolution.activation,
    };
    gpuserve_status st = net->backend->linear(stream, &middle);

    for (int32_t i = 1; i < spec->config.convolution.kernel && st == GPUSERVE_OK; i++)
        st = add_tap(net, stream, batch, at, i);
    return st == GPUSERVE_OK ? net->backend->glu(stream, &activate) : st;
}
