/*
 * test_linear.c - the matrix product: every target against ref, in float32 and int8.
 */
#include "kernels/cpu/runtime/cpu.h"
#include "kernels/s16_range.h"
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct linear_case {
    int32_t rows, n, k;
    int32_t activation;
    bool bias, residual, in_place, wide; /* wide: row stride larger than the row */
};

static const struct linear_case cases[] = {
    { .rows = 0, .n = 8, .k = 8 },
    { .rows = 1, .n = 1, .k = 1, .bias = true },
    { .rows = 1, .n = 384, .k = 384, .bias = true },
    { .rows = 2, .n = 31, .k = 17, .bias = true, .wide = true },
    { .rows = 3, .n = 33, .k = 5, .activation = GPUSERVE_ACT_RELU },
    { .rows = 5, .n = 65, .k = 130, .bias = true, .activation = GPUSERVE_ACT_TANH },
    { .rows = 7, .n = 128, .k = 128, .bias = true, .residual = true, .wide = true },
    { .rows = 13, .n = 100, .k = 300, .bias = true, .activation = GPUSERVE_ACT_SILU },
    { .rows = 14, .n = 32, .k = 64, .bias = true, .residual = true, .in_place = true },
    { .rows = 15, .n = 96, .k = 100, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .rows = 9, .n = 77, .k = 90, .bias = true, .activation = GPUSERVE_ACT_QUICK_GELU },
    { .rows = 29, .n = 257, .k = 129, .activation = GPUSERVE_ACT_GELU_TANH, .wide = true },
#ifdef RUNS_UNDER_QEMU
    { .rows = 40, .n = 192, .k = 96, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .rows = 16, .n = 96, .k = 768, .bias = true, .residual = true, .in_place = true },
    { .rows = 173, .n = 35, .k = 255, .bias = true, .residual = true },
#else
    { .rows = 40, .n = 1536, .k = 384, .bias = true, .activation = GPUSERVE_ACT_GELU },
    { .rows = 40, .n = 384, .k = 1536, .bias = true, .residual = true, .in_place = true },
    { .rows = 173, .n = 70, .k = 1023, .bias = true, .residual = true },
#endif
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

struct problem {
    float *weight, *bias, *scale, *in, *residual;
    int32_t in_ld, out_ld;
};

static struct problem make_problem(const struct linear_case *c)
{
    struct problem p = { .in_ld = c->k + (c->wide ? 3 : 0), .out_ld = c->n + (c->wide ? 5 : 0) };

    p.weight = make_floats((size_t)c->n * (size_t)c->k, 1);
    p.bias = make_floats((size_t)c->n, 2);
    p.scale = make_floats((size_t)c->k, 3);
    for (int32_t i = 0; i < c->k; i++)
        p.scale[i] = 0.5f + fabsf(p.scale[i]);
    p.in = make_floats((size_t)c->rows * (size_t)p.in_ld, 4);
    p.residual = make_floats((size_t)c->rows * (size_t)p.out_ld, 5);
    return p;
}

/* The same with values that bfloat16 represents exactly: only the summation order differs. */
static struct problem make_bf16_problem(const struct linear_case *c)
{
    struct problem p = make_problem(c);

    round_to_bf16(p.weight, (size_t)c->n * (size_t)c->k);
    round_to_bf16(p.in, (size_t)c->rows * (size_t)p.in_ld);
    return p;
}

static void free_problem(struct problem *p)
{
    free_floats(p->weight);
    free_floats(p->bias);
    free_floats(p->scale);
    free_floats(p->in);
    free_floats(p->residual);
}

/* Scales of the int8 weights that a target chooses; free with free_floats(). */
static float *scales_of(const struct target *t, const struct linear_case *c,
                        const struct problem *p)
{
    float *scales = make_poison((size_t)c->n);
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source),
        .dtype = GPUSERVE_DTYPE_INT8,
        .n = c->n,
        .k = c->k,
        .weight = p->weight,
    };

    t->backend->int8_scales(t->device, &source, scales);
    return scales;
}

/* The result, [rows, out_ld]; memory between rows must stay unchanged. */
static float *run_scaled(const struct target *t, uint32_t dtype, const struct linear_case *c,
                         const struct problem *p, const float *scales)
{
    const size_t count = (size_t)c->rows * (size_t)p->out_ld;
    float *out = c->in_place ? make_floats(count, 5) : make_poison(count);
    struct gpuserve_stream *stream =
        open_stream(t, dtype, c->rows + 1, c->n > c->k ? c->n : c->k, 1, 32);
    struct test_linear linear =
        open_scaled_linear(t, dtype, c->n, c->k, p->weight, c->bias ? p->bias : NULL,
                           c->wide && dtype == GPUSERVE_DTYPE_INT8 ? p->scale : NULL, scales);
    const struct gpuserve_op_linear op = {
        .weight = linear.linear,
        .in = p->in,
        .out = out,
        .residual = c->in_place   ? out
                    : c->residual ? p->residual
                                  : NULL,
        .rows = c->rows,
        .in_ld = p->in_ld,
        .out_ld = p->out_ld,
        .activation = c->activation,
    };

    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    close_linear(t, &linear);
    return out;
}

static float *run(const struct target *t, uint32_t dtype, const struct linear_case *c,
                  const struct problem *p)
{
    return run_scaled(t, dtype, c, p, NULL);
}

/* Tolerance for sums of k products of values up to 1 (1.5 after scaling): a partial sum is about
 * sqrt(k) / 3, and k roundings of half a unit accumulate as sqrt(k): 2e-8 * k, doubled for the max
 * of thousands. Sums of int8 are exact; its few float32 steps are far below. GELU of int8 and
 * bfloat16 is within 1.3e-5. */
static float tolerance(const struct linear_case *c, uint32_t dtype)
{
    const bool rough = (dtype == GPUSERVE_DTYPE_INT8 || dtype == GPUSERVE_DTYPE_BFLOAT16) &&
                       c->activation == GPUSERVE_ACT_GELU;

    return 1e-6f + 4e-8f * (float)c->k + (rough ? 1.3e-5f : 0.0f);
}

static void compare(const struct linear_case *c, uint32_t dtype, const struct problem *p,
                    const struct target *t, const float *scales)
{
    float *want = run_scaled(target_at(0), dtype, c, p, scales);
    float *got = run_scaled(t, dtype, c, p, scales);

    cr_expect(all_close(got, want, (size_t)c->rows * (size_t)p->out_ld, tolerance(c, dtype), 2e-6f),
              "%s, %d x %d x %d: %s", t->name, (int)c->rows, (int)c->n, (int)c->k, difference());
    free_floats(want);
    free_floats(got);
}

static void compare_all(uint32_t dtype)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct problem p = make_problem(&cases[i]);

        for (int b = 1; b < target_count(); b++) {
            float *scales =
                dtype == GPUSERVE_DTYPE_INT8 ? scales_of(target_at(b), &cases[i], &p) : NULL;

            compare(&cases[i], dtype, &p, target_at(b), scales);
            if (scales)
                free_floats(scales);
        }
        free_problem(&p);
    }
}

/* With exact weights and inputs, products in bfloat16 are those of float32 except for the order. */
Test(linear, bfloat16_matches_ref)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct linear_case c = cases[i];
        struct problem p;
        float *want;

        c.in_place = c.residual = false; /* only in float32 */
        p = make_bf16_problem(&c);
        want = run(target_at(0), GPUSERVE_DTYPE_FLOAT32, &c, &p);
        for (int b = 1; b < target_count(); b++) {
            float *got;

            got = run(target_at(b), GPUSERVE_DTYPE_BFLOAT16, &c, &p);
            cr_expect(all_close(got, want, (size_t)c.rows * (size_t)p.out_ld,
                                tolerance(&c, GPUSERVE_DTYPE_BFLOAT16), 2e-6f),
                      "%s, case %zu: %s", target_at(b)->name, i, difference());
            free_floats(got);
        }
        free_floats(want);
        free_problem(&p);
    }
}

static bool widens(const struct target *t, uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_FLOAT16 || !t->has_bf16;
}

/* Weights in 16 bits have the bits of a float32 product with the rounded weights. */
static void expect_widened(uint32_t dtype, const struct linear_case *c)
{
    struct problem p = make_problem(c), exact = make_problem(c);
    const size_t count = (size_t)c->n * (size_t)c->k;

    for (size_t i = 0; i < count; i++)
        p.weight[i] *= i % 5 == 0 ? 1e-6f : 1.0f; /* subnormal in float16 */
    memcpy(exact.weight, p.weight, count * sizeof(float));
    round_to_16_bits(exact.weight, count, dtype);
    for (int b = 1; b < target_count(); b++) {
        const struct target *t = target_at(b);
        float *got, *want;

        if (!widens(t, dtype))
            continue;
        got = run(t, dtype, c, &p);
        want = run(t, GPUSERVE_DTYPE_FLOAT32, c, &exact);
        cr_expect(all_close(got, want, (size_t)c->rows * (size_t)p.out_ld, 0.0f, 0.0f),
                  "%s, dtype %u, %d x %d: %s", t->name, (unsigned)dtype, (int)c->n, (int)c->k,
                  difference());
        free_floats(got);
        free_floats(want);
    }
    free_problem(&p);
    free_problem(&exact);
}

Test(linear, weights_in_16_bits_multiply_in_float32)
{
    for (size_t i = 0; i < N_CASES; i++) {
        expect_widened(GPUSERVE_DTYPE_FLOAT16, &cases[i]);
        expect_widened(GPUSERVE_DTYPE_BFLOAT16, &cases[i]);
    }
}

Test(linear, weights_in_16_bits_take_half_the_memory)
{
    const size_t whole = gsv_backend_cpu()->linear_bytes(1536, 384, GPUSERVE_DTYPE_FLOAT32);

    for (uint32_t dtype = GPUSERVE_DTYPE_FLOAT16; dtype <= GPUSERVE_DTYPE_BFLOAT16; dtype++)
        cr_expect_eq(gsv_backend_cpu()->linear_bytes(1536, 384, dtype),
                     whole - (size_t)1536 * 384 * 2);
}

/* 1e5 exceeds float16: the error says which weight, and the limit. */
Test(linear, a_weight_above_float16_is_refused)
{
    float weight[12] = { 0 };
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = GPUSERVE_DTYPE_FLOAT16,
                                                   .n = 3,
                                                   .k = 4,
                                                   .weight = weight };
    const struct target *t = target_at(1);
    const float bad[] = { 1e5f, -65505.0f, INFINITY, NAN };

    for (size_t i = 0; i < 4; i++) {
        struct gpuserve_linear *linear;
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        weight[6] = bad[i];
        cr_expect_eq(t->backend->linear_create(t->device, &linear, NULL, &source, &error),
                     GPUSERVE_E_UNSUPPORTED);
        cr_expect_not_null(strstr(error.message, "output 1 and input 2"), "%s", error.message);
        cr_expect_not_null(strstr(error.message, "65504"), "%s", error.message);
    }
}

Test(linear, float32_matches_ref_on_every_target)
{
    compare_all(GPUSERVE_DTYPE_FLOAT32);
}

Test(linear, int8_matches_ref_on_every_target)
{
    compare_all(GPUSERVE_DTYPE_INT8);
}

Test(linear, int16_matches_ref_where_the_processor_has_it)
{
    int refused = 0;

    for (size_t i = 0; i < N_CASES; i++) {
        struct problem p = make_problem(&cases[i]);

        for (int b = 1; b < target_count(); b++)
            if (target_at(b)->has_s16)
                compare(&cases[i], GPUSERVE_DTYPE_INT16, &p, target_at(b), NULL);
        free_problem(&p);
    }
    for (int b = 1; b < target_count(); b++) {
        const float weight = 1.0f;
        const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                       .dtype = GPUSERVE_DTYPE_INT16,
                                                       .n = 1,
                                                       .k = 1,
                                                       .weight = &weight };
        struct gpuserve_linear *linear;

        if (target_at(b)->has_s16)
            continue;
        cr_expect_eq(target_at(b)->backend->linear_create(target_at(b)->device, &linear, NULL,
                                                          &source, NULL),
                     GPUSERVE_E_UNSUPPORTED, "%s", target_at(b)->name);
        refused++;
    }
    cr_expect_gt(refused, 0);
}

/* The first target of the next instruction set: scales and integers do not depend on threads. */
static int next_isa(int b)
{
    const struct gsv_cpu_isa *const isa = target_at(b)->device->isa;

    while (b < target_count() && target_at(b)->device->isa == isa)
        b++;
    return b;
}

/* Scales of ref use all of -127..127: more than quads of products in 16 bits hold. */
Test(linear, int8_matches_ref_with_the_scales_of_ref)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct problem p = make_problem(&cases[i]);
        float *scales = scales_of(target_at(0), &cases[i], &p);

        for (int b = 1; b < target_count(); b = next_isa(b))
            compare(&cases[i], GPUSERVE_DTYPE_INT8, &p, target_at(b), scales);
        free_floats(scales);
        free_problem(&p);
    }
}

/* Weights that are all equal, or of one sign in one quad and of the other in the next, and inputs
 * at the ends of the range: the largest sums that the scales allow, in every height and tail. */
Test(linear, int8_sums_do_not_overflow)
{
    for (int32_t k = 1; k <= 33; k++) {
        const struct linear_case c = { .rows = 15, .n = 35, .k = k };
        struct problem p = make_problem(&c);

        for (int32_t i = 0; i < c.n * k; i++)
            p.weight[i] = i / k % 3 == 0             ? 1.0f
                          : i / k % 3 == 1           ? -1.0f
                          : (i % k) / 2 % 2 == i % 2 ? 1.0f
                                                     : -0.99f;
        for (int32_t i = 0; i < c.rows * k; i++)
            p.in[i] = i / k % 4 == 3 && i % k == 0 ? -1.0f : i % k == k / 2 ? 0.0f : 1.0f;
        for (int b = 1; b < target_count(); b = next_isa(b)) {
            float *scales = scales_of(target_at(b), &c, &p);

            compare(&c, GPUSERVE_DTYPE_INT8, &p, target_at(b), scales);
            free_floats(scales);
        }
        free_problem(&p);
    }
}

/* All weights at the end of their range, of one sign or both, and rows at the end of theirs. The
 * last case has small weights: rows have the most levels. */
Test(linear, int16_sums_do_not_overflow)
{
    static const int32_t depths[] = { 1, 2, 3, 7, 8, 33, 384, 1536, 4099 };

    for (size_t d = 0; d < 2 * sizeof(depths) / sizeof(depths[0]); d++) {
        const struct linear_case c = { .rows = 13, .n = 35, .k = depths[d / 2] };
        struct problem p = make_problem(&c);

        for (int32_t i = 0; i < c.n * c.k; i++)
            p.weight[i] = d % 2 && i % c.k ? 0.0f : i / c.k % 3 == 0 ? -1.0f : 1.0f;
        for (int32_t i = 0; i < c.rows * c.k; i++)
            p.in[i] = i / c.k % 4 == 3 && i % 2 ? -1.0f : i / c.k % 4 == 2 ? -1.0f : 1.0f;
        for (int b = 1; b < target_count(); b = next_isa(b))
            if (target_at(b)->has_s16)
                compare(&c, GPUSERVE_DTYPE_INT16, &p, target_at(b), NULL);
        free_problem(&p);
    }
}

/* The levels keep each sum below 2^31 for any k, with weights that are all equal, and are at least
 * those of int8. */
Test(linear, int16_levels_fit_32_bits)
{
    for (int32_t k = 1; k <= 65536; k++) {
        const int64_t weight = gsv_s16_weight_levels(k);
        const int64_t rows = gsv_s16_row_levels((int32_t)(k * weight));

        cr_assert_leq(k * weight, INT32_MAX, "%d", k);
        cr_assert_leq(k * weight * rows, INT32_MAX, "%d", k);
        cr_assert(weight <= INT16_MAX && rows <= INT16_MAX && rows >= 89, "%d", k);
    }
    cr_expect_eq(gsv_s16_weight_levels(1536), 2364);
    cr_expect_eq(gsv_s16_row_levels(0), GSV_S16_MAX_LEVELS);
}

/* Relative error of the sums: that of bfloat16 is about 1.6e-3, that of int8 about 1e-2. */
Test(linear, int16_is_nearer_than_bfloat16)
{
    const struct linear_case c = { .rows = 9, .n = 384, .k = 1536 };
    const size_t count = (size_t)c.rows * (size_t)c.n;
    struct problem p = make_problem(&c);
    float *exact = run(target_at(0), GPUSERVE_DTYPE_FLOAT32, &c, &p);

    for (int b = 0; b < target_count(); b++) {
        double wrong = 0.0, all = 0.0;
        float *got;

        if (b > 0 && !target_at(b)->has_s16)
            continue;
        got = run(target_at(b), GPUSERVE_DTYPE_INT16, &c, &p);
        for (size_t i = 0; i < count; i++) {
            wrong += pow((double)got[i] - (double)exact[i], 2);
            all += pow((double)exact[i], 2);
        }
        cr_expect_lt(sqrt(wrong / all), 1e-3, "%s: %.2e", target_at(b)->name, sqrt(wrong / all));
        free_floats(got);
    }
    free_floats(exact);
    free_problem(&p);
}

/* Rows of zeros, tiny and huge values, a NaN and an infinity. */
Test(linear, int16_survives_odd_rows)
{
    const struct linear_case c = { .rows = 6, .n = 40, .k = 48, .bias = true };
    struct problem p = make_problem(&c);

    memset(p.in, 0, 48 * sizeof(float));
    for (int i = 0; i < 48; i++) {
        p.in[48 + i] *= 1e-38f;
        p.in[96 + i] *= 1e30f;
        p.weight[48 + i] = 0.0f;
    }
    p.in[4 * 48 + 47] = NAN;
    p.in[5 * 48 + 3] = -INFINITY;
    for (int b = 0; b < target_count(); b++) {
        float *want, *got;

        if (b > 0 && !target_at(b)->has_s16)
            continue;
        want = run(target_at(0), GPUSERVE_DTYPE_INT16, &c, &p);
        got = run(target_at(b), GPUSERVE_DTYPE_INT16, &c, &p);
        for (int i = 0; i < 6 * 40; i++)
            cr_assert_eq(isnan(got[i]) != 0, i >= 4 * 40, "%s: element %d is %g",
                         target_at(b)->name, i, (double)got[i]);
        cr_expect(all_close(got, want, 6 * 40, 1e-5f, 1e-5f), "%s: %s", target_at(b)->name,
                  difference());
        free_floats(want);
        free_floats(got);
    }
    free_problem(&p);
}

/* The product of a target that adds products in 16 bits does so: else it is right, but slow. */
static void expect_sums(const struct target *t, const struct linear_case *c,
                        const struct problem *p, const float *scales)
{
    struct test_linear linear =
        open_scaled_linear(t, GPUSERVE_DTYPE_INT8, c->n, c->k, p->weight, NULL, NULL, scales);

    cr_expect(linear.linear->sum >=
                      gsv_s8_sum_of(t->device->isa->adds_pairs, (size_t)c->n, (size_t)c->k) ||
                  !t->device->isa->adds_sums,
              "%s: sums of %d products", t->name, (int)linear.linear->sum);
    close_linear(t, &linear);
}

/* Any rounding to a neighbour gives the integers that the fast product sums exactly. */
static void round_to_neighbours(const struct linear_case *c)
{
    struct problem p = make_problem(c);

    for (int b = 1; b < target_count(); b = next_isa(b)) {
        float *scales = scales_of(target_at(b), c, &p);

        for (int up = 0; up < 3; up++) {
            struct problem rounded = make_problem(c);

            for (int32_t i = 0; i < c->n * c->k; i++) {
                const float w = rounded.weight[i] / scales[i / c->k];
                const bool away = up == 2 || (up == 1 && i % 2);

                rounded.weight[i] =
                    copysignf(away ? ceilf(fabsf(w) - 1e-3f) : floorf(fabsf(w) + 1e-3f), w) *
                    scales[i / c->k];
            }
            compare(c, GPUSERVE_DTYPE_INT8, &rounded, target_at(b), scales);
            expect_sums(target_at(b), c, &rounded, scales);
            free_problem(&rounded);
        }
        free_floats(scales);
    }
    free_problem(&p);
}

/* On AVX2 sums of pairs. */
Test(linear, int8_scales_of_a_narrowing_product_allow_either_neighbour)
{
    round_to_neighbours(&(struct linear_case){ .rows = 7, .n = 40, .k = 203 });
}

/* Sums of quads. */
Test(linear, int8_scales_of_a_widening_product_allow_either_neighbour)
{
    round_to_neighbours(&(struct linear_case){ .rows = 7, .n = 210, .k = 203 });
}

/* The largest sums of 16 bits: inputs of 255 steps and weights that use up a sum. */
Test(linear, int8_sums_reach_the_end_of_16_bits)
{
    static const struct linear_case cases_of_sums[] = {
        { .rows = 11, .n = 40, .k = 44 }, /* an odd last lane */
        { .rows = 11, .n = 50, .k = 48 },
    };

    for (size_t i = 0; i < 4; i++) {
        const struct linear_case *c = &cases_of_sums[i % 2];
        const int32_t length = i < 2 ? GSV_SUM_PAIR : GSV_SUM_QUAD;
        struct problem p = make_problem(c);
        float *ones = make_floats((size_t)c->n, 1);

        for (int32_t j = 0; j < c->rows * c->k; j++)
            p.in[j] = j % c->k == 0 ? 0.0f : 255.0f; /* the first gives the row its range */
        for (int32_t j = 0; j < c->n * c->k; j++)
            p.weight[j] = (float)(GSV_SUM_WEIGHTS / length) * (j / c->k % 2 ? -1.0f : 1.0f);
        for (int32_t j = 0; j < c->n; j++)
            ones[j] = 1.0f;
        for (int b = 1; b < target_count(); b = next_isa(b)) {
            compare(c, GPUSERVE_DTYPE_INT8, &p, target_at(b), ones);
            if (length == GSV_SUM_QUAD)
                expect_sums(target_at(b), c, &p, ones);
        }
        free_floats(ones);
        free_problem(&p);
    }
}

/* The quantized product must also be close to the exact one: per-row and per-column scales of 1/255
 * and 1/127 of the range give an error of about 1 % of a typical sum. */
Test(linear, int8_is_near_float32)
{
    const struct linear_case c = { .rows = 9, .n = 384, .k = 384, .bias = true };
    struct problem p = make_problem(&c);

    for (int b = 0; b < target_count(); b++) {
        const size_t count = (size_t)c.rows * (size_t)c.n;
        float *exact = run(target_at(b), GPUSERVE_DTYPE_FLOAT32, &c, &p);
        float *bytes = run(target_at(b), GPUSERVE_DTYPE_INT8, &c, &p);
        double dot = 0.0, a = 0.0, z = 0.0;

        for (size_t i = 0; i < count; i++) {
            dot += (double)exact[i] * (double)bytes[i];
            a += (double)exact[i] * (double)exact[i];
            z += (double)bytes[i] * (double)bytes[i];
        }
        cr_expect_gt(dot / sqrt(a * z), 0.9999, "%s: cosine %.6f", target_at(b)->name,
                     dot / sqrt(a * z));
        free_floats(exact);
        free_floats(bytes);
    }
    free_problem(&p);
}

/* Rows of zeros, of one value, of tiny and huge values: no division by a scale of 0. */
Test(linear, int8_survives_odd_rows)
{
    const struct linear_case c = { .rows = 6, .n = 40, .k = 48, .bias = true };
    struct problem p = make_problem(&c);

    memset(p.in, 0, 48 * sizeof(float));
    for (int i = 0; i < 48; i++) {
        p.in[48 + i] = 7.25f;
        p.in[96 + i] *= 1e-38f;
        p.in[144 + i] *= 1e30f;
        p.weight[48 + i] = 0.0f;
    }
    for (int b = 0; b < target_count(); b++) {
        float *scales = scales_of(target_at(b), &c, &p);
        float *want = run_scaled(target_at(0), GPUSERVE_DTYPE_INT8, &c, &p, scales);
        float *got = run_scaled(target_at(b), GPUSERVE_DTYPE_INT8, &c, &p, scales);

        for (int i = 0; i < 6 * 40; i++)
            cr_assert(isfinite(got[i]), "%s: element %d", target_at(b)->name, i);
        cr_expect(all_close(got, want, 3 * 40, 1e-5f, 1e-5f), "%s: %s", target_at(b)->name,
                  difference());
        cr_expect(all_close(got + 120, want + 120, 40, 1e25f, 1e-5f), "%s: %s", target_at(b)->name,
                  difference());
        free_floats(want);
        free_floats(got);
        free_floats(scales);
    }
    free_problem(&p);
}

/* GELU alone: an identity matrix passes selected values through. */
Test(linear, activations_are_accurate_from_end_to_end)
{
    enum { N = 64, ROWS = 40 };
    static const int32_t kinds[] = { GPUSERVE_ACT_GELU, GPUSERVE_ACT_GELU_TANH,
                                     GPUSERVE_ACT_RELU, GPUSERVE_ACT_TANH,
                                     GPUSERVE_ACT_SILU, GPUSERVE_ACT_QUICK_GELU };

    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        const struct linear_case c = { .rows = ROWS, .n = N, .k = N, .activation = kinds[kind] };
        struct problem p = make_problem(&c);
        float *want;

        for (int i = 0; i < N * N; i++)
            p.weight[i] = i / N == i % N ? 1.0f : 0.0f;
        for (int i = 0; i < N * ROWS; i++)
            p.in[i] = (float)(i - N * ROWS / 2) * (20.0f / (N * ROWS));
        p.in[0] = -1e30f;
        p.in[1] = 1e30f;
        p.in[2] = -100.0f;
        p.in[3] = 100.0f;
        want = run(target_at(0), GPUSERVE_DTYPE_FLOAT32, &c, &p);
        for (int b = 1; b < target_count(); b++) {
            float *got = run(target_at(b), GPUSERVE_DTYPE_FLOAT32, &c, &p);

            /* 1e-6 at |x| = 5 is 2e-7 of the normal distribution: three float32 roundings */
            cr_expect(all_close(got, want, N * ROWS, 1e-6f, 5e-7f), "%s, activation %d: %s",
                      target_at(b)->name, (int)kinds[kind], difference());
            free_floats(got);
        }
        free_floats(want);
        free_problem(&p);
    }
}

Test(linear, what_cannot_be_packed_is_refused_with_a_reason)
{
    for (int b = 0; b < target_count(); b++) {
        const struct target *t = target_at(b);
        struct gpuserve_linear_source source = { .struct_size = sizeof(source), .n = 1, .k = 1 };
        struct gpuserve_linear *linear = NULL;
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        source.dtype = GPUSERVE_DTYPE_TF32;
        cr_expect_eq(t->backend->activation_size(GPUSERVE_DTYPE_TF32), 0);
        cr_expect_eq(t->backend->linear_create(t->device, &linear, NULL, &source, &error),
                     GPUSERVE_E_UNSUPPORTED);
        cr_expect_null(linear);
        cr_expect_neq(error.message[0], '\0');
        source.dtype = GPUSERVE_DTYPE_INT8;
        source.k = 1 << 20;
        cr_expect_eq(t->backend->linear_create(t->device, &linear, NULL, &source, &error),
                     GPUSERVE_E_UNSUPPORTED);
        cr_expect_not_null(strstr(error.message, "1048576"));
    }
}
