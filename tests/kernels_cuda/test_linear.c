/*
 * test_linear.c - matrix products against ref: tensor core kernels with each tile, generic ones,
 * and heads.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct linear_case {
    int32_t rows, n, k;
    int32_t activation;
    bool bias, residual, in_place;
    int32_t gap;  /* row stride minus row length */
    int32_t tile; /* tile size to test: rows and n are added to whole tiles */
};

static const struct linear_case cases[] = {
    { .rows = 0, .n = 8, .k = 8 },
    { .rows = 1, .n = 1, .k = 1, .bias = true }, /* rows not 16-byte aligned: no tensor cores */
    { .rows = 1, .n = 384, .k = 384, .bias = true },
    { .rows = 2, .n = 31, .k = 17, .bias = true, .gap = 1 },
    { .rows = 3, .n = 33, .k = 8, .activation = GPUSERVE_ACT_RELU },
    { .rows = 4, .n = 40, .k = 16, .bias = true, .activation = GPUSERVE_ACT_QUICK_GELU },
    { .rows = 5, .n = 65, .k = 136, .bias = true, .activation = GPUSERVE_ACT_TANH },
    { .rows = 15, .n = 64, .k = 24, .bias = true, .residual = true, .gap = 8 },
    { .rows = 16, .n = 63, .k = 32, .bias = true, .residual = true, .in_place = true },
    { .rows = 17,
      .n = 66,
      .k = 40,
      .bias = true,
      .activation = GPUSERVE_ACT_SILU,
      .residual = true },
    { .rows = 33, .n = 128, .k = 312, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .rows = 40, .n = 257, .k = 129, .activation = GPUSERVE_ACT_GELU_TANH },
    { .rows = 100,
      .n = 100,
      .k = 104,
      .bias = true,
      .activation = GPUSERVE_ACT_GELU,
      .residual = true,
      .gap = 16 },
    { .rows = 35, .n = 64, .k = 40, .bias = true, .residual = true }, /* dense: cuBLASLt takes it */
    /* Medium and large tiles, with a partial last tile. */
    { .tile = 64, .rows = 24, .n = 2, .k = 72, .bias = true, .residual = true, .in_place = true },
    { .tile = 128, .rows = 92, .n = 30, .k = 40, .bias = true, .activation = GPUSERVE_ACT_GELU },
    /* n in eights, for gemm_wgmma: its three tiles, k past its stages and not in whole tiles. */
    { .rows = 70, .n = 40, .k = 600, .bias = true, .residual = true, .in_place = true },
    { .tile = 64, .rows = 9, .n = 72, .k = 520, .activation = GPUSERVE_ACT_GELU, .gap = 8 },
    /* k split in 8, 4 and 2 parts over a cluster, with a partial last tile. */
    { .rows = 20, .n = 24, .k = 1608, .bias = true, .residual = true, .in_place = true },
    { .rows = 70, .n = 72, .k = 1048, .bias = true, .activation = GPUSERVE_ACT_GELU, .gap = 8 },
    { .rows = 100, .n = 136, .k = 1024, .residual = true },
    { .tile = 128,
      .rows = 140,
      .n = 152,
      .k = 328,
      .bias = true,
      .activation = GPUSERVE_ACT_GELU,
      .residual = true },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static struct linear_case sized(struct linear_case c)
{
    if (c.tile > 0) {
        c.rows += tiled_side(c.tile);
        c.n += tiled_side(c.tile);
    }
    return c;
}

struct problem {
    struct buffer in, weight, bias, residual;
    int32_t in_ld, out_ld;
};

static struct problem make_problem(const struct linear_case *c, uint32_t dtype, uint32_t seed)
{
    struct problem p = { .in_ld = c->k + c->gap, .out_ld = c->n + c->gap };

    p.in = make_input(dtype, (size_t)c->rows * (size_t)p.in_ld, seed, 1.0f);
    p.weight = make_input(dtype, (size_t)c->n * (size_t)c->k, seed + 1, 1.0f);
    p.bias = make_input(dtype, (size_t)c->n, seed + 2, 1.0f);
    p.residual = make_input(dtype, (size_t)c->rows * (size_t)p.out_ld, seed + 3, 1.0f);
    return p;
}

static void free_problem(struct problem *p)
{
    free_buffer(&p->in), free_buffer(&p->weight), free_buffer(&p->bias), free_buffer(&p->residual);
}

struct made_linear {
    struct gpuserve_linear *linear;
    void *memory;
};

static struct made_linear make_linear(const struct gpuserve_backend *backend,
                                      struct gpuserve_device *device, uint32_t dtype,
                                      const struct linear_case *c, const struct problem *p)
{
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = dtype,
                                                   .n = c->n,
                                                   .k = c->k,
                                                   .weight = p->weight.host,
                                                   .bias = c->bias ? p->bias.host : NULL };
    const size_t size = backend->linear_bytes(c->n, c->k, dtype);
    struct made_linear made;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(size % 64, 0);
    cr_assert_eq(backend->memory_alloc(device, &made.memory, size, &error), GPUSERVE_OK);
    cr_assert_eq(backend->linear_create(device, &made.linear, made.memory, &source, &error),
                 GPUSERVE_OK, "%s", error.message);
    return made;
}

static void free_linear(const struct gpuserve_backend *backend, struct gpuserve_device *device,
                        struct made_linear *made)
{
    backend->linear_destroy(&made->linear);
    backend->memory_free(device, made->memory);
}

static struct gpuserve_op_linear make_op(const struct linear_case *c, const struct problem *p,
                                         const struct gpuserve_linear *weight, const void *in,
                                         const void *residual, void *out)
{
    const struct gpuserve_op_linear op = { .weight = weight,
                                           .in = in,
                                           .out = out,
                                           .residual = c->residual ? residual : NULL,
                                           .rows = c->rows,
                                           .in_ld = p->in_ld,
                                           .out_ld = p->out_ld,
                                           .activation = c->activation };

    return op;
}

/* The device's result; starts as a copy of the residual's rows for in-place cases. */
static struct buffer run_cuda(const struct linear_case *c, const struct problem *p, uint32_t dtype,
                              uint32_t stream_dtype, int32_t flags)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream *stream = cuda_stream(stream_dtype, 16, 4, 1, flags);
    struct made_linear made = make_linear(cuda, cuda_device(), dtype, c, p);
    struct buffer out = make_output(dtype, p->residual.n);
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
    free_linear(cuda, cuda_device(), &made);
    cuda->stream_destroy(&stream);
    return out;
}

static float *run_ref(const struct linear_case *c, const struct problem *p)
{
    const struct gpuserve_backend *ref = gsv_backend_ref();
    struct gpuserve_device *device;
    struct made_linear made;
    struct gpuserve_op_linear op;
    float *want = malloc(p->residual.n * sizeof(float) + 1);

    cr_assert_eq(ref->device_open(&device, 0, NULL), GPUSERVE_OK);
    made = make_linear(ref, device, GPUSERVE_DTYPE_FLOAT32, c, p);
    op = make_op(c, p, made.linear, p->in.host, p->residual.host, want);
    cr_assert_eq(ref->linear(NULL, &op), GPUSERVE_OK);
    free_linear(ref, device, &made);
    ref->device_close(&device);
    return want;
}

static void compare_rows(const struct linear_case *c, const struct problem *p,
                         const struct buffer *got, const float *want, double tolerance,
                         const char *name, size_t number)
{
    for (int32_t r = 0; r < c->rows; r++) {
        const size_t at = (size_t)r * (size_t)p->out_ld;

        cr_assert_leq(distance(got->host + at, want + at, (size_t)c->n), tolerance,
                      "%s, case %zu, row %d", name, number, r);
        for (int32_t j = c->n; j < p->out_ld && !c->in_place; j++)
            cr_assert(isnan(got->host[at + (size_t)j]), "%s, case %zu: written between rows", name,
                      number);
    }
}

static void try_case(const struct format *format, size_t number)
{
    const struct linear_case sizes = sized(cases[number]), *c = &sizes;
    struct problem p = make_problem(c, format->dtype, 41);
    float *want = run_ref(c, &p);

    for (int32_t flags = 0; flags <= GPUSERVE_STREAM_DETERMINISTIC; flags++) {
        struct buffer got = run_cuda(c, &p, format->dtype, format->dtype, flags);

        /* A row of few outputs may be small by chance: factor 2, as a single rounding may
         * dominate. */
        compare_rows(c, &p, &got, want, 2 * format->tolerance, format->name, number);
        free_buffer(&got);
    }
    free(want);
    free_problem(&p);
}

/* A sanitizer sees the kernels of bfloat16 as those of float16. */
static bool is_twin(size_t f)
{
    return IS_SANITIZED && formats[f].dtype == GPUSERVE_DTYPE_BFLOAT16;
}

Test(kernels_cuda_linear, float32)
{
    for (size_t i = 0; i < N_CASES; i++)
        try_case(&formats[0], i);
}

Test(kernels_cuda_linear, float16)
{
    for (size_t i = 0; i < N_CASES; i++)
        try_case(&formats[1], i);
}

Test(kernels_cuda_linear, bfloat16)
{
    for (size_t i = 0; i < N_CASES; i++)
        if (!is_twin(2))
            try_case(&formats[2], i);
}

Test(kernels_cuda_linear, tf32)
{
    for (size_t i = 0; i < N_CASES; i++)
        try_case(&formats[3], i);
}

/* cuBLASLt computes most of the cases above; each test has a process and a device of its own. */
static void without_cublaslt(void)
{
    setenv("GPUSERVE_CUBLASLT", "0", 1);
}

static void without_wgmma(void)
{
    setenv("GPUSERVE_WGMMA", "0", 1);
}

Test(kernels_cuda_linear, own_kernels)
{
    without_cublaslt();
    for (size_t f = 0; f < N_FORMATS; f++)
        for (size_t i = 0; i < N_CASES && !is_twin(f); i++)
            try_case(&formats[f], i);
}

/* The mma.sync kernels of devices without wgmma; only float16 and bfloat16 differ. */
Test(kernels_cuda_linear, own_kernels_without_wgmma)
{
    without_cublaslt();
    without_wgmma();
    for (size_t f = 1; f < 3; f++)
        for (size_t i = 0; i < N_CASES && !is_twin(f); i++)
            try_case(&formats[f], i);
}

/* With positive operands truncation biases a sum by 2^-12 of its value; rounding errors cancel. */
Test(kernels_cuda_linear, tf32_rounds)
{
    static const struct linear_case c = { .rows = 16, .n = 64, .k = 512 };
    struct problem p = make_problem(&c, GPUSERVE_DTYPE_FLOAT32, 81);
    struct buffer got;
    float *want;

    without_cublaslt();
    for (size_t i = 0; i < p.in.n; i++)
        p.in.host[i] = fabsf(p.in.host[i]);
    for (size_t i = 0; i < p.weight.n; i++)
        p.weight.host[i] = fabsf(p.weight.host[i]);
    upload(&p.in);
    want = run_ref(&c, &p);
    got = run_cuda(&c, &p, GPUSERVE_DTYPE_TF32, GPUSERVE_DTYPE_TF32, 0);
    compare_rows(&c, &p, &got, want, 1e-4, "tf32", 0);
    free(want);
    free_buffer(&got);
    free_problem(&p);
}

/* Pooled rows are float32 in a stream of 16-bit activations. */
Test(kernels_cuda_linear, head_in_float32)
{
    static const struct linear_case heads[] = {
        { .rows = 1, .n = 2, .k = 384, .bias = true },
        { .rows = 5, .n = 157, .k = 384, .bias = true, .gap = 1 },
        { .rows = 3, .n = 1024, .k = 100, .activation = GPUSERVE_ACT_TANH },
        { .rows = 2, .n = 1025, .k = 100, .bias = true, .residual = true },
    };

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct problem p = make_problem(&heads[i], GPUSERVE_DTYPE_FLOAT32, 51);
        struct buffer got =
            run_cuda(&heads[i], &p, GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_FLOAT16, 0);
        float *want = run_ref(&heads[i], &p);

        compare_rows(&heads[i], &p, &got, want, 2e-6, "head", i);
        free(want);
        free_buffer(&got);
        free_problem(&p);
    }
}

/* The first rows of a product have the bits of a product of fewer rows. */
static void compare_counts(struct linear_case c, const int32_t *counts, size_t n, uint32_t dtype)
{
    struct problem p = make_problem(&c, dtype, 61);
    struct buffer all = run_cuda(&c, &p, dtype, dtype, GPUSERVE_STREAM_DETERMINISTIC);

    for (size_t i = 0; i < n; i++) {
        struct buffer some;

        c.rows = counts[i];
        some = run_cuda(&c, &p, dtype, dtype, GPUSERVE_STREAM_DETERMINISTIC);
        cr_expect_eq(memcmp(some.host, all.host, (size_t)(c.rows * c.n) * sizeof(float)), 0,
                     "dtype %u, k %d, %d rows", dtype, c.k, c.rows);
        free_buffer(&some);
    }
    free_buffer(&all);
    free_problem(&p);
}

/* A row's bits are the same alone and inside a batch, for any tile size, and where fewer rows would
 * have more parts of k. */
static void compare_batches(void)
{
    static const struct linear_case long_rows = { .rows = 100, .n = 136, .k = 1024, .bias = true };
    const int32_t few[] = { 1, 65 };

    for (size_t f = 0; f < N_FORMATS && !(IS_SANITIZED && f > 1); f++) {
        const struct linear_case c = sized((struct linear_case){
            .tile = 128, .rows = 20, .n = 8, .k = 40, .activation = GPUSERVE_ACT_GELU });
        const int32_t counts[] = { 1, 16, 17, tiled_side(64) + 8 };

        compare_counts(c, counts, sizeof(counts) / sizeof(counts[0]), formats[f].dtype);
        compare_counts(long_rows, few, 2, formats[f].dtype);
    }
}

Test(kernels_cuda_linear, deterministic_rows_do_not_depend_on_the_batch)
{
    compare_batches();
}

Test(kernels_cuda_linear, rows_of_own_kernels_do_not_depend_on_the_batch)
{
    without_cublaslt();
    compare_batches();
}

/* Data after the last row, or past k, must not be read by a product: here it is NaN. */
Test(kernels_cuda_linear, nan_stays_in_its_row)
{
    static const struct linear_case c = { .rows = 20, .n = 72, .k = 56, .bias = true, .gap = 8 };

    for (size_t f = 0; f < N_FORMATS; f++) {
        struct problem p = make_problem(&c, formats[f].dtype, 71);
        struct buffer got;

        for (size_t r = 0; r < 20; r++)
            for (size_t j = 56; j < 64; j++)
                p.in.host[r * 64 + j] = NAN; /* between the rows */
        p.in.host[7 * 64 + 3] = NAN;
        upload(&p.in);
        got = run_cuda(&c, &p, formats[f].dtype, formats[f].dtype, GPUSERVE_STREAM_DETERMINISTIC);
        for (size_t r = 0; r < 20; r++)
            for (size_t j = 0; j < 72; j++)
                cr_assert_eq(isnan(got.host[r * 80 + j]), r == 7, "%s, row %zu", formats[f].name,
                             r);
        free_buffer(&got);
        free_problem(&p);
    }
}

Test(kernels_cuda_linear, rows_of_own_kernels_without_wgmma_do_not_depend_on_the_batch)
{
    without_cublaslt();
    without_wgmma();
    compare_batches();
}
