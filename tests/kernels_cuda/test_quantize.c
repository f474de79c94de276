/*
 * test_quantize.c - fused quantization: a kernel that writes rows also quantizes them for the int8
 * product that reads them.
 *
 * The bits equal those of a separate quantization, for each writing kernel, tile and width. Rows
 * quantized for another product are never used. test_faults.c counts that no separate kernel runs.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUTS 24 /* columns of the reading product */

struct shape {
    int32_t rows;    /* at least; a batch may have more */
    int32_t columns; /* quantized columns */
    int32_t k;       /* inner size of the writing product; heads of an attention */
};

/* Device memory of the fused and the separate run. */
struct bench {
    const struct gpuserve_backend *cuda;
    struct gpuserve_stream *stream;
    struct gpuserve_batch batch;
    struct shape shape;
    struct gpuserve_linear *reader, *other;
    void *reader_memory, *other_memory;
    struct buffer in, gamma; /* inputs of the writing kernel */
    struct gpuserve_linear *writer;
    void *writer_memory;
};

typedef gpuserve_status (*write_fn)(const struct bench *b, void *out,
                                    const struct gpuserve_linear *reader);

static struct gpuserve_linear *make_linear(void **memory, int32_t n, int32_t k, uint32_t seed)
{
    struct buffer weight = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)(n * k), seed, 1.0f);
    struct buffer scale = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)k, seed + 1, 0.5f);
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = GPUSERVE_DTYPE_INT8,
                                                   .n = n,
                                                   .k = k,
                                                   .weight = weight.host,
                                                   .input_scale = scale.host };
    struct gpuserve_linear *linear;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (int32_t i = 0; i < k; i++)
        scale.host[i] = 1.0f + scale.host[i];
    cr_assert_eq(
        cuda_backend()->memory_alloc(
            cuda_device(), memory, cuda_backend()->linear_bytes(n, k, GPUSERVE_DTYPE_INT8), &error),
        GPUSERVE_OK);
    cr_assert_eq(cuda_backend()->linear_create(cuda_device(), &linear, *memory, &source, &error),
                 GPUSERVE_OK, "%s", error.message);
    free_buffer(&weight);
    free_buffer(&scale);
    return linear;
}

static struct bench make_bench(const struct shape *shape)
{
    const int32_t widest = shape->columns > shape->k ? shape->columns : shape->k;
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = GPUSERVE_DTYPE_INT8,
        .max_tokens = shape->rows + 16,
        .max_sequences = 4,
        .max_seqlen = shape->rows + 16,
        .max_columns = widest,
        .hidden_size = shape->columns < shape->k ? shape->columns : shape->k,
        .n_heads = 2,
        .output_bytes = 64,
    };
    struct bench b = { .cuda = cuda_backend(), .shape = *shape };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(b.cuda->stream_create(cuda_device(), &b.stream, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    b.reader = make_linear(&b.reader_memory, OUTPUTS, shape->columns, 11);
    b.other = make_linear(&b.other_memory, OUTPUTS, shape->columns, 13);
    b.writer = make_linear(&b.writer_memory, shape->columns, shape->k, 15);
    b.in =
        make_input(GPUSERVE_DTYPE_FLOAT16,
                   (size_t)(shape->rows + 16) * (size_t)(3 * shape->columns + shape->k), 17, 2.0f);
    b.gamma = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)shape->columns, 19, 1.0f);
    return b;
}

static void free_bench(struct bench *b)
{
    b->cuda->linear_destroy(&b->reader);
    b->cuda->linear_destroy(&b->other);
    b->cuda->linear_destroy(&b->writer);
    b->cuda->memory_free(cuda_device(), b->reader_memory);
    b->cuda->memory_free(cuda_device(), b->other_memory);
    b->cuda->memory_free(cuda_device(), b->writer_memory);
    free_buffer(&b->in);
    free_buffer(&b->gamma);
    b->cuda->stream_destroy(&b->stream);
}

static gpuserve_status read_rows(const struct bench *b, const struct gpuserve_linear *reader,
                                 const void *in, void *out)
{
    const struct gpuserve_op_linear op = { .weight = reader,
                                           .in = in,
                                           .out = out,
                                           .rows = b->batch.n_rows,
                                           .in_ld = b->shape.columns,
                                           .out_ld = OUTPUTS };

    return b->cuda->linear(b->stream, &op);
}

/* --- writing kernels --- */

static gpuserve_status write_norm(const struct bench *b, void *out,
                                  const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = { .out = out,
                                             .in = b->in.device,
                                             .gamma = b->gamma.device,
                                             .beta = b->gamma.device,
                                             .eps = 1e-12f,
                                             .rows = b->batch.n_rows,
                                             .cols = b->shape.columns,
                                             .reader = reader };

    return b->cuda->add_norm(b->stream, &op);
}

static gpuserve_status write_rms_norm(const struct bench *b, void *out,
                                      const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = { .out = out,
                                             .in = b->in.device,
                                             .residual = b->in.device,
                                             .gamma = b->gamma.device,
                                             .eps = 1e-6f,
                                             .rows = b->batch.n_rows,
                                             .cols = b->shape.columns,
                                             .reader = reader,
                                             .sum = b->in.device,
                                             .norm = GPUSERVE_NORM_RMS };

    return b->cuda->add_norm(b->stream, &op);
}

static gpuserve_status write_glu(const struct bench *b, void *out,
                                 const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_glu op = { .in = b->in.device,
                                        .out = out,
                                        .rows = b->batch.n_rows,
                                        .cols = b->shape.columns,
                                        .in_ld = 2 * b->shape.columns,
                                        .out_ld = b->shape.columns,
                                        .activation = GPUSERVE_ACT_GELU_TANH,
                                        .reader = reader };

    return b->cuda->glu(b->stream, &op);
}

static gpuserve_status write_embedding(const struct bench *b, void *out,
                                       const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_embed op = { .batch = &b->batch,
                                          .out = out,
                                          .word = b->in.device,
                                          .gamma = b->gamma.device,
                                          .beta = b->gamma.device,
                                          .eps = 1e-12f,
                                          .hidden = b->shape.columns,
                                          .reader = reader };

    return b->cuda->embed(b->stream, &op);
}

static gpuserve_status write_attention(const struct bench *b, void *out,
                                       const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_attention op = { .batch = &b->batch,
                                              .qkv = b->in.device,
                                              .out = out,
                                              .n_heads = b->shape.k,
                                              .head_size = b->shape.columns / b->shape.k,
                                              .scale = 0.2f,
                                              .reader = reader };

    return b->cuda->attention(b->stream, &op);
}

static gpuserve_status write_product(const struct bench *b, void *out,
                                     const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_linear op = { .weight = b->writer,
                                           .in = b->in.device,
                                           .out = out,
                                           .rows = b->batch.n_rows,
                                           .in_ld = b->shape.k,
                                           .out_ld = b->shape.columns,
                                           .activation = GPUSERVE_ACT_GELU,
                                           .reader = reader };

    return b->cuda->linear(b->stream, &op);
}

/* --- both ways --- */

static void begin_rows(struct bench *b)
{
    const int32_t rest = b->shape.rows - 1;
    const struct lengths lengths = { 3, { 1, rest / 3, rest - rest / 3 } };
    struct gpuserve_host_batch host = make_host_batch(&lengths, 8, 3);

    b->batch = begin(b->stream, &host);
    free_host_batch(&host);
}

/* Runs the writing kernel, then the product, with fused or separate quantization. */
static struct buffer run(struct bench *b, write_fn write, bool on_the_way, struct buffer *written)
{
    struct buffer got;

    begin_rows(b);
    *written =
        make_output(GPUSERVE_DTYPE_FLOAT16, (size_t)b->batch.n_rows * (size_t)b->shape.columns);
    got = make_output(GPUSERVE_DTYPE_FLOAT16, (size_t)b->batch.n_rows * OUTPUTS);
    cr_assert_eq(write(b, written->device, on_the_way ? b->reader : NULL), GPUSERVE_OK);
    cr_assert_eq(read_rows(b, b->reader, written->device, got.device), GPUSERVE_OK);
    finish(b->stream, got.device);
    download(written);
    download(&got);
    return got;
}

static void compare(write_fn write, const struct shape *shape)
{
    struct bench b = make_bench(shape);
    struct buffer rows[2], results[2];

    for (int way = 0; way < 2; way++)
        results[way] = run(&b, write, way == 1, &rows[way]);
    cr_expect_eq(memcmp(rows[0].host, rows[1].host, rows[0].n * sizeof(float)), 0,
                 "the rows of %d x %d", shape->rows, shape->columns);
    cr_expect_eq(memcmp(results[0].host, results[1].host, results[0].n * sizeof(float)), 0,
                 "the product of %d x %d", shape->rows, shape->columns);
    for (size_t i = 0; i < results[1].n; i++)
        cr_assert(isfinite(results[1].host[i]), "element %zu", i);
    for (int way = 0; way < 2; way++) {
        free_buffer(&rows[way]);
        free_buffer(&results[way]);
    }
    free_bench(&b);
}

Test(kernels_cuda_quantize, by_layernorm_and_embedding)
{
    /* Widths with their own kernels, one with padded rows, and others. */
    static const int32_t columns[] = { 17, 40, 128, 256, 312, 384, 512, 768, 1024, 1544 };

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        const struct shape shape = { .rows = 7, .columns = columns[i], .k = 8 };

        compare(write_norm, &shape);
        compare(write_embedding, &shape);
    }
}

/* The sum overwrites the input: each way has its own bench. */
static void compare_norm_with_sum(int32_t columns)
{
    const struct shape shape = { .rows = 7, .columns = columns, .k = 8 };
    struct buffer rows[2], results[2];

    for (int way = 0; way < 2; way++) {
        struct bench b = make_bench(&shape);

        results[way] = run(&b, write_rms_norm, way == 1, &rows[way]);
        free_bench(&b);
    }
    cr_expect_eq(memcmp(rows[0].host, rows[1].host, rows[0].n * sizeof(float)), 0);
    cr_expect_eq(memcmp(results[0].host, results[1].host, results[0].n * sizeof(float)), 0,
                 "the product of %d columns", columns);
    for (int way = 0; way < 2; way++) {
        free_buffer(&rows[way]);
        free_buffer(&results[way]);
    }
}

Test(kernels_cuda_quantize, by_a_norm_with_a_sum)
{
    static const int32_t columns[] = { 17, 40, 128, 640 };

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        compare_norm_with_sum(columns[i]);
}

Test(kernels_cuda_quantize, by_a_gated_linear_unit)
{
    static const int32_t columns[] = { 1, 17, 40, 128, 1000, 1152 };

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        const struct shape shape = { .rows = 7, .columns = columns[i], .k = 8 };

        compare(write_glu, &shape);
    }
}

/* Head widths with and without a fused kernel. Includes rows without a sequence. */
Test(kernels_cuda_quantize, by_attention)
{
    static const struct shape shapes[] = { { 9, 64, 2 },   { 70, 128, 2 }, { 150, 192, 3 },
                                           { 33, 256, 2 }, { 9, 48, 2 },   { 40, 512, 2 } };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        compare(write_attention, &shapes[i]);
}

/* Each tile of the product, partial last tiles, and columns that allow no wide access. */
Test(kernels_cuda_quantize, by_a_product)
{
    const int32_t medium = tiled_side(64), large = tiled_side(128);
    const struct shape shapes[] = {
        { 9, 136, 32 }, { 17, 67, 24 }, { medium + 8, medium + 2, 16 }, { large + 1, large + 8, 16 }
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        compare(write_product, &shapes[i]);
}

/* Rows quantized for one product are not used for another, nor after the source is overwritten. */
Test(kernels_cuda_quantize, only_what_was_made_for_it_is_taken)
{
    const struct shape shape = { .rows = 9, .columns = 128, .k = 2 };
    struct bench b = make_bench(&shape);

    for (int turn = 0; turn < 2; turn++) {
        const struct gpuserve_linear *reads = turn == 0 ? b.other : b.reader;
        struct buffer results[2];

        for (int way = 0; way < 2; way++) {
            struct buffer rows;

            begin_rows(&b);
            rows = make_output(GPUSERVE_DTYPE_FLOAT16, (size_t)b.batch.n_rows * 128);
            results[way] = make_output(GPUSERVE_DTYPE_FLOAT16, (size_t)b.batch.n_rows * OUTPUTS);
            if (way == 1 || turn == 0)
                cr_assert_eq(write_norm(&b, rows.device, way == 1 ? b.reader : NULL), GPUSERVE_OK);
            if (turn == 1)
                cr_assert_eq(write_attention(&b, rows.device, NULL), GPUSERVE_OK);
            cr_assert_eq(read_rows(&b, reads, rows.device, results[way].device), GPUSERVE_OK);
            finish(b.stream, results[way].device);
            download(&results[way]);
            free_buffer(&rows);
        }
        cr_expect_eq(memcmp(results[0].host, results[1].host, results[0].n * sizeof(float)), 0,
                     "turn %d", turn);
        free_buffer(&results[0]);
        free_buffer(&results[1]);
    }
    free_bench(&b);
}
