/*
 * max_sim.c - MaxSim of the texts of a batch: their queries and the rows that count go to the
 * device, one float for each text comes back.
 *
 *   queries, texts, rows --memory_write--> device
 *   encode -> modules on tokens, or the late-interaction head -> max_sim
 *
 * The operation reads the numbers of queries and rows from device memory, so that a recorded batch
 * fits batches with other queries.
 */
#include "lib/model/encoder/rows.h"

gpuserve_status gsv_write_max_sim(struct gsv_exec *work, const struct gsv_late_batch *late,
                                  gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const size_t row = (size_t)net->spec->facts.token_dim * sizeof(float);
    gpuserve_status st =
        net->backend->memory_write(net->device, work->memory + work->layout.late_texts, late->texts,
                                   (size_t)work->max_sequences * sizeof(*late->texts), error);

    if (st == GPUSERVE_OK && late->n_rows > 0)
        st = net->backend->memory_write(net->device, work->memory + work->layout.late_rows,
                                        late->rows, (size_t)late->n_rows * sizeof(*late->rows),
                                        error);
    for (int32_t i = 0; i < late->n_queries && st == GPUSERVE_OK; i++) {
        const struct gsv_late_query *query = &late->queries[i];

        st = net->backend->memory_write(
            net->device, work->memory + work->layout.queries + (size_t)query->first * row,
            query->vectors, (size_t)query->n * row, error);
    }
    return st;
}

gpuserve_status gsv_rows_max_sim(struct gsv_rows *rows)
{
    struct gsv_exec *work = rows->work;
    const struct gsv_net *net = work->net;
    const char *memory = work->memory;
    const struct gpuserve_op_max_sim op = {
        .batch = rows->batch,
        .in = gsv_token_vectors(work),
        .query = (const float *)(const void *)(memory + work->layout.queries),
        .texts = (const void *)(memory + work->layout.late_texts),
        .rows = (const int32_t *)(const void *)(memory + work->layout.late_rows),
        .out = work->pooled[0],
        .dim = net->spec->facts.token_dim,
        .normalize = gsv_normalizes_tokens(net->spec),
    };

    gsv_begin_phase(net, GSV_PHASE_HEAD, -1);
    return net->backend->max_sim(work->stream, &op);
}
