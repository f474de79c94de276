/*
 * bench.h - a device with the weights and activations of one encoder, and batches through it: what
 * encoder.c, which times, and checks.c, which compares, share.
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
    int32_t flags; /* of its stream */
    int32_t max_tokens;
    double seconds; /* for each measurement */
    int min_times;
    void *blocks[64];
    int n_blocks;
    struct gpuserve_linear *linears[N_LINEARS]; /* every layer's: weights are read from L2 or not
                                                   much as in a real model, one copy in turn */
    void *word, *position, *type, *hidden, *more, *qkv, *mixed, *inner;
    float *gamma, *beta, *pooled, *vectors;
    gpuserve_error error;
};

typedef gpuserve_status (*operation_fn)(struct bench *, const struct gpuserve_batch *);

/* Those that can fail end the program with the reason. */
void stop(const struct bench *b, const char *what);
void load_plugin(struct bench *b, const char *path);
struct gpuserve_stream_options options_of(const struct bench *b, const struct shape *shape,
                                          uint32_t dtype, int32_t max_tokens);
void open_bench(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t max_tokens);
void close_bench(struct bench *b);

/* n_sequences texts of `length` tokens; the first is the same for any number of them. */
struct gpuserve_host_batch make_batch(int32_t n_sequences, int32_t length);
void free_batch(const struct gpuserve_host_batch *batch);

/* One batch with the operation `repeats` times, vectors brought back; its seconds. *replayed, which
 * may be NULL, tells whether the device replayed a recording. */
double run_once(struct bench *b, uint64_t program, const struct gpuserve_host_batch *host,
                operation_fn operation, int repeats, int32_t *replayed);
/* The median of at least b->min_times batches, and of b->seconds. */
double run_many(struct bench *b, const struct gpuserve_host_batch *host, operation_fn operation,
                int repeats);

/* The whole encoder, pooling included. */
gpuserve_status op_encoder(struct bench *b, const struct gpuserve_batch *batch);

/* JSON lines: recordings against direct runs, memory against its formula, the cost of deterministic
 * mode. False when one of them is wrong. */
bool run_checks(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens);

#endif
