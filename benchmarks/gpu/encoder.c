/*
 * encoder.c - times the CUDA backend through its table of operations.
 *
 *     encoder PLUGIN SECONDS [minilm|base|large|int8|small|latency|square|checks|small-checks]
 *
 * Measures single operations, whole encoders and the latency of one short text, at the shapes of
 * real models with random weights. An operation is put into a recorded batch `repeats` times; its
 * time is the difference to the empty batch, so launches and copies cancel out. Each figure is the
 * median of at least 20 batches. `small` reduces all sizes so that the emulator takes seconds;
 * `latency` times one text of 32 and 128 tokens alone;
 * `square` times one product of 4096 x 4096 x 4096; `checks` runs checks.c; the name of a shape
 * measures it alone. Each measurement is a JSON line; other lines are the plugin's log, which tells
 * the choices among kernels. `int8` measures the shape of BERT-base; each product quantizes its
 * rows itself.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shape shapes[] = {
    { "minilm", 6, 384, 12, 1536 },
    { "base", 12, 768, 12, 3072 },
    { "large", 24, 1024, 16, 4096 },
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
static const struct shape small_shape = { "small", 2, 64, 2, 128 };
static const struct shape square_shape = { "square", 1, 4096, 64, 4096 };

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

/* The residual is another buffer: with the output itself, values would grow with each repeat. */
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
    const struct gpuserve_op_add_norm op = { b->hidden, b->hidden, NULL,          b->gamma,
                                             b->beta,   1e-12f,    batch->n_rows, b->shape.hidden };

    return b->backend->add_norm(b->stream, &op);
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

static gpuserve_status op_layer_products(struct bench *b, const struct gpuserve_batch *batch)
{
    gpuserve_status st = op_qkv(b, batch);

    st = st ? st : op_out(b, batch);
    st = st ? st : op_up(b, batch);
    return st ? st : op_down(b, batch);
}

gpuserve_status op_encoder(struct bench *b, const struct gpuserve_batch *batch)
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

static void measure(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens)
{
    static const int32_t lengths[] = { 32, 128, 512 };

    open_bench(b, shape, dtype, tokens);
    /* Single texts first: after full load a device lowers its clock for a while. */
    for (size_t i = 0; i < 3 && lengths[i] <= tokens; i++)
        time_encoder(b, 1, lengths[i]);
    for (size_t i = 0; i < 3 && lengths[i] <= tokens; i++)
        time_encoder(b, tokens / lengths[i], lengths[i]);
    time_operations(b, tokens < 128 ? 1 : tokens / 128, tokens < 128 ? 32 : 128);
    if (tokens > 128 && dtype == GPUSERVE_DTYPE_FLOAT16) {
        time_operations(b, 1, 32);
        time_operations(b, 1, 128);
    }
    close_bench(b);
}

/* One short text. */
static void measure_latency(struct bench *b, const struct shape *shape)
{
    open_bench(b, shape, GPUSERVE_DTYPE_FLOAT16, 128);
    for (int32_t length = 32; length <= 128; length *= 4) {
        time_encoder(b, 1, length);
        time_operations(b, 1, length);
    }
    close_bench(b);
}

static void measure_square(struct bench *b, uint32_t dtype)
{
    open_bench(b, &square_shape, dtype, 4096);
    time_operation(b, "out", op_out, 32, 128, 2.0 * 4096 * 4096 * 4096, 0);
    close_bench(b);
}

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    }
    fprintf(stderr, "encoder: no shape is named %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    struct bench bench = { .seconds = argc > 2 ? atof(argv[2]) : 0.2,
                           .min_times = MIN_TIMES,
                           .error = GPUSERVE_ERROR_INIT };
    bool ok = true;
    const char *sizes = argc > 3 ? argv[3] : "";

    if (argc < 2) {
        fprintf(stderr, "usage: encoder PLUGIN SECONDS "
                        "[minilm|base|large|int8|small|latency|square|checks|small-checks]\n");
        return 2;
    }
    load_plugin(&bench, argv[1]);
    if (strcmp(sizes, "square") == 0) {
        measure_square(&bench, GPUSERVE_DTYPE_FLOAT16);
        measure_square(&bench, GPUSERVE_DTYPE_FLOAT32);
    } else if (strcmp(sizes, "latency") == 0) {
        for (size_t i = 0; i < N_SHAPES; i++)
            measure_latency(&bench, &shapes[i]);
    } else if (strcmp(sizes, "checks") == 0) {
        ok = run_checks(&bench, &shapes[0], GPUSERVE_DTYPE_FLOAT16, 16384);
        ok = run_checks(&bench, &shapes[1], GPUSERVE_DTYPE_FLOAT16, 16384) && ok;
    } else if (strcmp(sizes, "small-checks") == 0) {
        bench.min_times = 1;
        ok = run_checks(&bench, &small_shape, GPUSERVE_DTYPE_FLOAT16, 64);
    } else if (strcmp(sizes, "small") == 0) {
        bench.min_times = 1;
        measure(&bench, &small_shape, GPUSERVE_DTYPE_FLOAT16, 64);
        measure(&bench, &small_shape, GPUSERVE_DTYPE_INT8, 64);
    } else if (strcmp(sizes, "int8") == 0) {
        measure(&bench, &shapes[1], GPUSERVE_DTYPE_INT8, 16384);
    } else if (*sizes) {
        measure(&bench, find_shape(sizes), GPUSERVE_DTYPE_FLOAT16, 16384);
    } else {
        for (size_t i = 0; i < N_SHAPES; i++)
            measure(&bench, &shapes[i], GPUSERVE_DTYPE_FLOAT16, 16384);
        measure(&bench, &shapes[1], GPUSERVE_DTYPE_BFLOAT16, 16384);
        measure(&bench, &shapes[0], GPUSERVE_DTYPE_FLOAT32, 16384);
    }
    bench.backend->device_close(&bench.device);
    return ok ? 0 : 1;
}
