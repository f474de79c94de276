/*
 * low_rank.c - the products of LoRA adapters in a batch whose texts have different ones.
 *
 *   rows      | none       | adapter 1  | adapter 4 ... |    texts in the order of their adapters
 *   low-rank  | 0          | B1 (A1 in) | B4 (A4 in)    |    one pair of products for each range
 *   base      | W in + low-rank                         |    one product for all rows
 *
 * The low-rank products are written to the output of the base product, which adds them as its
 * residual. Each row has the operations that it has in a batch of its own adapter alone, so it has
 * the same bits on a backend whose rows are independent of each other.
 */
#include "lib/model/encoder/pass.h"

#include "lib/base/error.h"
#include "lib/model/weights/adapters.h"

gpuserve_status gsv_find_adapter_ranges(struct gsv_activations *at,
                                        const struct gpuserve_host_batch *host,
                                        const struct gsv_run *run, gpuserve_error *error)
{
    int32_t last = -1;

    at->n_ranges = 0;
    for (int32_t i = 0; i < host->n_sequences; i++) {
        const int32_t adapter = run->adapters ? run->adapters[i] : run->adapter;

        if (adapter == last || host->cu_seqlens[i] == host->cu_seqlens[i + 1])
            continue;
        if (adapter < last || at->n_ranges == GSV_MAX_ADAPTER_RANGES)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "text %d of a batch has adapter %d after adapter %d: they must ascend",
                            i, adapter, last);
        at->ranges[at->n_ranges++] = (struct gsv_adapter_range){ adapter, host->cu_seqlens[i] };
        last = adapter;
    }
    if (at->n_ranges == 1 && last == 0)
        at->n_ranges = 0;
    return GPUSERVE_OK;
}

/* out = B (A in) on the rows of a range that has an adapter. */
static gpuserve_status multiply_low(const struct gsv_pass *pass, int32_t index,
                                    const struct gpuserve_op_linear *linear, int32_t range)
{
    const struct gsv_net *net = pass->net;
    const struct gsv_adapter_rows rows = gsv_rows_of_range(pass, range);
    const int32_t item = gsv_adapter_item(index, rows.adapter);
    const struct gsv_weight *a = &net->spec->items[item], *b = a + 1;
    const struct gpuserve_op_linear down = {
        .weight = net->linears[item],
        .in = gsv_row_at(net, linear->in, rows.first, linear->in_ld),
        .out = pass->at->low,
        .rows = rows.n,
        .in_ld = linear->in_ld,
        .out_ld = a->n,
    };
    const struct gpuserve_op_linear up = {
        .weight = net->linears[item + 1],
        .in = pass->at->low,
        .out = gsv_row_at(net, linear->out, rows.first, b->n),
        .rows = rows.n,
        .in_ld = a->n,
        .out_ld = b->n,
    };
    const gpuserve_status st = net->backend->linear(pass->stream, &down);

    return st == GPUSERVE_OK ? net->backend->linear(pass->stream, &up) : st;
}

/* Rows without an adapter add zeros. */
static gpuserve_status clear_rows(const struct gsv_pass *pass, void *out, int32_t rows,
                                  int32_t cols)
{
    const struct gpuserve_op_add_scaled zeros = {
        .out = out, .in = pass->at->low, .rows = rows, .cols = cols, .first = 1, .factor = 0.0f
    };

    return pass->net->backend->add_scaled(pass->stream, &zeros);
}

/* The rows without an adapter, whose linear applies the activation itself. */
static gpuserve_status multiply_plain(const struct gsv_pass *pass,
                                      const struct gpuserve_op_linear *linear, int32_t rows,
                                      int32_t out_ld)
{
    struct gpuserve_op_linear plain = *linear;

    plain.rows = rows;
    plain.out_ld = out_ld;
    plain.reader = NULL; /* it reads all rows */
    return pass->net->backend->linear(pass->stream, &plain);
}

gpuserve_status gsv_pass_adapted(const struct gsv_pass *pass, int32_t index,
                                 const struct gpuserve_op_linear *linear)
{
    const struct gsv_activations *at = pass->at;
    const struct gsv_weight *b = &pass->net->spec->items[gsv_adapter_item(index, 1) + 1];
    const int32_t n_plain = gsv_plain_rows(at);
    const bool divides = n_plain > 0 && linear->activation != GPUSERVE_ACT_NONE;
    const int32_t first = divides ? n_plain : 0;
    struct gpuserve_op_linear base = *linear;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = n_plain > 0; i < at->n_ranges && st == GPUSERVE_OK; i++)
        st = multiply_low(pass, index, linear, i);
    if (st == GPUSERVE_OK && divides)
        st = multiply_plain(pass, linear, n_plain, b->n);
    else if (st == GPUSERVE_OK && n_plain > 0)
        st = clear_rows(pass, linear->out, n_plain, b->n);
    if (st != GPUSERVE_OK)
        return st;
    base.in = gsv_row_at(pass->net, linear->in, first, linear->in_ld);
    base.out = gsv_row_at(pass->net, linear->out, first, b->n);
    base.residual = base.out;
    base.rows = linear->rows - first;
    base.out_ld = b->n;
    base.activation = GPUSERVE_ACT_NONE; /* runs as a gated linear unit */
    base.reader = NULL;
    return pass->net->backend->linear(pass->stream, &base);
}
