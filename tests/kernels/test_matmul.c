/*
 * test_matmul.c - C = alpha op(A) op(B) + beta C on every target, against float64.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <string.h>

struct size {
    int32_t m, n, k;
};

static const struct size sizes[] = {
    { 1, 1, 1 },      { 1, 33, 2 },    { 3, 1, 5 },     { 17, 31, 7 },
    { 64, 64, 64 },   { 65, 67, 63 },  { 15, 97, 1 },   { 13, 40, 1029 },
    { 170, 300, 70 }, { 29, 7, 1540 }, { 31, 65, 512 },
};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static const float factors[][2] = { { 1.0f, 0.0f }, { 0.5f, 1.0f }, { -1.25f, 0.75f } };

#define N_FACTORS (sizeof(factors) / sizeof(factors[0]))

struct problem {
    struct gpuserve_op_matmul op;
    float *a, *b, *c;
};

/* With `gaps` the row stride is larger than the row. */
static struct problem make_problem(struct size size, int turns, const float *factor, bool gaps)
{
    struct problem p = { .op = { .m = size.m,
                                 .n = size.n,
                                 .k = size.k,
                                 .transpose_a = turns & 1,
                                 .transpose_b = turns >> 1,
                                 .dtype = GPUSERVE_DTYPE_FLOAT32,
                                 .alpha = factor[0],
                                 .beta = factor[1] } };
    const int32_t a_rows = turns & 1 ? size.k : size.m, b_rows = turns >> 1 ? size.n : size.k;

    p.op.a_stride = (turns & 1 ? size.m : size.k) + (gaps ? 3 : 0);
    p.op.b_stride = (turns >> 1 ? size.k : size.n) + (gaps ? 1 : 0);
    p.op.c_stride = size.n + (gaps ? 5 : 0);
    p.a = make_floats((size_t)(a_rows * p.op.a_stride), 1);
    p.b = make_floats((size_t)(b_rows * p.op.b_stride), 2);
    p.c = make_floats((size_t)(size.m * p.op.c_stride), 3);
    p.op.a = p.a;
    p.op.b = p.b;
    return p;
}

static void free_problem(struct problem *p)
{
    free_floats(p->a);
    free_floats(p->b);
    free_floats(p->c);
}

/* The exact element, and the sum of its absolute terms. */
static double want_at(const struct problem *p, int32_t i, int32_t j, double *size)
{
    const struct gpuserve_op_matmul *op = &p->op;
    const double before = (double)op->beta * (double)p->c[i * op->c_stride + j];
    double sum = 0;

    *size = fabs(before);
    for (int32_t q = 0; q < op->k; q++) {
        const double x =
            (double)op->alpha *
            (double)op->a[op->transpose_a ? q * op->a_stride + i : i * op->a_stride + q] *
            (double)op->b[op->transpose_b ? j * op->b_stride + q : q * op->b_stride + j];

        sum += x;
        *size += fabs(x);
    }
    return sum + before;
}

/* C computed by the target. C starts as NaN if beta is 0, because it must not be read then. */
static float *run(const struct target *t, struct problem *p, uint32_t variant)
{
    const size_t count = (size_t)(p->op.m * p->op.c_stride);
    float *c = p->op.beta == 0.0f ? make_poison(count) : make_floats(count, 3);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, 1, 1, 1, 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *scratch;
    size_t size;

    p->op.variant = variant;
    cr_assert_eq(t->backend->matmul_bytes(t->device, &p->op, &size, &error), GPUSERVE_OK, "%s",
                 error.message);
    scratch = make_poison(size / sizeof(float) + 16);
    p->op.scratch = scratch;
    p->op.c = c;
    cr_assert_eq(t->backend->matmul(stream, &p->op, &error), GPUSERVE_OK, "%s", error.message);
    free_floats(scratch); /* checks the guard after it */
    t->backend->stream_destroy(&stream);
    return c;
}

static void compare(const struct target *t, const struct problem *p, const float *got, size_t at)
{
    const float *before = p->op.beta == 0.0f ? NULL : p->c;

    for (int32_t i = 0; i < p->op.m; i++) {
        for (int32_t j = 0; j < p->op.c_stride; j++) {
            const float x = got[i * p->op.c_stride + j];
            double size, want;

            if (j >= p->op.n) {
                cr_assert(before ? x == before[i * p->op.c_stride + j] : isnan(x),
                          "%s, size %zu: written between rows", t->name, at);
                continue;
            }
            want = want_at(p, i, j, &size);
            cr_assert(fabs((double)x - want) <= 1.2e-7 * (2 + sqrt((double)p->op.k)) * size + 1e-30,
                      "%s, size %zu, variant %u, turns %d %d: C[%d, %d] is %.9g, not %.9g", t->name,
                      at, p->op.variant, p->op.transpose_a, p->op.transpose_b, i, j, (double)x,
                      want);
        }
    }
}

static void check_variant(const struct target *t, uint32_t variant)
{
    for (size_t s = 0; s < N_SIZES; s++) {
        for (int turns = 0; turns < 4; turns++) {
            struct problem p =
                make_problem(sizes[s], turns, factors[(s + (size_t)turns) % N_FACTORS], s % 2 == 0);
            float *got = run(t, &p, variant);

            compare(t, &p, got, s);
            free_floats(got);
            free_problem(&p);
        }
    }
}

Test(matmul, every_target_and_variant_matches_float64)
{
    for (int i = 0; i < target_count(); i++)
        check_variant(target_at(i), GPUSERVE_MATMUL_AUTO);
    for (uint32_t variant = GPUSERVE_MATMUL_NAIVE; variant <= GPUSERVE_MATMUL_SIMD; variant++)
        check_variant(target_at(target_count() - 1), variant);
}

/* Values that bfloat16 represents exactly: only the summation order differs. */
Test(matmul, bfloat16_where_the_processor_has_it)
{
    for (int i = 1; i < target_count(); i++) {
        const struct target *t = target_at(i);

        for (size_t s = 0; s < N_SIZES && t->has_bf16; s++) {
            struct problem p = make_problem(sizes[s], (int)s % 4, factors[0], s % 2 == 0);
            float *got;

            round_to_bf16(p.a, (size_t)((s % 4 & 1 ? p.op.k : p.op.m) * p.op.a_stride));
            round_to_bf16(p.b, (size_t)((s % 4 >> 1 ? p.op.n : p.op.k) * p.op.b_stride));
            p.op.dtype = GPUSERVE_DTYPE_BFLOAT16;
            got = run(t, &p, GPUSERVE_MATMUL_AUTO);
            compare(t, &p, got, s);
            free_floats(got);
            free_problem(&p);
        }
    }
}

Test(matmul, bits_do_not_depend_on_the_threads)
{
    const struct size size = { 171, 515, 1100 };

    for (int i = 1; i < target_count(); i++) { /* target i: one thread, then more of the same set */
        const struct target *t = target_at(i);
        struct problem p;
        float *one;

        if (t->n_threads > 1)
            continue;
        p = make_problem(size, 2, factors[2], false);
        one = run(t, &p, GPUSERVE_MATMUL_SIMD);
        for (int j = i + 1; j < target_count() && target_at(j)->n_threads > 1; j++) {
            float *got = run(target_at(j), &p, GPUSERVE_MATMUL_SIMD);

            cr_expect(same_bits(got, one, (size_t)(size.m * size.n)), "%s", target_at(j)->name);
            free_floats(got);
        }
        free_floats(one);
        free_problem(&p);
    }
}

Test(matmul, what_a_device_lacks_is_named)
{
    static const struct {
        uint32_t variant, dtype;
        const char *word;
    } lacking[] = {
        { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_FLOAT32, "tensor_core" },
        { GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_FLOAT32, "cublas" },
        { GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_FLOAT16, "float16" },
        { GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_TF32, "tf32" },
        { GPUSERVE_MATMUL_NAIVE, GPUSERVE_DTYPE_BFLOAT16, "float32" },
    };

    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        const struct target *t = target_at(target_count() - 1);
        struct gpuserve_op_matmul op = { .m = 2, .n = 2, .k = 2 };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        size_t size;

        op.variant = lacking[i].variant;
        op.dtype = lacking[i].dtype;
        cr_expect_eq(t->backend->matmul_bytes(t->device, &op, &size, &error),
                     GPUSERVE_E_UNSUPPORTED);
        cr_expect(strstr(error.message, lacking[i].word), "%s", error.message);
    }
}
