/*
 * pass.c - operations that several parts of the encoder queue.
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
