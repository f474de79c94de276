/*
 * bench.h - a device with the weights and activations of one encoder, and batches on it.
 *
 * Shared by encoder.c, which measures time, and checks.c, which compares results.
 */
#ifndef GSV_BENCH_GPU_BENCH_H
#define GSV_BENCH_GPU_BENCH_H

#include <gpuserve/sys/backend.h>

#include <stdbool.h>

#define MIN_TIMES 20

struct shape {
    const char *name;
    int32_t layers, hidden, heads, inner;
};

enum { QKV, OUT, UP, DOWN, N_LINEARS };

struct bench {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    struct shape shape;
    uint32_t dtype;
    int32_t flags; /* of the stream */
    int32_t max_tokens;
    double seconds; /* for each measurement */
    int min_times;
    void *blocks[64];
    int n_blocks;
    struct gpuserve_linear *linears[N_LINEARS]; /* one copy for all layers: unlike a real model,
                                                   weights may be read from L2 */
    void *word, *position, *type, *hidden, *more, *qkv, *mixed, *inner;
    float *gamma, *beta, *pooled, *vectors;
    gpuserve_error error;
};

typedef gpuserve_status (*operation_fn)(struct bench *, const struct gpuserve_batch *);

/* Functions that can fail end the program with the reason. */
void stop(const struct bench *b, const char *what);
void load_plugin(struct bench *b, const char *path);
struct gpuserve_stream_options options_of(const struct bench *b, const struct shape *shape,
                                          uint32_t dtype, int32_t max_tokens);
void open_bench(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t max_tokens);
void close_bench(struct bench *b);

/* n_sequences texts of `length` tokens; the first text is the same for any n_sequences. */
struct gpuserve_host_batch make_batch(int32_t n_sequences, int32_t length);
void free_batch(const struct gpuserve_host_batch *batch);

/* Runs one batch with the operation `repeats` times and copies the vectors back; returns its
 * seconds. *replayed, which may be NULL, tells whether the device replayed a recording. */
double run_once(struct bench *b, uint64_t program, const struct gpuserve_host_batch *host,
                operation_fn operation, int repeats, int32_t *replayed);
/* Median of at least b->min_times batches and b->seconds of time. */
double run_many(struct bench *b, const struct gpuserve_host_batch *host, operation_fn operation,
                int repeats);

/* The whole encoder with pooling. */
gpuserve_status op_encoder(struct bench *b, const struct gpuserve_batch *batch);

/* Prints JSON lines: recordings against direct runs, memory against its formula, the cost of
 * deterministic mode. False if a check fails. */
bool run_checks(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens);

#endif
