/*
 * stream.cu - life of a stream and of its batches: upload, capture or replay, download, and a poll
 * loop with a time-out. stream.cuh describes the data flow.
 *
 * A failure is recorded in stream->failure; the next call that can return it resets the stream to
 * GSV_PHASE_IDLE.
 */
#include "kernels/cuda/runtime/stream.cuh"

#include "kernels/cuda/runtime/watchdog.cuh"
#include "lib/base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------------------------------------------ create, destroy */

static size_t output_bytes(const struct gpuserve_stream_options *options)
{
    return gsv_round_up(options->output_bytes > 0 ? options->output_bytes : 1, 256);
}

size_t gsv_cuda_stream_bytes(const struct gpuserve_stream_options *options)
{
    size_t all = 2 * gsv_max_upload(options) + output_bytes(options) + GSV_LT_WORKSPACE_BYTES;

    if (options->dtype == GPUSERVE_DTYPE_INT8 &&
        !gsv_add_size(all, gsv_cuda_int8_stage_bytes(options), &all))
        return SIZE_MAX;
    return all;
}

static gpuserve_status take(struct gpuserve_stream *stream,
                            const struct gpuserve_stream_options *options, gpuserve_error *error)
{
    const struct gpuserve_device *const device = stream->device;
    const size_t upload = gsv_max_upload(options);
    const size_t int8_bytes = gsv_cuda_int8_stage_bytes(options);
    cudaError_t code;

    if (gsv_cuda_take_pinned(device, reinterpret_cast<void **>(&stream->host_in), upload, error) ||
        gsv_cuda_take_pinned(device, reinterpret_cast<void **>(&stream->host_out),
                             output_bytes(options), error) ||
        gsv_cuda_take(device, reinterpret_cast<void **>(&stream->device_in), upload, error) ||
        gsv_cuda_take(device, &stream->workspace, GSV_LT_WORKSPACE_BYTES, error))
        return static_cast<gpuserve_status>(error->status);
    if (options->dtype == GPUSERVE_DTYPE_INT8) {
        if (gsv_cuda_take(device, &stream->int8_memory, int8_bytes, error))
            return static_cast<gpuserve_status>(error->status);
        stream->int8 = gsv_cuda_int8_stage(stream->int8_memory, options);
    }
    code = cudaStreamCreateWithFlags(&stream->queue, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaStreamCreateWithFlags", error);
    code = cudaEventCreateWithFlags(&stream->done, cudaEventDisableTiming);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaEventCreateWithFlags", error);
    if (options->flags & GPUSERVE_STREAM_PREFETCHES) {
        code = cudaStreamCreateWithFlags(&stream->copies, cudaStreamNonBlocking);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&stream->reached, cudaEventDisableTiming);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&stream->arrived, cudaEventDisableTiming);
        if (code != cudaSuccess)
            return gsv_cuda_fail(device->index, code, "creating the stream of prefetches", error);
    }
    if (stream->int8_memory)
        code = cudaMemsetAsync(stream->int8_memory, 0, int8_bytes, stream->queue);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaMemsetAsync", error);
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_stream_create(struct gpuserve_device *device,
                                       struct gpuserve_stream **stream,
                                       const struct gpuserve_stream_options *options,
                                       gpuserve_error *error)
{
    struct gpuserve_stream *made;
    bool left;
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);

    *stream = NULL;
    if (status != GPUSERVE_OK)
        return status;
    if (gsv_cuda_activation_size(options->dtype) == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the CUDA backend does not support dtype %u",
                        options->dtype);
    made = static_cast<struct gpuserve_stream *>(calloc(1, sizeof(*made)));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while opening a stream");
    made->device = device;
    made->element = gsv_cuda_element(options->dtype);
    made->deterministic = (options->flags & GPUSERVE_STREAM_DETERMINISTIC) != 0;
    made->max_tokens = options->max_tokens;
    made->max_sequences = options->max_sequences;
    made->n_heads = options->n_heads > 0 ? options->n_heads : 1;
    made->output_bytes = options->output_bytes;
    made->failure.struct_size = sizeof(made->failure);
    const struct gpuserve_stream_options wanted = *options;
    status = gsv_watchdog(
        device->index, "creating a stream",
        [=](gpuserve_error *e) { return take(made, &wanted, e); }, &left, error);
    if (status != GPUSERVE_OK) {
        if (!left)
            gsv_cuda_stream_destroy(&made);
        return status;
    }
    *stream = made;
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- polling */

/* Back-off: spin, then yield, then sleep. A short batch is noticed at once; waiting for a long one
 * costs little CPU time. */
static void rest(int64_t waited_us)
{
    struct timespec t = { 0, 0 };

    if (waited_us < 200)
        return;
    if (waited_us < 1000) {
        sched_yield();
        return;
    }
    t.tv_nsec = waited_us < 20000 ? 20000 : 200000;
    nanosleep(&t, NULL);
}

/* Polls, since cudaStreamSynchronize would block forever on a hung device. */
static gpuserve_status watch(struct gpuserve_stream *stream)
{
    const uint64_t begin = gsv_now_ns();
    cudaError_t code;

    while ((code = cudaEventQuery(stream->done)) == cudaErrorNotReady) {
        const int64_t waited = static_cast<int64_t>((gsv_now_ns() - begin) / 1000);

        if (waited / 1000 >= stream->device->timeout_ms)
            return gsv_cuda_fail_timeout(stream->device->index, "running a batch",
                                         stream->device->timeout_ms, &stream->failure);
        rest(waited);
    }
    return gsv_cuda_note(stream, code, "the batch");
}

/* -------------------------------------------------------------------------------------- destroy */

/* Waits for a batch that was begun but not waited for: it still accesses the stream's memory. */
static void abandon(struct gpuserve_stream *stream)
{
    cudaGraph_t graph = NULL;

    if (stream->is_prefetching)
        (void)cudaStreamWaitEvent(stream->queue, stream->arrived, 0);
    stream->is_prefetching = false;

    if (stream->phase == GSV_PHASE_RECORD &&
        cudaStreamEndCapture(stream->queue, &graph) == cudaSuccess)
        cudaGraphDestroy(graph);
    if (stream->phase != GSV_PHASE_IDLE &&
        cudaEventRecord(stream->done, stream->queue) == cudaSuccess)
        (void)watch(stream);
}

static void release(struct gpuserve_stream *s)
{
    if (s->queue)
        abandon(s);
    gsv_graphs_clear(&s->graphs);
    if (s->copies)
        cudaStreamDestroy(s->copies);
    if (s->reached)
        cudaEventDestroy(s->reached);
    if (s->arrived)
        cudaEventDestroy(s->arrived);
    if (s->done)
        cudaEventDestroy(s->done);
    if (s->queue)
        cudaStreamDestroy(s->queue);
    cudaFree(s->int8_memory);
    cudaFree(s->workspace);
    cudaFree(s->device_in);
    cudaFreeHost(s->host_out);
    cudaFreeHost(s->host_in);
}

/* A hung device would block every call that frees memory, so the stream is then leaked. */
void gsv_cuda_stream_destroy(struct gpuserve_stream **stream)
{
    struct gpuserve_stream *const s = stream ? *stream : NULL;

    if (!s)
        return;
    *stream = NULL;
    if (gsv_watchdog_release(s->device->index, "closing a stream", [=] { release(s); }))
        free(s);
}

/* ------------------------------------------------------------------------------------ one batch */

/* Returns the error of the batch and resets the stream for the next one. */
static gpuserve_status abandon(struct gpuserve_stream *stream, gpuserve_error *error)
{
    const gpuserve_status status = static_cast<gpuserve_status>(stream->failure.status);

    gsv_error_copy(error, &stream->failure);
    stream->failure.status = GPUSERVE_OK;
    if (!gsv_cuda_hangs(stream->device->index))
        abandon(stream);
    stream->recording = NULL;
    stream->phase = GSV_PHASE_IDLE;
    return status;
}

gpuserve_status gsv_cuda_stream_begin(struct gpuserve_stream *stream, gpuserve_error *error)
{
    const gpuserve_status status = gsv_cuda_use(stream->device, error);

    if (status != GPUSERVE_OK)
        return status;
    if (stream->phase != GSV_PHASE_IDLE)
        return gsv_fail(error, GPUSERVE_E_INTERNAL, "arithmetic inside of a batch");
    stream->failure.status = GPUSERVE_OK;
    stream->phase = GSV_PHASE_RUN;
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_stream_finish(struct gpuserve_stream *stream, gpuserve_error *error)
{
    gpuserve_status status = static_cast<gpuserve_status>(stream->failure.status);

    if (status == GPUSERVE_OK)
        status =
            gsv_cuda_note(stream, cudaEventRecord(stream->done, stream->queue), "cudaEventRecord");
    if (status == GPUSERVE_OK)
        status = watch(stream);
    if (status != GPUSERVE_OK)
        return abandon(stream, error);
    stream->phase = GSV_PHASE_IDLE;
    return GPUSERVE_OK;
}

/* Makes the device current for this thread, unless the batch has already failed. */
static gpuserve_status take_up(struct gpuserve_stream *stream)
{
    if (stream->failure.status == GPUSERVE_OK)
        (void)gsv_cuda_use(stream->device, &stream->failure);
    return static_cast<gpuserve_status>(stream->failure.status);
}

/* Replays a captured graph, begins a capture, or runs directly. */
static gpuserve_status start(struct gpuserve_stream *stream, struct gsv_graph *graph,
                             int32_t *replayed)
{
    *replayed = graph && graph->exec ? 1 : 0;
    stream->recording = NULL;
    stream->phase = GSV_PHASE_RUN;
    if (*replayed)
        return gsv_cuda_note(stream, cudaGraphLaunch(graph->exec, stream->queue),
                             "cudaGraphLaunch");
    if (!graph)
        return GPUSERVE_OK;
    stream->recording = graph;
    stream->phase = GSV_PHASE_RECORD;
    /* Thread-local capture mode: other threads may go on allocating. */
    return gsv_cuda_note(stream,
                         cudaStreamBeginCapture(stream->queue, cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture");
}

gpuserve_status gsv_cuda_batch_begin(struct gpuserve_stream *stream, uint64_t program,
                                     const struct gpuserve_host_batch *host,
                                     struct gpuserve_batch *batch, int32_t *replayed,
                                     gpuserve_error *error)
{
    const struct gsv_shape shape = gsv_shape_of(stream, host);
    const struct gsv_upload parts = gsv_upload_of(&shape);
    const char *const at = stream->device_in;
    struct gsv_graph *graph = NULL;
    gpuserve_status status = gsv_cuda_use(stream->device, error);

    *replayed = 0;
    if (status != GPUSERVE_OK)
        return status;
    if (stream->phase != GSV_PHASE_IDLE)
        return gsv_fail(error, GPUSERVE_E_INTERNAL,
                        "a batch started before the previous batch of the stream ended");
    stream->failure.status = GPUSERVE_OK;
    gsv_int8_forget(&stream->int8);
    gsv_pack(stream->host_in, host, &shape, &parts);
    batch->n_tokens = host->n_tokens;
    batch->n_sequences = shape.n_sequences;
    batch->max_seqlen = host->max_seqlen;
    batch->n_rows = shape.n_rows;
    batch->ids = reinterpret_cast<const int32_t *>(at + parts.ids);
    batch->type_ids = reinterpret_cast<const int32_t *>(at + parts.type_ids);
    batch->positions = reinterpret_cast<const int32_t *>(at + parts.positions);
    batch->cu_seqlens = reinterpret_cast<const int32_t *>(at + parts.cu_seqlens);
    batch->key_counts = reinterpret_cast<const int32_t *>(at + parts.key_counts);
    stream->tiles.tiles = reinterpret_cast<const struct gsv_attention_tile *>(at + parts.tiles);
    stream->tiles.n_tiles = shape.n_tiles;
    stream->tiles.height = shape.tile_height;
    stream->tiles.short_texts = shape.short_texts != 0;

    stream->phase = GSV_PHASE_RUN;
    status = gsv_cuda_note(stream,
                           cudaMemcpyAsync(stream->device_in, stream->host_in, parts.size,
                                           cudaMemcpyHostToDevice, stream->queue),
                           "cudaMemcpyAsync of a batch");
    if (status == GPUSERVE_OK && host->n_tokens <= GSV_GRAPH_MAX_ROWS && !stream->no_graphs &&
        program != GPUSERVE_PROGRAM_ONCE) {
        graph = gsv_graphs_find(&stream->graphs, program, &shape);
        if (graph->uses < 2)
            graph = NULL; /* most rare shapes never recur */
    }
    if (status == GPUSERVE_OK)
        status = start(stream, graph, replayed);
    return status == GPUSERVE_OK ? GPUSERVE_OK : abandon(stream, error);
}

/* Instantiates the captured graph and launches it. */
static gpuserve_status finish_recording(struct gpuserve_stream *stream)
{
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamEndCapture(stream->queue, &graph);
    gpuserve_status status = gsv_cuda_note(stream, code, "cudaStreamEndCapture");

    stream->phase = GSV_PHASE_RUN;
    if (status == GPUSERVE_OK) {
        code = cudaGraphInstantiate(&stream->recording->exec, graph, 0);
        status = gsv_cuda_note(stream, code, "cudaGraphInstantiate");
        if (status != GPUSERVE_OK)
            stream->recording->exec = NULL;
        cudaGraphDestroy(graph);
    }
    if (status == GPUSERVE_OK)
        status = gsv_cuda_note(stream, cudaGraphLaunch(stream->recording->exec, stream->queue),
                               "cudaGraphLaunch");
    stream->no_graphs = status != GPUSERVE_OK;
    stream->recording = NULL;
    return status;
}

gpuserve_status gsv_cuda_batch_end(struct gpuserve_stream *stream, void *to_host, const void *from,
                                   size_t size, gpuserve_error *error)
{
    gpuserve_status status = take_up(stream);

    if (status != GPUSERVE_OK)
        return abandon(stream, error);
    if (size > stream->output_bytes) {
        gsv_fail(&stream->failure, GPUSERVE_E_INTERNAL,
                 "a batch's result has %zu bytes, the stream's capacity is %zu", size,
                 stream->output_bytes);
        return abandon(stream, error);
    }
    if (stream->phase == GSV_PHASE_RECORD && finish_recording(stream) != GPUSERVE_OK)
        return abandon(stream, error);
    status = gsv_cuda_note(
        stream,
        cudaMemcpyAsync(stream->host_out, from, size, cudaMemcpyDeviceToHost, stream->queue),
        "cudaMemcpyAsync of a result");
    if (status == GPUSERVE_OK)
        status =
            gsv_cuda_note(stream, cudaEventRecord(stream->done, stream->queue), "cudaEventRecord");
    if (status != GPUSERVE_OK)
        return abandon(stream, error);
    stream->to_host = to_host;
    stream->to_host_size = size;
    stream->phase = GSV_PHASE_ENDED;
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error)
{
    if (take_up(stream) != GPUSERVE_OK)
        return abandon(stream, error);
    if (stream->phase != GSV_PHASE_ENDED)
        return abandon(stream, NULL); /* nothing in flight, or a batch without batch_end */
    if (watch(stream) != GPUSERVE_OK)
        return abandon(stream, error);
    memcpy(stream->to_host, stream->host_out, stream->to_host_size);
    stream->phase = GSV_PHASE_IDLE;
    return GPUSERVE_OK;
}

/* Measures the duration of work on a stream with CUDA events (device clock). */

gpuserve_status gsv_cuda_timer_start(struct gsv_timer *timer, struct gpuserve_stream *stream)
{
    cudaError_t code = cudaEventCreate(&timer->begin);

    if (code == cudaSuccess)
        code = cudaEventCreate(&timer->end);
    if (code == cudaSuccess)
        code = cudaEventRecord(timer->begin, stream->queue);
    return gsv_cuda_note(stream, code, "the events of a timer");
}

void gsv_cuda_timer_stop(struct gsv_timer *timer, struct gpuserve_stream *stream)
{
    timer->stopped = gsv_cuda_note(stream, cudaEventRecord(timer->end, stream->queue),
                                   "cudaEventRecord") == GPUSERVE_OK;
}

double gsv_cuda_timer_end(struct gsv_timer *timer, const struct gpuserve_stream *stream)
{
    float ms = 0.f;

    if (gsv_cuda_hangs(stream->device->index))
        return 0;
    if (timer->stopped && cudaEventElapsedTime(&ms, timer->begin, timer->end) != cudaSuccess) {
        cudaGetLastError();
        ms = 0.f;
    }
    if (timer->begin)
        cudaEventDestroy(timer->begin);
    if (timer->end)
        cudaEventDestroy(timer->end);
    return ms / 1e3;
}
