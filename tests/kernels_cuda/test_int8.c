/*
 * test_int8.c - int8 products against ref, which defines them.
 *
 * Inputs are exact in float16, so both sides quantize the same rows. Then the integer sums are
 * equal, and only one rounding to float16 differs.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct int8_case {
    int32_t rows, n, k;
    int32_t activation;
    bool bias, scale, residual, in_place;
    int32_t gap;  /* row stride minus row length */
    int32_t tile; /* tile size to test: rows and n are added to whole tiles */
};

static const struct int8_case cases[] = {
    { .rows = 0, .n = 8, .k = 8 },
    { .rows = 1, .n = 1, .k = 1, .bias = true },
    { .rows = 1, .n = 384, .k = 384, .bias = true, .scale = true },
    { .rows = 2, .n = 31, .k = 17, .bias = true, .gap = 1 },
    { .rows = 3, .n = 33, .k = 8, .activation = GPUSERVE_ACT_RELU },
    { .rows = 4, .n = 40, .k = 16, .bias = true, .activation = GPUSERVE_ACT_QUICK_GELU },
    { .rows = 5,
      .n = 65,
      .k = 136,
      .bias = true,
      .activation = GPUSERVE_ACT_TANH,
      .residual = true },
    { .rows = 15, .n = 64, .k = 24, .bias = true, .residual = true, .gap = 8 },
    { .rows = 16, .n = 63, .k = 33, .scale = true, .residual = true, .in_place = true },
    { .rows = 17, .n = 66, .k = 40, .activation = GPUSERVE_ACT_SILU, .scale = true },
    { .rows = 33, .n = 128, .k = 312, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .rows = 40, .n = 257, .k = 129, .bias = true, .activation = GPUSERVE_ACT_GELU_TANH },
    { .rows = 100,
      .n = 100,
      .k = 104,
      .bias = true,
      .scale = true,
      .activation = GPUSERVE_ACT_GELU,
      .residual = true,
      .gap = 16 },
    /* Medium and large tiles, with a partial last tile. */
    { .tile = 64, .rows = 24, .n = 2, .k = 72, .bias = true, .residual = true, .in_place = true },
    { .tile = 128, .rows = 92, .n = 30, .k = 40, .bias = true, .activation = GPUSERVE_ACT_GELU },
    /* n in eights, for gemm_wgmma: k past its stages and not in whole tiles. */
    { .tile = 128, .rows = 92, .n = 24, .k = 600, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .tile = 128,
      .rows = 20,
      .n = 72,
      .k = 33,
      .bias = true,
      .scale = true,
      .residual = true,
      .in_place = true },
    { .tile = 128, .rows = 3, .n = 8, .k = 136, .activation = GPUSERVE_ACT_TANH, .gap = 8 },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static struct int8_case sized(struct int8_case c)
{
    if (c.tile > 0) {
        c.rows += tiled_side(c.tile);
        c.n += tiled_side(c.tile);
    }
    return c;
}

struct problem {
    struct buffer in, residual;
    float *weight, *bias, *scale;
    int32_t in_ld, out_ld;
};

static float *some_floats(size_t n, uint32_t seed)
{
    struct buffer made = make_input(GPUSERVE_DTYPE_FLOAT32, n, seed, 1.0f);
    float *floats = made.host;

    made.host = NULL;
    free_buffer(&made);
    return floats;
}

static struct problem make_problem(const struct int8_case *c)
{
    struct problem p = { .in_ld = c->k + c->gap, .out_ld = c->n + c->gap };

    p.in = make_input(GPUSERVE_DTYPE_FLOAT16, (size_t)(c->rows * p.in_ld), 1, 3.0f);
    p.residual = make_input(GPUSERVE_DTYPE_FLOAT16, (size_t)(c->rows * p.out_ld), 2, 1.0f);
    p.weight = some_floats((size_t)(c->n * c->k), 3);
    p.bias = some_floats((size_t)c->n, 4);
    p.scale = some_floats((size_t)c->k, 5);
    for (int32_t i = 0; i < c->k; i++)
        p.scale[i] = 0.5f + fabsf(p.scale[i]);
    return p;
}

static void free_problem(struct problem *p)
{
    free_buffer(&p->in), free_buffer(&p->residual);
    free(p->weight), free(p->bias), free(p->scale);
}

struct made_linear {
    struct gpuserve_linear *linear;
    void *memory;
};

static struct made_linear make_linear(const struct gpuserve_backend *backend,
                                      struct gpuserve_device *device, const struct int8_case *c,
                                      const struct problem *p)
{
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = GPUSERVE_DTYPE_INT8,
                                                   .n = c->n,
                                                   .k = c->k,
                                                   .weight = p->weight,
                                                   .bias = c->bias ? p->bias : NULL,
                                                   .input_scale = c->scale ? p->scale : NULL };
    const size_t size = backend->linear_bytes(c->n, c->k, GPUSERVE_DTYPE_INT8);
    struct made_linear made;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(size % 64, 0);
    cr_assert_eq(backend->memory_alloc(device, &made.memory, size, &error), GPUSERVE_OK);
    cr_assert_eq(backend->linear_create(device, &made.linear, made.memory, &source, &error),
                 GPUSERVE_OK, "%s", error.message);
    return made;
}

static struct gpuserve_op_linear make_op(const struct int8_case *c, const struct problem *p,
                                         const struct gpuserve_linear *weight, const void *in,
                                         const void *residual, void *out)
{
    const struct gpuserve_op_linear op = { .weight = weight,
                                           .in = in,
                                           .out = out,
                                           .residual = c->residual || c->in_place ? residual : NULL,
                                           .rows = c->rows,
                                           .in_ld = p->in_ld,
                                           .out_ld = p->out_ld,
                                           .activation = c->activation };

    return op;
}

static struct gpuserve_stream *make_stream(const struct int8_case *c)
{
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = GPUSERVE_DTYPE_INT8,
        .max_tokens = c->rows > 16 ? c->rows : 16,
        .max_sequences = 4,
        .max_seqlen = 16,
        .max_columns = c->n > c->k ? c->n : c->k,
        .n_heads = 1,
        .output_bytes = 64,
    };
    struct gpuserve_stream *stream;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(cuda_backend()->stream_create(cuda_device(), &stream, &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    return stream;
}

static struct buffer run_cuda(const struct int8_case *c, const struct problem *p)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream *stream = make_stream(c);
    struct made_linear made = make_linear(cuda, cuda_device(), c, p);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT16, p->residual.n);
    struct gpuserve_op_linear op;

    if (c->in_place) {
        memcpy(out.host, p->residual.host, out.n * sizeof(float));
        upload(&out);
    }
    op = make_op(c, p, made.linear, p->in.device, c->in_place ? out.device : p->residual.device,
                 out.device);
    begin_any(stream);
    cr_assert_eq(cuda->linear(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    cuda->linear_destroy(&made.linear);
    cuda->memory_free(cuda_device(), made.memory);
    cuda->stream_destroy(&stream);
    return out;
}

static float *run_ref(const struct int8_case *c, const struct problem *p)
{
    const struct gpuserve_backend *ref = gsv_backend_ref();
    struct gpuserve_device *device;
    struct made_linear made;
    struct gpuserve_op_linear op;
    float *want = malloc(p->residual.n * sizeof(float) + 1);

    cr_assert_eq(ref->device_open(&device, 0, NULL), GPUSERVE_OK);
    made = make_linear(ref, device, c, p);
    op = make_op(c, p, made.linear, p->in.host, p->residual.host, want);
    cr_assert_eq(ref->linear(NULL, &op), GPUSERVE_OK);
    ref->linear_destroy(&made.linear);
    ref->memory_free(device, made.memory);
    ref->device_close(&device);
    return want;
}

static void compare_with_ref(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        const struct int8_case sizes = sized(cases[i]), *c = &sizes;
        struct problem p = make_problem(c);
        struct buffer got = run_cuda(c, &p);
        float *want = run_ref(c, &p);

        for (int32_t r = 0; r < c->rows; r++) {
            const size_t at = (size_t)(r * p.out_ld);
            cr_assert_leq(distance(got.host + at, want + at, (size_t)c->n), 1e-3,
                          "case %zu, row %d", i, r);
            for (int32_t j = c->n; j < p.out_ld && !c->in_place; j++)
                cr_assert(isnan(got.host[at + (size_t)j]), "case %zu: written between rows", i);
        }
        free(want);
        free_buffer(&got);
        free_problem(&p);
    }
}

Test(kernels_cuda_int8, matches_ref)
{
    compare_with_ref();
}

/* The mma.sync kernel of devices without wgmma, in its large tiles, too. */
Test(kernels_cuda_int8, matches_ref_without_wgmma)
{
    setenv("GPUSERVE_WGMMA", "0", 1);
    compare_with_ref();
}

/* A NaN or infinity makes only its own row NaN; a row of equal values is exact. */
Test(kernels_cuda_int8, odd_rows)
{
    static const struct int8_case c = { .rows = 20, .n = 24, .k = 40, .bias = true, .gap = 8 };
    struct problem p = make_problem(&c);
    struct buffer got;
    float *want;

    p.in.host[3 * 48 + 7] = NAN;
    p.in.host[5 * 48 + 39] = INFINITY;
    for (size_t j = 0; j < 40; j++)
        p.in.host[7 * 48 + j] = 0.75f, p.in.host[8 * 48 + j] = 0.0f;
    upload(&p.in);
    got = run_cuda(&c, &p);
    want = run_ref(&c, &p);
    for (size_t r = 0; r < 20; r++) {
        for (size_t j = 0; j < 24; j++)
            cr_assert_eq(isnan(got.host[r * 32 + j]), r == 3 || r == 5, "row %zu", r);
        if (r != 3 && r != 5)
            cr_assert_leq(distance(got.host + r * 32, want + r * 32, 24), 1e-3, "row %zu", r);
    }
    free(want);
    free_buffer(&got);
    free_problem(&p);
}

/* A row's bits are the same alone and in a batch, whose tiles gemm_wgmma multiplies where n is in
 * eights. */
static void compare_batches(int32_t n)
{
    struct int8_case c = sized((struct int8_case){
        .tile = 128, .rows = 20, .n = n, .k = 40, .bias = true, .activation = GPUSERVE_ACT_GELU });
    const int32_t counts[] = { 1, 16, 17, tiled_side(64) + 8 };
    struct problem p = make_problem(&c);
    struct buffer all = run_cuda(&c, &p);

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct buffer some;

        c.rows = counts[i];
        some = run_cuda(&c, &p);

        cr_expect_eq(memcmp(some.host, all.host, (size_t)(c.rows * c.n) * sizeof(float)), 0,
                     "%d rows", c.rows);
        free_buffer(&some);
    }
    free_buffer(&all);
    free_problem(&p);
}

Test(kernels_cuda_int8, rows_do_not_depend_on_the_batch)
{
    compare_batches(8);
    compare_batches(6);
}

Test(kernels_cuda_int8, too_many_inputs_are_refused)
{
    static float weight[65537];
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = GPUSERVE_DTYPE_INT8,
                                                   .n = 1,
                                                   .k = 65537,
                                                   .weight = weight };
    struct gpuserve_linear *linear = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *memory;

    cr_assert_eq(cuda_backend()->memory_alloc(cuda_device(), &memory, 80000, &error), GPUSERVE_OK);
    cr_expect_eq(cuda_backend()->linear_create(cuda_device(), &linear, memory, &source, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect_null(linear);
    cr_expect(strstr(error.message, "65537"), "%s", error.message);
    cuda_backend()->memory_free(cuda_device(), memory);
}
