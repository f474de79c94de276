/*
 * recurrent.c - runs the LSTM layers of a recurrent model.
 *
 *   embed -> context -> layer 0 -> hidden or wide -> layer 1 -> ... -> hidden
 *
 * A backend runs the layers outside of a batch, so one run has two batches: the first embeds the
 * tokens, the second pools the hidden states. The layers alternate between the buffers `hidden` and
 * `wide`; the last one writes `hidden`.
 */
#include "lib/model/encoder/rows.h"

#include <stdlib.h>

#define EMBED_PROGRAM (UINT64_C(1) << 62)

static gpuserve_status embed(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                             gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    struct gpuserve_batch batch;
    const struct gpuserve_op_embed op = {
        .batch = &batch,
        .out = work->at.context,
        .word = gsv_net_address(net, net->spec->word),
        .hidden = net->spec->config.embedding_size,
        .norm = GPUSERVE_NORM_NONE,
        .table_dtype = net->dtype,
    };
    float first; /* a batch ends with a copy to the host */
    int32_t replayed = 0;
    gpuserve_status st =
        net->backend->batch_begin(work->stream, EMBED_PROGRAM, host, &batch, &replayed, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!replayed)
        st = net->backend->embed(work->stream, &op);
    if (st != GPUSERVE_OK)
        return gsv_abandon_batch(net->backend, work->stream, st, error);
    st = net->backend->batch_end(work->stream, &first, work->at.context, sizeof(first), error);
    return st == GPUSERVE_OK ? net->backend->stream_wait(work->stream, error) : st;
}

/* Descending length; sequences of equal length keep their order. */
static int by_length(const void *a_, const void *b_)
{
    const struct gpuserve_lstm_sequence *a = a_, *b = b_;

    if (a->length != b->length)
        return a->length < b->length ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static gpuserve_status write_sequences(struct gsv_exec *work,
                                       const struct gpuserve_host_batch *host,
                                       gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const size_t n = (size_t)host->n_sequences;

    for (size_t i = 0; i < n; i++)
        work->sequences[i] = (struct gpuserve_lstm_sequence){
            .first = host->cu_seqlens[i],
            .length = host->cu_seqlens[i + 1] - host->cu_seqlens[i],
            .number = (int32_t)i,
        };
    qsort(work->sequences, n, sizeof(*work->sequences), by_length);
    return net->backend->memory_write(net->device, work->memory + work->layout.sequences,
                                      work->sequences, n * sizeof(*work->sequences), error);
}

static gpuserve_status run_layer(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                 int32_t number, gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const struct gsv_recurrent *recurrent = &net->spec->config.recurrent;
    void *const outputs[] = { work->at.hidden, work->at.wide };
    const int32_t after = recurrent->n_layers - 1 - number; /* layers behind this one */
    struct gpuserve_op_lstm op = {
        .layer = net->recurrent[net->spec->recurrent + number * recurrent->directions],
        .in = number == 0 ? work->at.context : outputs[(after + 1) % 2],
        .out = outputs[after % 2],
        .h_n = (float *)(void *)(work->memory + work->layout.states[0]),
        .c_n = (float *)(void *)(work->memory + work->layout.states[1]),
        .sequences = (const void *)(work->memory + work->layout.sequences),
        .host_sequences = work->sequences,
        .scratch = work->memory + work->layout.scratch,
        .n_rows = host->n_tokens,
        .n_sequences = host->n_sequences,
        .variant = GPUSERVE_LSTM_AUTO,
    };
    size_t size; /* at most that of the layout, see lstm_max_bytes */
    const gpuserve_status st = net->backend->lstm_bytes(net->device, &op, &size, error);

    return st == GPUSERVE_OK ? net->backend->lstm(work->stream, &op, error) : st;
}

gpuserve_status gsv_recurrent_encode(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                     gpuserve_error *error)
{
    gpuserve_status st = embed(work, host, error);

    if (st == GPUSERVE_OK)
        st = write_sequences(work, host, error);
    for (int32_t i = 0; i < work->net->spec->config.recurrent.n_layers && st == GPUSERVE_OK; i++)
        st = run_layer(work, host, i, error);
    return st;
}

gpuserve_status gsv_recurrent_pool_ends(const struct gsv_rows *rows, struct gpuserve_op_pool *op)
{
    const struct gpuserve_backend *backend = rows->work->net->backend;
    const int32_t units = rows->work->net->spec->config.recurrent.units;
    const int32_t columns = op->columns, normalize = op->normalize;
    struct gpuserve_op_pool backward = *op;
    gpuserve_status st;

    op->columns = columns < units ? columns : units;
    op->normalize = 0;
    st = backend->pool(rows->work->stream, op);
    if (st == GPUSERVE_OK && columns > units) {
        backward.in = (const float *)op->in + units; /* the rows of a recurrent model are float32 */
        backward.out = op->out + units;
        backward.pooling = GPUSERVE_POOL_CLS;
        backward.columns = columns - units;
        backward.normalize = 0;
        st = backend->pool(rows->work->stream, &backward);
    }
    if (st == GPUSERVE_OK && normalize)
        st = gsv_rows_activate(rows, columns, GPUSERVE_ACT_NONE);
    return st;
}
