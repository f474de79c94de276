/*
 * encoder.c - the CUDA backend timed through its own table: single operations, whole encoders and
 * the delay of one short text, at the shapes of real models with random weights.
 *
 *     encoder PLUGIN SECONDS [small|square]      one JSON line a measurement
 *
 * An operation is put into a recorded batch `repeats` times; its time is the difference between
 * the batch with it and the empty one, so launches and copies cancel out. Every figure is the
 * median of at least 20 batches. `small` shrinks all sizes to what the emulator runs in seconds;
 * `square` times one product of 4096 x 4096 x 4096.
 */
#include <gpuserve/sys/backend.h>

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TIMES 2000
#define MIN_TIMES 20

struct shape {
    const char *name;
    int32_t layers, hidden, heads, inner;
};

static const struct shape shapes[] = {
    { "minilm", 6, 384, 12, 1536 },
    { "base", 12, 768, 12, 3072 },
    { "large", 24, 1024, 16, 4096 },
};
static const struct shape small_shape = { "small", 2, 64, 2, 128 };
static const struct shape square_shape = { "square", 1, 4096, 64, 4096 };

enum { QKV, OUT, UP, DOWN, N_LINEARS };

struct bench {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    struct shape shape;
    uint32_t dtype;
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

static void stop(const struct bench *b, const char *what)
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

static void open_bench(struct bench *b, const struct shape *shape, uint32_t dtype,
                       int32_t max_tokens)
{
    const size_t hidden = (size_t)shape->hidden;
    const size_t rows = (size_t)max_tokens;
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = dtype,
        .max_tokens = max_tokens,
        .max_sequences = max_tokens,
        .max_seqlen = 512,
        .max_columns = 3 * shape->hidden,
        .hidden_size = shape->hidden,
        .n_heads = shape->heads,
        .output_bytes = rows * hidden * sizeof(float),
    };

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

static void close_bench(struct bench *b)
{
    b->backend->stream_destroy(&b->stream);
    for (int i = 0; i < N_LINEARS; i++)
        b->backend->linear_destroy(&b->linears[i]);
    while (b->n_blocks > 0)
        b->backend->memory_free(b->device, b->blocks[--b->n_blocks]);
    free(b->vectors);
}

/* -------------------------------------------------------------------------------- operations */

static gpuserve_status op_product(struct bench *b, const struct gpuserve_batch *batch, int which,
                                  const void *in, void *out, const void *residual, int32_t act)
{
    const int32_t hidden = b->shape.hidden, inner = b->shape.inner;
    const struct gpuserve_op_linear op = { b->linears[which],
                                           in,
                                           out,
                                           residual,
                                           batch->n_rows,
                                           which == DOWN ? inner : hidden,
                                           which == QKV  ? 3 * hidden
                                           : which == UP ? inner
                                                         : hidden,
                                           act };

    return b->backend->linear(b->stream, &op);
}

static gpuserve_status op_qkv(struct bench *b, const struct gpuserve_batch *batch)
{
    return op_product(b, batch, QKV, b->hidden, b->qkv, NULL, 0);
}

/* The residual is another buffer: numbers would grow from repeat to repeat. */
static gpuserve_status op_out(struct bench *b, const struct gpuserve_batch *batch)
{
    return op_product(b, batch, OUT, b->mixed, b->hidden, b->more, 0);
}

static gpuserve_status op_up(struct bench *b, const struct gpuserve_batch *batch)
{
    return op_product(b, batch, UP, b->hidden, b->inner, NULL, GPUSERVE_ACT_GELU);
}

static gpuserve_status op_down(struct bench *b, const struct gpuserve_batch *batch)
{
    return op_product(b, batch, DOWN, b->inner, b->hidden, b->more, 0);
}

static gpuserve_status op_embed(struct bench *b, const struct gpuserve_batch *batch)
{
    const struct gpuserve_op_embed op = { batch,    b->hidden, b->word, b->position,    b->type,
                                          b->gamma, b->beta,   1e-12f,  b->shape.hidden };

    return b->backend->embed(b->stream, &op);
}

static gpuserve_status op_norm(struct bench *b, const struct gpuserve_batch *batch)
{
    const struct gpuserve_op_add_layernorm op = { b->hidden,     b->hidden,      NULL,
                                                  b->gamma,      b->beta,        1e-12f,
                                                  batch->n_rows, b->shape.hidden };

    return b->backend->add_layernorm(b->stream, &op);
}

static gpuserve_status op_attention(struct bench *b, const struct gpuserve_batch *batch)
{
    const int32_t head = b->shape.hidden / b->shape.heads;
    const struct gpuserve_op_attention op = { .batch = batch,
                                              .qkv = b->qkv,
                                              .out = b->mixed,
                                              .n_heads = b->shape.heads,
                                              .head_size = head,
                                              .scale = 1.0f / sqrtf((float)head) };

    return b->backend->attention(b->stream, &op);
}

static gpuserve_status op_pool(struct bench *b, const struct gpuserve_batch *batch)
{
    const int32_t hidden = b->shape.hidden;
    const struct gpuserve_op_pool op = { batch,  b->hidden, b->pooled, GPUSERVE_POOL_MEAN,
                                         hidden, hidden,    hidden,    1 };

    return b->backend->pool(b->stream, &op);
}

typedef gpuserve_status (*operation_fn)(struct bench *, const struct gpuserve_batch *);

static gpuserve_status op_layer_products(struct bench *b, const struct gpuserve_batch *batch)
{
    gpuserve_status st = op_qkv(b, batch);

    st = st ? st : op_out(b, batch);
    st = st ? st : op_up(b, batch);
    return st ? st : op_down(b, batch);
}

static gpuserve_status op_encoder(struct bench *b, const struct gpuserve_batch *batch)
{
    gpuserve_status st = op_embed(b, batch);

    for (int32_t i = 0; i < b->shape.layers && st == GPUSERVE_OK; i++) {
        st = op_qkv(b, batch);
        st = st ? st : op_attention(b, batch);
        st = st ? st : op_out(b, batch);
        st = st ? st : op_norm(b, batch);
        st = st ? st : op_up(b, batch);
        st = st ? st : op_down(b, batch);
        st = st ? st : op_norm(b, batch);
    }
    return st ? st : op_pool(b, batch);
}

/* -------------------------------------------------------------------------------- measurement */

static struct gpuserve_host_batch make_batch(int32_t n_sequences, int32_t length)
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

static void free_batch(const struct gpuserve_host_batch *batch)
{
    free((void *)batch->ids);
    free((void *)batch->type_ids);
    free((void *)batch->positions);
    free((void *)batch->cu_seqlens);
}

/* One batch with the operation `repeats` times; bytes of result brought back. */
static double run_once(struct bench *b, uint64_t program, const struct gpuserve_host_batch *host,
                       operation_fn operation, int repeats)
{
    const size_t bytes = (size_t)host->n_sequences * (size_t)b->shape.hidden * sizeof(float);
    struct gpuserve_batch batch;
    int32_t replayed;
    const double begin = now();

    if (b->backend->batch_begin(b->stream, program, host, &batch, &replayed, &b->error) !=
        GPUSERVE_OK)
        stop(b, "batch_begin");
    for (int i = 0; !replayed && i < repeats; i++)
        (void)operation(b, &batch); /* batch_end tells */
    if (b->backend->batch_end(b->stream, b->vectors, b->pooled, bytes, &b->error) != GPUSERVE_OK ||
        b->backend->stream_wait(b->stream, &b->error) != GPUSERVE_OK)
        stop(b, "batch");
    return now() - begin;
}

static double run_many(struct bench *b, const struct gpuserve_host_batch *host,
                       operation_fn operation, int repeats)
{
    static uint64_t program;
    static double times[MAX_TIMES];
    const double end = now() + b->seconds;
    int n = 0;

    program++;
    for (int i = 0; i < 3; i++)
        run_once(b, program, host, operation, repeats); /* run, recorded, replayed */
    while (n < MAX_TIMES && (n < b->min_times || now() < end))
        times[n++] = run_once(b, program, host, operation, repeats);
    return median(times, n);
}

static void time_operation(struct bench *b, const char *name, operation_fn operation,
                           int32_t n_sequences, int32_t length, double flop, double bytes)
{
    const int repeats = 20;
    const struct gpuserve_host_batch host = make_batch(n_sequences, length);
    const double empty = run_many(b, &host, operation, 0);
    const double us = (run_many(b, &host, operation, repeats) - empty) / repeats * 1e6;

    printf("{\"stage\": \"operation\", \"model\": \"%s\", \"name\": \"%s\", \"dtype\": %u, "
           "\"texts\": %d, "
           "\"length\": %d, \"us\": %.2f, \"tflops\": %.2f, \"gb_per_s\": %.1f}\n",
           b->shape.name, name, b->dtype, n_sequences, length, us, flop / us * 1e-6,
           bytes / us * 1e-3);
    fflush(stdout);
    free_batch(&host);
}

static void time_operations(struct bench *b, int32_t n_sequences, int32_t length)
{
    const double rows = (double)n_sequences * length, h = b->shape.hidden, f = b->shape.inner;
    const double e = (double)b->backend->activation_size(b->dtype);

    time_operation(b, "embed", op_embed, n_sequences, length, 0, rows * h * e * 2);
    time_operation(b, "layernorm", op_norm, n_sequences, length, 0, rows * h * e * 2);
    time_operation(b, "pool", op_pool, n_sequences, length, 0, rows * h * e);
    time_operation(b, "attention", op_attention, n_sequences, length, 4 * rows * length * h,
                   rows * h * e * 4);
    time_operation(b, "qkv", op_qkv, n_sequences, length, 6 * rows * h * h, 0);
    time_operation(b, "out", op_out, n_sequences, length, 2 * rows * h * h, 0);
    time_operation(b, "up_gelu", op_up, n_sequences, length, 2 * rows * h * f, 0);
    time_operation(b, "down", op_down, n_sequences, length, 2 * rows * h * f, 0);
    time_operation(b, "layer_products", op_layer_products, n_sequences, length,
                   rows * h * (8 * h + 4 * f), 0);
}

static void time_encoder(struct bench *b, int32_t n_sequences, int32_t length)
{
    const struct gpuserve_host_batch host = make_batch(n_sequences, length);
    const double seconds = run_many(b, &host, op_encoder, 1);

    printf("{\"stage\": \"encoder\", \"model\": \"%s\", \"dtype\": %u, \"texts\": %d, \"length\": "
           "%d, \"us\": "
           "%.2f, \"texts_per_s\": %.1f}\n",
           b->shape.name, b->dtype, n_sequences, length, seconds * 1e6, n_sequences / seconds);
    fflush(stdout);
    free_batch(&host);
}

static void load_plugin(struct bench *b, const char *path)
{
    static const struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI, NULL, NULL };
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

static void measure(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens)
{
    static const int32_t lengths[] = { 32, 128, 512 };

    open_bench(b, shape, dtype, tokens);
    for (size_t i = 0; i < 3; i++) {
        if (lengths[i] > tokens)
            continue;
        time_encoder(b, 1, lengths[i]);
        time_encoder(b, tokens / lengths[i], lengths[i]);
    }
    time_operations(b, tokens < 128 ? 1 : tokens / 128, tokens < 128 ? 32 : 128);
    close_bench(b);
}

static void measure_square(struct bench *b, uint32_t dtype)
{
    open_bench(b, &square_shape, dtype, 4096);
    time_operation(b, "out", op_out, 32, 128, 2.0 * 4096 * 4096 * 4096, 0);
    close_bench(b);
}

int main(int argc, char **argv)
{
    struct bench bench = { .seconds = argc > 2 ? atof(argv[2]) : 0.2,
                           .min_times = MIN_TIMES,
                           .error = GPUSERVE_ERROR_INIT };
    const char *sizes = argc > 3 ? argv[3] : "";

    if (argc < 2) {
        fprintf(stderr, "usage: encoder PLUGIN SECONDS [small|square]\n");
        return 2;
    }
    load_plugin(&bench, argv[1]);
    if (strcmp(sizes, "square") == 0) {
        measure_square(&bench, GPUSERVE_DTYPE_FLOAT16);
        measure_square(&bench, GPUSERVE_DTYPE_FLOAT32);
    } else if (strcmp(sizes, "small") == 0) {
        bench.min_times = 1;
        measure(&bench, &small_shape, GPUSERVE_DTYPE_FLOAT16, 64);
    } else {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            measure(&bench, &shapes[i], GPUSERVE_DTYPE_FLOAT16, 16384);
        measure(&bench, &shapes[1], GPUSERVE_DTYPE_BFLOAT16, 16384);
        measure(&bench, &shapes[0], GPUSERVE_DTYPE_FLOAT32, 16384);
    }
    bench.backend->device_close(&bench.device);
    return 0;
}
