/*
 * stream.cuh - one queue of batches, as stream.cu, batch_upload.cu, graph_cache.cu and ops.cu share
 * it.
 *
 * A batch's way:  batch_begin   shape -> staging -> one copy up; replay, record, or run
 *                 operations    put on the stream (while recording: into the graph)
 *                 batch_end     the recording is closed and launched; one copy down; an event
 *                 stream_wait   the event, then the rows go to the caller
 *
 * All memory is taken at stream_create: nothing is allocated for a batch but the graph of a shape
 * that comes a second time.
 */
#ifndef GSV_CUDA_STREAM_CUH
#define GSV_CUDA_STREAM_CUH

#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/runtime/int8.cuh"

#define GSV_MAX_GRAPHS 128
/* Batches over this many rows keep the device busy by themselves: they are not recorded, and
 * their rows are not rounded up by more than a few. */
#define GSV_GRAPH_MAX_ROWS 4096

/* What a recorded batch depends on beside the operations: sizes of launches and addresses. */
struct gsv_shape {
    int32_t n_rows;
    int32_t n_sequences;
    int32_t n_tiles;     /* of attention's work list, unused ones included */
    int32_t tile_height; /* 16, 32 or 64 query rows */
    int32_t short_texts; /* 1: none is longer than GSV_ATTENTION_KEYS */
};

/* Where each part of a batch lies as it goes up, in bytes: batch_upload.cu. */
struct gsv_upload {
    size_t ids;
    size_t type_ids;
    size_t positions;
    size_t cu_seqlens;
    size_t tiles;
    size_t size;
};

struct gsv_graph {
    uint64_t program;
    struct gsv_shape shape;
    cudaGraphExec_t exec; /* NULL: seen once, not recorded */
    uint32_t uses;
    uint64_t last_use; /* 0: the entry is free */
};

struct gsv_graphs {
    struct gsv_graph entries[GSV_MAX_GRAPHS];
    uint64_t clock;
};

/* The entry of this program and shape; a new one takes the place of the least recently used. */
struct gsv_graph *gsv_graphs_find(struct gsv_graphs *graphs, uint64_t program,
                                  const struct gsv_shape *shape);
void gsv_graphs_clear(struct gsv_graphs *graphs);

enum gsv_phase {
    GSV_PHASE_IDLE,
    GSV_PHASE_RUN,    /* operations go to the device at once */
    GSV_PHASE_RECORD, /* operations go into a graph */
    GSV_PHASE_ENDED   /* the copy down is on its way */
};

struct gpuserve_stream {
    struct gpuserve_device *device;
    enum gsv_element element;
    bool deterministic;
    bool no_graphs; /* recording failed once: do without */
    int32_t max_tokens;
    int32_t max_sequences;
    int32_t n_heads;
    size_t output_bytes;
    cudaStream_t queue;
    cudaEvent_t done;
    char *host_in;     /* pinned; a batch as it goes up */
    char *host_out;    /* pinned; its result */
    char *device_in;   /* the batch on the device */
    void *workspace;   /* cuBLASLt's */
    void *int8_memory; /* INT8, and what lies in it */
    struct gsv_int8_stage int8;
    enum gsv_phase phase;
    struct gsv_graph *recording;
    struct gsv_tiles tiles;
    void *to_host; /* the caller's */
    size_t to_host_size;
    gpuserve_error failure; /* of the batch at hand; status 0 while all went well */
    struct gsv_graphs graphs;
};

#define GSV_LT_WORKSPACE_BYTES (static_cast<size_t>(8) << 20)

struct gsv_shape gsv_shape_of(const struct gpuserve_stream *stream,
                              const struct gpuserve_host_batch *host);
struct gsv_upload gsv_upload_of(const struct gsv_shape *shape);
/* The largest of a stream. */
size_t gsv_max_upload(const struct gpuserve_stream_options *options);
void gsv_pack(char *to, const struct gpuserve_host_batch *host, const struct gsv_shape *shape,
              const struct gsv_upload *parts);

/* Work that is no batch: what is put on the queue between the two has run when the second returns,
 * or the first failure that was noted is told. */
gpuserve_status gsv_cuda_stream_begin(struct gpuserve_stream *stream, gpuserve_error *error);
gpuserve_status gsv_cuda_stream_finish(struct gpuserve_stream *stream, gpuserve_error *error);

/* Seconds between two places in the stream's work; timer.cu. The end is after stream_finish, and
 * gives 0 where something failed. */
struct gsv_timer {
    cudaEvent_t begin;
    cudaEvent_t end;
    bool stopped;
};
gpuserve_status gsv_cuda_timer_start(struct gsv_timer *timer, struct gpuserve_stream *stream);
void gsv_cuda_timer_stop(struct gsv_timer *timer, struct gpuserve_stream *stream);
double gsv_cuda_timer_end(struct gsv_timer *timer, const struct gpuserve_stream *stream);

/* Remember the batch's first failure; what `call` returned, or GPUSERVE_OK. */
gpuserve_status gsv_cuda_note(struct gpuserve_stream *stream, cudaError_t code, const char *call);

#endif
