/*
 * bench.c - set-up and timed batches of the GPU benchmarks.
 *
 * Allocates random weights and activations of one encoder on the device of a plugin, and runs
 * batches through the backend's table. Each batch is timed from batch_begin to stream_wait.
 * Single-threaded.
 */
#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_TIMES 2000

void stop(const struct bench *b, const char *what)
{
    fprintf(stderr, "%s: %s %s\n", what, b->error.message, b->error.hint);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof(*times), by_value);
    return times[n / 2];
}

/* ------------------------------------------------------------------------------------ set-up */

static float *random_floats(size_t n, float scale)
{
    static uint64_t state = 1;
    float *floats = malloc(n * sizeof(*floats));

    for (size_t i = 0; floats && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        floats[i] = scale * (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    return floats;
}

static void *put(struct bench *b, size_t n, float scale, uint32_t dtype)
{
    float *floats = random_floats(n, scale);
    void *memory = NULL;

    if (!floats || b->n_blocks == 64 ||
        b->backend->memory_alloc(b->device, &memory, n * b->backend->activation_size(dtype),
                                 &b->error) != GPUSERVE_OK ||
        b->backend->memory_write_floats(b->device, memory, floats, n, dtype, &b->error) !=
            GPUSERVE_OK)
        stop(b, "memory");
    free(floats);
    b->blocks[b->n_blocks++] = memory;
    return memory;
}

static void put_linear(struct bench *b, int which, int32_t n, int32_t k)
{
    struct gpuserve_linear_source source = {
        .struct_size = sizeof(source), .dtype = b->dtype, .n = n, .k = k
    };
    float *weight = random_floats((size_t)n * (size_t)k, 1.0f / sqrtf((float)k));
    float *bias = random_floats((size_t)n, 0.1f);
    void *memory = NULL;

    source.weight = weight;
    source.bias = bias;
    if (!weight || !bias ||
        b->backend->memory_alloc(b->device, &memory, b->backend->linear_bytes(n, k, b->dtype),
                                 &b->error) != GPUSERVE_OK ||
        b->backend->linear_create(b->device, &b->linears[which], memory, &source, &b->error) !=
            GPUSERVE_OK)
        stop(b, "weights");
    b->blocks[b->n_blocks++] = memory;
    free(weight);
    free(bias);
}

struct gpuserve_stream_options options_of(const struct bench *b, const struct shape *shape,
                                          uint32_t dtype, int32_t max_tokens)
{
    return (struct gpuserve_stream_options){
        .struct_size = sizeof(struct gpuserve_stream_options),
        .dtype = dtype,
        .max_tokens = max_tokens,
        .max_sequences = max_tokens,
        .max_seqlen = 512,
        .max_columns = shape->inner > 3 * shape->hidden ? shape->inner : 3 * shape->hidden,
        .hidden_size = shape->hidden,
        .n_heads = shape->heads,
        .flags = b->flags,
        .output_bytes = (size_t)max_tokens * (size_t)shape->hidden * sizeof(float),
    };
}

void open_bench(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t max_tokens)
{
    const size_t hidden = (size_t)shape->hidden;
    const size_t rows = (size_t)max_tokens;
    const struct gpuserve_stream_options options = options_of(b, shape, dtype, max_tokens);

    b->shape = *shape;
    b->dtype = dtype;
    b->max_tokens = max_tokens;
    b->n_blocks = 0;
    if (b->backend->stream_create(b->device, &b->stream, &options, &b->error) != GPUSERVE_OK)
        stop(b, "stream");
    b->word = put(b, 1000 * hidden, 1.0f, dtype);
    b->position = put(b, 512 * hidden, 0.5f, dtype);
    b->type = put(b, 2 * hidden, 0.5f, dtype);
    b->hidden = put(b, rows * hidden, 1.0f, dtype);
    b->more = put(b, rows * hidden, 1.0f, dtype);
    b->qkv = put(b, rows * 3 * hidden, 1.0f, dtype);
    b->mixed = put(b, rows * hidden, 1.0f, dtype);
    b->inner = put(b, rows * (size_t)shape->inner, 1.0f, dtype);
    b->gamma = put(b, hidden, 1.0f, GPUSERVE_DTYPE_FLOAT32);
    b->beta = put(b, hidden, 1.0f, GPUSERVE_DTYPE_FLOAT32);
    b->pooled = put(b, rows * hidden, 1.0f, GPUSERVE_DTYPE_FLOAT32);
    b->vectors = malloc(rows * hidden * sizeof(float));
    put_linear(b, QKV, 3 * shape->hidden, shape->hidden);
    put_linear(b, OUT, shape->hidden, shape->hidden);
    put_linear(b, UP, shape->inner, shape->hidden);
    put_linear(b, DOWN, shape->hidden, shape->inner);
}

void close_bench(struct bench *b)
{
    b->backend->stream_destroy(&b->stream);
    for (int i = 0; i < N_LINEARS; i++)
        b->backend->linear_destroy(&b->linears[i]);
    while (b->n_blocks > 0)
        b->backend->memory_free(b->device, b->blocks[--b->n_blocks]);
    free(b->vectors);
}

static void print_log(void *user, int32_t level, const char *message)
{
    (void)user;
    (void)level;
    printf("%s\n", message);
}

void load_plugin(struct bench *b, const char *path)
{
    static const struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI, print_log,
                                               NULL };
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    gpuserve_backend_entry_fn entry;

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    entry = (gpuserve_backend_entry_fn)dlsym(library, GPUSERVE_BACKEND_ENTRY);
    b->backend = entry ? entry(&host, &b->error) : NULL;
    if (!b->backend || b->backend->device_open(&b->device, 0, &b->error) != GPUSERVE_OK)
        stop(b, path);
}

/* ------------------------------------------------------------------------------------ batches */

struct gpuserve_host_batch make_batch(int32_t n_sequences, int32_t length)
{
    const int32_t n = n_sequences * length;
    int32_t *ids = calloc((size_t)n, sizeof(*ids)), *types = calloc((size_t)n, sizeof(*types));
    int32_t *positions = calloc((size_t)n, sizeof(*positions));
    int32_t *ends = calloc((size_t)n_sequences + 1, sizeof(*ends));
    const struct gpuserve_host_batch batch = { n,   n_sequences, length,    0,
                                               ids, types,       positions, ends };

    if (!ids || !types || !positions || !ends)
        exit(1);
    for (int32_t i = 0; i < n; i++) {
        ids[i] = i * 7 % 1000;
        positions[i] = i % length;
    }
    for (int32_t i = 0; i <= n_sequences; i++)
        ends[i] = i * length;
    return batch;
}

void free_batch(const struct gpuserve_host_batch *batch)
{
    free((void *)batch->ids);
    free((void *)batch->type_ids);
    free((void *)batch->positions);
    free((void *)batch->cu_seqlens);
}

double run_once(struct bench *b, uint64_t program, const struct gpuserve_host_batch *host,
                operation_fn operation, int repeats, int32_t *was_replayed)
{
    const size_t bytes = (size_t)host->n_sequences * (size_t)b->shape.hidden * sizeof(float);
    struct gpuserve_batch batch;
    int32_t replayed;
    const double begin = now();

    if (b->backend->batch_begin(b->stream, program, host, &batch, &replayed, &b->error) !=
        GPUSERVE_OK)
        stop(b, "batch_begin");
    for (int i = 0; !replayed && i < repeats; i++)
        (void)operation(b, &batch); /* batch_end returns the error */
    if (b->backend->batch_end(b->stream, b->vectors, b->pooled, bytes, &b->error) != GPUSERVE_OK ||
        b->backend->stream_wait(b->stream, &b->error) != GPUSERVE_OK)
        stop(b, "batch");
    if (was_replayed)
        *was_replayed = replayed;
    return now() - begin;
}

double run_many(struct bench *b, const struct gpuserve_host_batch *host, operation_fn operation,
                int repeats)
{
    static uint64_t program;
    static double times[MAX_TIMES];
    const double end = now() + b->seconds;
    int n = 0;

    program++;
    for (int i = 0; i < 3; i++)
        run_once(b, program, host, operation, repeats,
                 NULL); /* direct run, recording, first replay */
    while (n < MAX_TIMES && (n < b->min_times || now() < end))
        times[n++] = run_once(b, program, host, operation, repeats, NULL);
    return median(times, n);
}
