/*
 * staged_run.c - the stream and the batches of a run stage by stage.
 */
#include "lib/model/int8/staged_run.h"

#include "lib/base/error.h"
#include "lib/model/weights/weights.h"

struct gsv_exec_options gsv_staged_options(const struct gpuserve_host_batch *host, uint32_t dtype,
                                           int32_t n_threads)
{
    return (struct gsv_exec_options){
        .dtype = dtype,
        .n_threads = n_threads,
        .max_tokens = host->n_tokens,
        .max_sequences = host->n_sequences,
        .max_seqlen = host->max_seqlen,
    };
}

gpuserve_status gsv_staged_open(struct gsv_staged_run *run, const struct gsv_net *net,
                                const struct gpuserve_host_batch *host, uint32_t dtype,
                                int32_t n_threads, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = net->backend;
    const struct gsv_exec_options options = gsv_staged_options(host, dtype, n_threads);
    struct gsv_exec_layout layout;
    struct gpuserve_stream_options stream;
    void *memory;
    gpuserve_status st;

    *run = (struct gsv_staged_run){ .net = net, .host = host };
    if (!gsv_exec_layout(net->spec, backend, &options, &layout))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the batch has no tokens");
    st = backend->memory_alloc(net->device, &memory, (size_t)layout.total_bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    run->memory = memory;
    run->wide_columns = layout.wide_columns;
    run->at = gsv_map_activations(&layout, run->memory, options.max_tokens);
    st = gsv_fill_neighbours(net, options.max_tokens, host, &run->at,
                             run->memory + layout.neighbours, error);
    if (st != GPUSERVE_OK)
        return st;
    stream = gsv_stream_options(net->spec, backend, &options, &layout);
    return backend->stream_create(net->device, &run->stream, &stream, error);
}

void gsv_staged_close(struct gsv_staged_run *run)
{
    if (!run->net)
        return;
    run->net->backend->stream_destroy(&run->stream);
    if (run->memory)
        run->net->backend->memory_free(run->net->device, run->memory);
    *run = (struct gsv_staged_run){ 0 };
}

gpuserve_status gsv_staged_step(struct gsv_staged_run *run, int32_t step, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = run->net->backend;
    const int32_t stages = gsv_stage_count(run->net->spec);
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    float one;
    gpuserve_status st =
        backend->batch_begin(run->stream, run->program++, run->host, &batch, &replayed, error);

    if (st != GPUSERVE_OK)
        return st;
    st = step < 0 ? gsv_encode_embed(run->net, run->stream, &batch, &run->at)
                  : gsv_encode_stage(run->net, run->stream, &batch, &run->at, step / stages,
                                     step % stages);
    if (st != GPUSERVE_OK)
        return gsv_abandon_batch(backend, run->stream, st, error);
    st = backend->batch_end(run->stream, &one, run->at.hidden, sizeof(one), error);
    return st == GPUSERVE_OK ? backend->stream_wait(run->stream, error) : st;
}
