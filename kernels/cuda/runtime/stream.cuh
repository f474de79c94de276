/*
 * stream.cuh - a stream: one queue of batches. Shared by stream.cu, batch_upload.cu, graph_cache.cu
 * and ops.cu.
 *
 * Data flow:  batch_begin   shape -> staging -> one upload; then replay, capture or run
 *             operations    enqueued on the stream (during capture: recorded in a CUDA graph)
 *             batch_end     the capture is ended and launched; one download; an event
 *             stream_wait   waits for the event, then copies the rows to the caller
 *
 * All memory is allocated at stream_create. A batch allocates nothing, except a CUDA graph when its
 * shape occurs for the second time. One thread at a time uses a stream.
 */
#ifndef GSV_CUDA_STREAM_CUH
#define GSV_CUDA_STREAM_CUH

#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/int8.cuh"

#define GSV_MAX_GRAPHS 128
/* Larger batches keep the device busy by themselves: they are not captured, and their rows are
 * rounded up by a few only. */
#define GSV_GRAPH_MAX_ROWS 4096

/* Cache key of a CUDA graph besides its operations: launch sizes and addresses. */
struct gsv_shape {
    int32_t n_rows;
    int32_t n_sequences;
    int32_t n_tiles;     /* in the attention work list, including unused ones */
    int32_t tile_height; /* 16, 32 or 64 query rows */
    int32_t short_texts; /* 1: no sequence is longer than GSV_ATTENTION_KEYS */
};

/* Byte offsets of the parts of an uploaded batch; see batch_upload.cu. */
struct gsv_upload {
    size_t ids;
    size_t type_ids;
    size_t positions;
    size_t cu_seqlens;
    size_t key_counts;
    size_t tiles;
    size_t size;
};

struct gsv_graph {
    uint64_t program;
    struct gsv_shape shape;
    cudaGraphExec_t exec; /* NULL: seen once, not captured */
    uint32_t uses;
    uint64_t last_use; /* 0: the entry is free */
};

struct gsv_graphs {
    struct gsv_graph entries[GSV_MAX_GRAPHS];
    uint64_t clock;
};

/* Returns the entry for this program and shape; a new entry replaces the least recently used
 * one. */
struct gsv_graph *gsv_graphs_find(struct gsv_graphs *graphs, uint64_t program,
                                  const struct gsv_shape *shape);
void gsv_graphs_clear(struct gsv_graphs *graphs);

enum gsv_stream_phase {
    GSV_PHASE_IDLE,
    GSV_PHASE_RUN,    /* operations are launched at once */
    GSV_PHASE_RECORD, /* operations are captured into a graph */
    GSV_PHASE_ENDED   /* the download is in flight */
};

struct gpuserve_stream {
    struct gpuserve_device *device;
    enum gsv_element element;
    bool deterministic;
    bool no_graphs; /* capture failed once: do not retry */
    int32_t max_tokens;
    int32_t max_sequences;
    int32_t n_heads;
    size_t output_bytes;
    cudaStream_t queue;
    cudaEvent_t done;
    char *host_in;     /* pinned; staging for the upload */
    char *host_out;    /* pinned; the downloaded result */
    char *device_in;   /* the batch on the device */
    void *workspace;   /* for cuBLASLt */
    void *int8_memory; /* INT8: memory of `int8` */
    struct gsv_int8_stage int8;
    enum gsv_stream_phase phase;
    struct gsv_graph *recording;
    struct gsv_tiles tiles;
    /* With GPUSERVE_STREAM_PREFETCHES, else NULL: copies of weights beside the batch. */
    cudaStream_t copies;
    cudaEvent_t reached; /* the operations queued before a prefetch have ended */
    cudaEvent_t arrived; /* the last prefetch's copy has ended */
    bool is_prefetching; /* `arrived` was recorded, and the queue does not wait for it yet */
    void *to_host;       /* the caller's buffer */
    size_t to_host_size;
    gpuserve_error failure; /* of the current batch; status 0 without a failure */
    struct gsv_graphs graphs;
};

#define GSV_LT_WORKSPACE_BYTES (static_cast<size_t>(8) << 20)

struct gsv_shape gsv_shape_of(const struct gpuserve_stream *stream,
                              const struct gpuserve_host_batch *host);
struct gsv_upload gsv_upload_of(const struct gsv_shape *shape);
/* Maximum upload bytes of a stream. */
size_t gsv_max_upload(const struct gpuserve_stream_options *options);
void gsv_pack(char *to, const struct gpuserve_host_batch *host, const struct gsv_shape *shape,
              const struct gsv_upload *parts);

/* Bracket for work outside a batch: work enqueued between the two calls is complete when the second
 * one returns; it returns the first recorded failure. */
gpuserve_status gsv_cuda_stream_begin(struct gpuserve_stream *stream, gpuserve_error *error);
gpuserve_status gsv_cuda_stream_finish(struct gpuserve_stream *stream, gpuserve_error *error);

/* Measures seconds between two points in the stream's work (stream.cu). Call the end function after
 * stream_finish; it returns 0 after a failure. */
struct gsv_timer {
    cudaEvent_t begin;
    cudaEvent_t end;
    bool stopped;
};
gpuserve_status gsv_cuda_timer_start(struct gsv_timer *timer, struct gpuserve_stream *stream);
void gsv_cuda_timer_stop(struct gsv_timer *timer, struct gpuserve_stream *stream);
double gsv_cuda_timer_end(struct gsv_timer *timer, const struct gpuserve_stream *stream);

/* Records the batch's first failure. Returns the status of `call`, or GPUSERVE_OK. */
gpuserve_status gsv_cuda_note(struct gpuserve_stream *stream, cudaError_t code, const char *call);

#endif
