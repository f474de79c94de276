/*
 * stream.cu - batches up, results down, and a watch on the device meanwhile. See stream.cuh.
 *
 * A batch goes up in one copy of int32 words:
 *
 *     ids[n_rows] type_ids[n_rows] positions[n_rows] cu_seqlens[n_sequences + 1] tiles[n_tiles][4]
 *
 * each part beginning at a multiple of 16 bytes, so the addresses follow from the shape alone and
 * a recorded batch finds them again. Shapes are rounded up (by an eighth at most) so that few of
 * them exist: rows past the tokens have id 0, sequences past the end no tokens, tiles past the end
 * no rows.
 */
#include "kernels/cuda/stream.cuh"

#include "kernels/cuda/guard.cuh"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --------------------------------------------------------------------------------- the shape */

/* n rounded up to one of eight steps for each power of two, at least `least`, at most `most`. */
static int32_t round_count(int32_t n, int32_t least, int32_t most)
{
    int32_t step = least;

    while (step < n / 8)
        step *= 2;
    n = (n + step - 1) / step * step;
    return n < most ? n : most;
}

/* Sequences cost little when they are empty: powers of two. */
static int32_t round_sequences(int32_t n, int32_t most)
{
    int32_t rounded = 1;

    while (rounded < n)
        rounded *= 2;
    return rounded < most ? rounded : most;
}

/* Most pieces that any lengths can come to: each sequence has at most one partial piece, and the
 * rows of no sequence are one more piece than they fill. */
static int32_t most_tiles(int32_t n_rows, int32_t n_sequences, int32_t height)
{
    return n_rows / height + n_sequences + 1;
}

/* The tallest pieces that still give each processor some work. Bits do not depend on it. */
static int32_t tile_height(const struct gpuserve_stream *stream, int32_t n_rows, int32_t max_seqlen)
{
    int32_t height = 64;

    while (height > 16 &&
           (max_seqlen <= height / 2 ||
            static_cast<int64_t>(n_rows) / height * stream->n_heads < stream->device->n_processors))
        height /= 2;
    return height;
}

static struct gsv_shape shape_of(const struct gpuserve_stream *stream,
                                 const struct gpuserve_host_batch *host)
{
    struct gsv_shape shape;

    if (host->n_tokens <= GSV_GRAPH_MAX_ROWS) {
        shape.n_rows = round_count(host->n_tokens, 16, stream->max_tokens);
        shape.n_sequences = round_sequences(host->n_sequences, stream->max_sequences);
    } else {
        shape.n_rows = (host->n_tokens + 15) / 16 * 16;
        shape.n_rows = shape.n_rows < stream->max_tokens ? shape.n_rows : stream->max_tokens;
        shape.n_sequences = host->n_sequences;
    }
    shape.tile_height = tile_height(stream, shape.n_rows, host->max_seqlen);
    shape.n_tiles = most_tiles(shape.n_rows, shape.n_sequences, shape.tile_height);
    return shape;
}

/* ---------------------------------------------------------------------------- the copy going up */

/* Where each part lies, in bytes. */
struct upload {
    size_t ids;
    size_t type_ids;
    size_t positions;
    size_t cu_seqlens;
    size_t tiles;
    size_t size;
};

static struct upload upload_of(const struct gsv_shape *shape)
{
    const size_t row_bytes = gsv_round_up(sizeof(int32_t) * shape->n_rows, 16);
    struct upload parts;

    parts.ids = 0;
    parts.type_ids = row_bytes;
    parts.positions = 2 * row_bytes;
    parts.cu_seqlens = 3 * row_bytes;
    parts.tiles = parts.cu_seqlens +
                  gsv_round_up(sizeof(int32_t) * (static_cast<size_t>(shape->n_sequences) + 1), 16);
    parts.size = parts.tiles + sizeof(struct gsv_tile) * shape->n_tiles;
    return parts;
}

/* The largest upload of a stream: the lowest tiles are the most. */
static size_t most_upload(const struct gpuserve_stream_options *options)
{
    struct gsv_shape shape = { options->max_tokens, options->max_sequences, 0, 16 };

    shape.n_tiles = most_tiles(shape.n_rows, shape.n_sequences, shape.tile_height);
    return gsv_round_up(upload_of(&shape).size, 256);
}

static void put_rows(char *to, const int32_t *from, int32_t n, int32_t n_rows)
{
    memcpy(to, from, sizeof(*from) * n);
    memset(to + sizeof(*from) * n, 0, sizeof(*from) * (n_rows - n));
}

/* Cut rows [first, end) into pieces; those of no sequence come with n_keys 0. */
static struct gsv_tile *put_pieces(struct gsv_tile *tile, int32_t first, int32_t end,
                                   int32_t n_keys, int32_t height)
{
    for (int32_t row = first; row < end; row += height) {
        tile->first_key = first;
        tile->n_keys = n_keys;
        tile->first_row = row;
        tile->n_rows = end - row < height ? end - row : height;
        tile++;
    }
    return tile;
}

static void put_tiles(char *to, const struct gpuserve_host_batch *host,
                      const struct gsv_shape *shape)
{
    struct gsv_tile *const tiles = reinterpret_cast<struct gsv_tile *>(to);
    struct gsv_tile *tile = tiles;

    for (int32_t i = 0; i < host->n_sequences; i++) {
        const int32_t first = host->cu_seqlens[i];
        const int32_t end = host->cu_seqlens[i + 1];

        tile = put_pieces(tile, first, end, end - first, shape->tile_height);
    }
    tile = put_pieces(tile, host->n_tokens, shape->n_rows, 0, shape->tile_height);
    memset(tile, 0, sizeof(*tile) * (shape->n_tiles - (tile - tiles)));
}

static void pack(char *to, const struct gpuserve_host_batch *host, const struct gsv_shape *shape,
                 const struct upload *parts)
{
    int32_t *const cu_seqlens = reinterpret_cast<int32_t *>(to + parts->cu_seqlens);

    put_rows(to + parts->ids, host->ids, host->n_tokens, shape->n_rows);
    put_rows(to + parts->type_ids, host->type_ids, host->n_tokens, shape->n_rows);
    put_rows(to + parts->positions, host->positions, host->n_tokens, shape->n_rows);
    memcpy(cu_seqlens, host->cu_seqlens, sizeof(*cu_seqlens) * (host->n_sequences + 1));
    for (int32_t i = host->n_sequences + 1; i <= shape->n_sequences; i++)
        cu_seqlens[i] = host->n_tokens;
    put_tiles(to + parts->tiles, host, shape);
}

/* ------------------------------------------------------------------------------ create, destroy */

static size_t output_bytes(const struct gpuserve_stream_options *options)
{
    return gsv_round_up(options->output_bytes > 0 ? options->output_bytes : 1, 256);
}

size_t gsv_cuda_stream_bytes(const struct gpuserve_stream_options *options)
{
    size_t all = 2 * most_upload(options) + output_bytes(options) + GSV_LT_WORKSPACE_BYTES;

    if (options->dtype == GPUSERVE_DTYPE_INT8 &&
        !gsv_add_size(all, gsv_cuda_int8_rows_bytes(options), &all))
        return SIZE_MAX;
    return all;
}

static gpuserve_status take(struct gpuserve_stream *stream,
                            const struct gpuserve_stream_options *options, gpuserve_error *error)
{
    const struct gpuserve_device *const device = stream->device;
    const size_t upload = most_upload(options);
    void *rows = NULL;
    cudaError_t code;

    if (gsv_cuda_take_pinned(device, reinterpret_cast<void **>(&stream->host_in), upload, error) ||
        gsv_cuda_take_pinned(device, reinterpret_cast<void **>(&stream->host_out),
                             output_bytes(options), error) ||
        gsv_cuda_take(device, reinterpret_cast<void **>(&stream->device_in), upload, error) ||
        gsv_cuda_take(device, &stream->workspace, GSV_LT_WORKSPACE_BYTES, error))
        return static_cast<gpuserve_status>(error->status);
    if (options->dtype == GPUSERVE_DTYPE_INT8) {
        if (gsv_cuda_take(device, &rows, gsv_cuda_int8_rows_bytes(options), error))
            return static_cast<gpuserve_status>(error->status);
        stream->int8 = gsv_cuda_int8_rows(rows, options);
    }
    code = cudaStreamCreateWithFlags(&stream->queue, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaStreamCreateWithFlags", error);
    code = cudaEventCreateWithFlags(&stream->done, cudaEventDisableTiming);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaEventCreateWithFlags", error);
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
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the CUDA backend does not compute in dtype %u", options->dtype);
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
    status = gsv_guard(
        device->index, "a stream was made",
        [=](gpuserve_error *e) { return take(made, &wanted, e); }, &left, error);
    if (status != GPUSERVE_OK) {
        if (!left)
            gsv_cuda_stream_destroy(&made);
        return status;
    }
    *stream = made;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------ the watch */

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<int64_t>(t.tv_sec) * 1000000 + t.tv_nsec / 1000;
}

/* Give the processor away for the longer the more has passed: a short batch is noticed at once, a
 * long one costs little to wait for. */
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

/* cudaStreamSynchronize would wait for ever for a device that hangs. */
static gpuserve_status watch(struct gpuserve_stream *stream)
{
    const int64_t begin = now_us();
    cudaError_t code;

    while ((code = cudaEventQuery(stream->done)) == cudaErrorNotReady) {
        const int64_t waited = now_us() - begin;

        if (waited / 1000 >= stream->device->timeout_ms)
            return gsv_cuda_fail_timeout(stream->device->index, "a batch ran",
                                         stream->device->timeout_ms, &stream->failure);
        rest(waited);
    }
    return gsv_cuda_note(stream, code, "the batch");
}

/* ------------------------------------------------------------------------------------ the end */

/* A batch that was begun and not waited for still reads and writes our memory. */
static void abandon(struct gpuserve_stream *stream)
{
    cudaGraph_t graph = NULL;

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
    if (s->done)
        cudaEventDestroy(s->done);
    if (s->queue)
        cudaStreamDestroy(s->queue);
    cudaFree(s->int8.values);
    cudaFree(s->workspace);
    cudaFree(s->device_in);
    cudaFreeHost(s->host_out);
    cudaFreeHost(s->host_in);
}

/* On a device that hangs any call that frees would wait for it for ever. */
void gsv_cuda_stream_destroy(struct gpuserve_stream **stream)
{
    struct gpuserve_stream *const s = stream ? *stream : NULL;

    if (!s)
        return;
    *stream = NULL;
    if (gsv_guard_release(s->device->index, "a stream was ended", [=] { release(s); }))
        free(s);
}

/* ---------------------------------------------------------------------------------- one batch */

/* The text of what went wrong with the batch, and the stream is ready for the next one. */
static gpuserve_status give_up(struct gpuserve_stream *stream, gpuserve_error *error)
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
        return give_up(stream, error);
    stream->phase = GSV_PHASE_IDLE;
    return GPUSERVE_OK;
}

/* This thread goes on with the batch, if nothing of it has failed yet. */
static gpuserve_status take_up(struct gpuserve_stream *stream)
{
    if (stream->failure.status == GPUSERVE_OK)
        (void)gsv_cuda_use(stream->device, &stream->failure);
    return static_cast<gpuserve_status>(stream->failure.status);
}

/* Replay what was recorded, begin a recording, or run. */
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
    /* Only this thread's calls: others may go on allocating. */
    return gsv_cuda_note(stream,
                         cudaStreamBeginCapture(stream->queue, cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture");
}

gpuserve_status gsv_cuda_batch_begin(struct gpuserve_stream *stream, uint64_t program,
                                     const struct gpuserve_host_batch *host,
                                     struct gpuserve_batch *batch, int32_t *replayed,
                                     gpuserve_error *error)
{
    const struct gsv_shape shape = shape_of(stream, host);
    const struct upload parts = upload_of(&shape);
    const char *const at = stream->device_in;
    struct gsv_graph *graph = NULL;
    gpuserve_status status = gsv_cuda_use(stream->device, error);

    *replayed = 0;
    if (status != GPUSERVE_OK)
        return status;
    if (stream->phase != GSV_PHASE_IDLE)
        return gsv_fail(error, GPUSERVE_E_INTERNAL,
                        "a batch was begun before the last was waited for");
    stream->failure.status = GPUSERVE_OK;
    pack(stream->host_in, host, &shape, &parts);
    batch->n_tokens = host->n_tokens;
    batch->n_sequences = shape.n_sequences;
    batch->max_seqlen = host->max_seqlen;
    batch->n_rows = shape.n_rows;
    batch->ids = reinterpret_cast<const int32_t *>(at + parts.ids);
    batch->type_ids = reinterpret_cast<const int32_t *>(at + parts.type_ids);
    batch->positions = reinterpret_cast<const int32_t *>(at + parts.positions);
    batch->cu_seqlens = reinterpret_cast<const int32_t *>(at + parts.cu_seqlens);
    stream->tiles.tiles = reinterpret_cast<const struct gsv_tile *>(at + parts.tiles);
    stream->tiles.n_tiles = shape.n_tiles;
    stream->tiles.height = shape.tile_height;

    stream->phase = GSV_PHASE_RUN;
    status = gsv_cuda_note(stream,
                           cudaMemcpyAsync(stream->device_in, stream->host_in, parts.size,
                                           cudaMemcpyHostToDevice, stream->queue),
                           "cudaMemcpyAsync of a batch");
    if (status == GPUSERVE_OK && host->n_tokens <= GSV_GRAPH_MAX_ROWS && !stream->no_graphs) {
        graph = gsv_graphs_find(&stream->graphs, program, &shape);
        if (graph->uses < 2)
            graph = NULL; /* most odd shapes never come again */
    }
    if (status == GPUSERVE_OK)
        status = start(stream, graph, replayed);
    return status == GPUSERVE_OK ? GPUSERVE_OK : give_up(stream, error);
}

/* Make the recording launchable, and launch it. */
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
        return give_up(stream, error);
    if (size > stream->output_bytes) {
        gsv_fail(&stream->failure, GPUSERVE_E_INTERNAL,
                 "a batch's result has %zu bytes, the stream was made for %zu", size,
                 stream->output_bytes);
        return give_up(stream, error);
    }
    if (stream->phase == GSV_PHASE_RECORD && finish_recording(stream) != GPUSERVE_OK)
        return give_up(stream, error);
    status = gsv_cuda_note(
        stream,
        cudaMemcpyAsync(stream->host_out, from, size, cudaMemcpyDeviceToHost, stream->queue),
        "cudaMemcpyAsync of a result");
    if (status == GPUSERVE_OK)
        status =
            gsv_cuda_note(stream, cudaEventRecord(stream->done, stream->queue), "cudaEventRecord");
    if (status != GPUSERVE_OK)
        return give_up(stream, error);
    stream->to_host = to_host;
    stream->to_host_size = size;
    stream->phase = GSV_PHASE_ENDED;
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error)
{
    if (take_up(stream) != GPUSERVE_OK)
        return give_up(stream, error);
    if (stream->phase != GSV_PHASE_ENDED)
        return GPUSERVE_OK; /* nothing under way */
    if (watch(stream) != GPUSERVE_OK)
        return give_up(stream, error);
    memcpy(stream->to_host, stream->host_out, stream->to_host_size);
    stream->phase = GSV_PHASE_IDLE;
    return GPUSERVE_OK;
}
