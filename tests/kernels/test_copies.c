/*
 * test_copies.c - inputs of an int8 product that take several columns, on every target.
 */
#include "tests/kernels/harness.h"

#include "kernels/cpu/runtime/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_K = 1600, MAX_N = 80, MAX_ROWS = 33 };

struct copies_case {
    int32_t rows, n, k;
    int32_t n_shared; /* inputs with several columns, spread over k */
    int32_t columns;  /* of the first; the others have fewer */
};

static const struct copies_case cases[] = {
    { 1, 33, 24, 1, 3 },   { 3, 64, 96, 1, 9 },   { 17, 40, 97, 2, 5 },    { 33, 80, 384, 3, 9 },
    { 7, 32, 768, 1, 65 }, { 5, 70, 768, 5, 13 }, { 14, 48, 1536, 2, 60 }, { 2, 8, 1600, 9, 14 },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

struct copies_problem {
    const struct copies_case *c;
    int32_t copies[MAX_K];
    float *weight, *bias, *scale, *in;
    float row_scale[MAX_N]; /* of the weights of an output */
};

/* Scales that use all of -127..127. */
static void set_whole_scales(struct copies_problem *p)
{
    const size_t k = (size_t)p->c->k;

    for (size_t i = 0; i < (size_t)p->c->n; i++) {
        float largest = 0.0f;

        for (size_t j = 0; j < k; j++)
            largest = fmaxf(largest, fabsf(p->weight[i * k + j]) / (float)p->copies[j]);
        p->row_scale[i] = largest / 127.0f;
    }
}

static struct copies_problem make_problem(const struct copies_case *c)
{
    const size_t k = (size_t)c->k, n = (size_t)c->n;
    struct copies_problem p = { .c = c };

    p.weight = make_floats(n * k, 1);
    p.bias = make_floats(n, 2);
    p.scale = make_floats(k, 3);
    p.in = make_floats((size_t)c->rows * k, 4);
    for (size_t j = 0; j < k; j++) {
        p.copies[j] = 1;
        p.scale[j] = 1.0f + 0.5f * p.scale[j];
    }
    for (int32_t s = 0; s < c->n_shared; s++) {
        const size_t j = (size_t)(s * (c->k - 1) / (c->n_shared > 1 ? c->n_shared - 1 : 1));

        p.copies[j] = c->columns - s > 2 ? c->columns - s : 2;
        for (size_t i = 0; i < n; i++)
            p.weight[i * k + j] *= (float)p.copies[j];
    }
    set_whole_scales(&p);
    return p;
}

static void free_problem(struct copies_problem *p)
{
    free_floats(p->weight);
    free_floats(p->bias);
    free_floats(p->scale);
    free_floats(p->in);
}

static struct gpuserve_linear_source source_of(const struct copies_problem *p)
{
    return (struct gpuserve_linear_source){
        .struct_size = sizeof(struct gpuserve_linear_source),
        .dtype = GPUSERVE_DTYPE_INT8,
        .n = p->c->n,
        .k = p->c->k,
        .weight = p->weight,
        .bias = p->bias,
        .input_scale = p->scale,
        .scale = p->row_scale,
        .copies = p->copies,
    };
}

/* Where products are added in 16 bits none is allowed. */
static bool has_copies(const struct target *t)
{
    return !t->device->isa->adds_sums;
}

static struct test_linear open_copies(const struct target *t, const struct copies_problem *p)
{
    const struct gpuserve_linear_source source = source_of(p);
    const size_t bytes = t->backend->linear_bytes(source.n, source.k, GPUSERVE_DTYPE_INT8);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct test_linear made;

    cr_assert_eq(t->backend->memory_alloc(t->device, &made.memory, bytes + 64, &error),
                 GPUSERVE_OK);
    memset(made.memory, 0xFF, bytes + 64);
    cr_assert_eq(t->backend->linear_create(t->device, &made.linear, made.memory, &source, &error),
                 GPUSERVE_OK, "%s: %s", t->name, error.message);
    for (size_t i = 0; i < 64; i++)
        cr_assert_eq(((uint8_t *)made.memory)[bytes + i], 0xFF, "%s: past linear_bytes", t->name);
    return made;
}

/* Rows [row, row + rows) of the product; free with free_floats(). */
static float *run_rows(const struct target *t, const struct copies_problem *p,
                       const struct gpuserve_linear *linear, int32_t row, int32_t rows)
{
    const struct copies_case *c = p->c;
    float *out = make_poison((size_t)rows * (size_t)c->n);
    struct gpuserve_stream *stream =
        open_stream(t, GPUSERVE_DTYPE_INT8, rows, c->n > c->k ? c->n : c->k, 1, 32);
    const struct gpuserve_op_linear op = {
        .weight = linear,
        .in = p->in + (size_t)row * (size_t)c->k,
        .out = out,
        .rows = rows,
        .in_ld = c->k,
        .out_ld = c->n,
    };

    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

/* One row: its integers, in steps of 1 / copies, its minimum and its step. */
struct row_integers {
    double q[MAX_K];
    float min, step;
};

static void quantize_row(const struct copies_problem *p, const float *x, struct row_integers *row)
{
    float min = INFINITY, max = -INFINITY;

    for (int32_t j = 0; j < p->c->k; j++) {
        min = fminf(min, x[j] * p->scale[j]);
        max = fmaxf(max, x[j] * p->scale[j]);
    }
    row->min = min;
    row->step = (max - min) / 255.0f;
    for (int32_t j = 0; j < p->c->k; j++) {
        const float copies = (float)p->copies[j];

        row->q[j] = rint((double)((x[j] * p->scale[j] - min) * (255.0f / (max - min)) * copies));
    }
}

/* The product of the integers by the definition in backend.h, and by how much the division among
 * columns may change it: 1 for each input with several. */
static double expected_at(const struct copies_problem *p, const struct row_integers *row, int32_t i,
                          double *unit)
{
    const float *w = p->weight + (size_t)i * (size_t)p->c->k;
    const float inverse = 1.0f / p->row_scale[i];
    double sum = 0.0, weights = 0.0;

    for (int32_t j = 0; j < p->c->k; j++) {
        const double limit = 127.0 * p->copies[j];
        const double q = fmin(fmax(rint((double)(w[j] * inverse)), -limit), limit);

        sum += row->q[j] * q / p->copies[j];
        weights += q;
    }
    *unit = (double)row->step * (double)p->row_scale[i];
    return ((double)row->step * sum + (double)row->min * weights) * (double)p->row_scale[i] +
           (double)p->bias[i];
}

static void compare(const struct target *t, const struct copies_problem *p)
{
    const struct copies_case *c = p->c;
    struct test_linear linear = open_copies(t, p);
    float *out = run_rows(t, p, linear.linear, 0, c->rows);
    static struct row_integers row;

    for (int32_t r = 0; r < c->rows; r++) {
        float *alone = run_rows(t, p, linear.linear, r, 1);

        cr_expect(same_bits(alone, out + (size_t)r * (size_t)c->n, (size_t)c->n),
                  "%s, k %d: row %d has other bits alone", t->name, (int)c->k, (int)r);
        free_floats(alone);
        quantize_row(p, p->in + (size_t)r * (size_t)c->k, &row);
        for (int32_t i = 0; i < c->n; i++) {
            double unit;
            const double want = expected_at(p, &row, i, &unit);
            const double got = (double)out[(size_t)r * (size_t)c->n + (size_t)i];

            cr_assert_leq(fabs(got - want), c->n_shared * unit + 2e-5 * (1.0 + fabs(want)),
                          "%s, k %d, row %d, output %d: %.9g, expected %.9g", t->name, (int)c->k,
                          (int)r, (int)i, got, want);
        }
    }
    free_floats(out);
    close_linear(t, &linear);
}

Test(copies, products_are_those_of_the_whole_integers)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct copies_problem p = make_problem(&cases[i]);

        for (int b = 1; b < target_count(); b++)
            if (has_copies(target_at(b)))
                compare(target_at(b), &p);
        free_problem(&p);
    }
}

/* The error of a product one of whose inputs is far larger than the others. */
static double outlier_error(const struct target *t, int32_t columns)
{
    const struct copies_case c = { 8, 32, 384, 1, columns };
    struct copies_problem p = make_problem(&c);
    struct test_linear linear;
    double error = 0.0;
    float *out;

    for (int32_t r = 0; r < c.rows; r++) { /* as if balanced: 40 divided by the columns */
        p.in[r * c.k] = 40.0f / (float)columns * (r % 2 ? 1.0f : -1.0f);
        p.scale[0] = 1.0f;
    }
    linear = open_copies(t, &p);
    out = run_rows(t, &p, linear.linear, 0, c.rows);
    for (int32_t r = 0; r < c.rows; r++)
        for (int32_t i = 0; i < c.n; i++) {
            double want = (double)p.bias[i];

            for (int32_t j = 0; j < c.k; j++)
                want +=
                    (double)p.in[r * c.k + j] * (double)p.scale[j] * (double)p.weight[i * c.k + j];
            error += fabs((double)out[r * c.n + i] - want);
        }
    free_floats(out);
    close_linear(t, &linear);
    free_problem(&p);
    return error;
}

Test(copies, columns_lower_the_error_of_an_outlier)
{
    for (int b = 1; b < target_count(); b++) {
        if (!has_copies(target_at(b)))
            continue;
        const double few = outlier_error(target_at(b), 2), many = outlier_error(target_at(b), 32);

        cr_expect_lt(many, few / 4, "%s: %g with 32 columns, %g with 2", target_at(b)->name, many,
                     few);
    }
}

Test(copies, number_is_limited)
{
    struct copies_problem p = make_problem(&cases[3]);
    const struct gpuserve_linear_source source = source_of(&p);

    for (int b = 1; b < target_count(); b++) {
        const struct target *t = target_at(b);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gpuserve_linear *linear;
        int32_t step = 0;

        for (int32_t k = 1; k < 70000; k += 1 + k / 7) {
            const int32_t max_copies = t->backend->int8_copies(t->device, k, &step);

            cr_assert_gt(step, 0);
            cr_expect(max_copies >= 0 && max_copies % step == 0 &&
                          k + max_copies <= (k > 65536 ? k : 65536),
                      "%s: %d for %d", t->name, (int)max_copies, (int)k);
        }
        p.copies[1] = 40;
        cr_expect_eq(t->backend->linear_create(t->device, &linear, NULL, &source, &error),
                     GPUSERVE_E_INVALID, "%s", t->name);
        cr_expect(strstr(error.message, has_copies(t) ? "limit is 32 more" : "limit is 0 more"),
                  "%s", error.message);
    }
    free_problem(&p);
}

/* A file of packed weights names them. */
Test(copies, survive_packing)
{
    const struct gsv_packing *packing = gsv_cpu_packing();
    struct copies_problem p = make_problem(&cases[5]);

    for (int b = 1; b < target_count(); b++) {
        const struct target *t = target_at(b);
        if (!has_copies(t))
            continue;
        struct test_linear linear = open_copies(t, &p);
        float *want = run_rows(t, &p, linear.linear, 0, 5), *got;
        struct gsv_packed_linear packed;
        struct gsv_shared_input *shared;
        struct gpuserve_linear *restored;

        packing->describe(linear.linear, &packed);
        cr_assert_eq(packing->restore(t->device, &restored, &packed, NULL), GPUSERVE_OK);
        got = run_rows(t, &p, restored, 0, 5);
        cr_expect(same_bits(got, want, 5 * (size_t)p.c->n), "%s", t->name);
        free_floats(got);
        free_floats(want);
        shared = (struct gsv_shared_input *)(uintptr_t)restored->shared;
        t->backend->linear_destroy(&restored);
        shared[1].columns = 1 << 30;
        cr_expect_eq(packing->restore(t->device, &restored, &packed, NULL), GPUSERVE_E_INVALID);
        cr_expect_null(restored);
        shared[1].columns = 2;
        shared[1].input = p.c->k;
        cr_expect_eq(packing->restore(t->device, &restored, &packed, NULL), GPUSERVE_E_INVALID);
        packed.flags = 65u << 4;
        cr_expect_eq(packing->restore(t->device, &restored, &packed, NULL), GPUSERVE_E_INVALID);
        close_linear(t, &linear);
    }
    free_problem(&p);
}
