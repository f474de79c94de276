/*
 * test_model_rounding.c - int8 weights rounded by the error of the outputs, and the estimate for
 * texts that no probe measures.
 */
#include "lib/model/int8/int8.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, K = 96, N = 7 };

static float u[K * N], rest[K];
static const struct gsv_input_squares input = { K, N, u, rest };

/* Numbers in [-1, 1), the same ones on every system. */
static float next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void make_input(uint32_t seed)
{
    for (int i = 0; i < K * N; i++)
        u[i] = 0.5f + next(&seed);
    for (int j = 0; j < K; j++)
        rest[j] = 0.05f * (1.0f + next(&seed));
}

static void make_weight(float *weight, uint32_t seed)
{
    for (int i = 0; i < ROWS * K; i++)
        weight[i] = next(&seed);
}

static double scale_of(const float *row)
{
    float largest = 0.0f;

    for (int j = 0; j < K; j++)
        largest = fmaxf(largest, fabsf(row[j]));
    return (double)largest / 127.0;
}

/* With the scales of the largest weights, times `factor`. */
static void round_all_to(float *weight, size_t rows, float factor, int32_t n_threads)
{
    float *scratch = malloc(gsv_rounding_floats(K, N, n_threads) * sizeof(float));
    float scale[ROWS];

    cr_assert_not_null(scratch);
    for (size_t i = 0; i < rows; i++)
        scale[i] = (float)scale_of(weight + i * K) * factor;
    gsv_round_weights(weight, scale, NULL, rows, &input, scratch, n_threads);
    free(scratch);
}

static void round_all(float *weight, size_t rows, int32_t n_threads)
{
    round_all_to(weight, rows, 1.0f, n_threads);
}

/* e H e^T of one row. */
static double output_error(const double *e)
{
    double total = 0.0;

    for (int t = 0; t < N; t++) {
        double sum = 0.0;

        for (int j = 0; j < K; j++)
            sum += e[j] * (double)u[j * N + t];
        total += sum * sum;
    }
    for (int j = 0; j < K; j++)
        total += e[j] * e[j] * (double)rest[j];
    return total;
}

Test(rounding, each_weight_becomes_a_neighbour_and_the_largest_stays)
{
    static float before[ROWS * K], after[ROWS * K];

    make_input(1);
    make_weight(before, 2);
    memcpy(after, before, sizeof(after));
    round_all(after, ROWS, 1);
    for (int i = 0; i < ROWS * K; i++) {
        const double step = scale_of(before + i / K * K), q = (double)after[i] / step;

        cr_expect_float_eq(q, round(q), 1e-3);
        cr_expect_lt(fabs((double)after[i] - (double)before[i]), step * 1.001);
        if (i % K == 0)
            cr_expect_float_eq(scale_of(after + i), step, step * 1e-6);
    }
}

Test(rounding, a_larger_scale_is_kept)
{
    static float before[ROWS * K], after[ROWS * K];

    make_input(8);
    make_weight(before, 9);
    memcpy(after, before, sizeof(after));
    round_all_to(after, ROWS, 1.7f, 2);
    for (int i = 0; i < ROWS * K; i++) {
        const double step = scale_of(before + i / K * K) * 1.7, q = (double)after[i] / step;

        cr_expect_float_eq(q, round(q), 1e-3);
        cr_expect_lt(fabs((double)after[i] - (double)before[i]), step * 1.001);
    }
}

Test(rounding, outputs_have_a_fraction_of_the_error_of_the_nearest_weights)
{
    static float before[ROWS * K], after[ROWS * K];
    double chosen = 0.0, nearest = 0.0;

    make_input(3);
    make_weight(before, 4);
    memcpy(after, before, sizeof(after));
    round_all(after, ROWS, 1);
    for (int row = 0; row < ROWS; row++) {
        const double step = scale_of(before + row * K);
        double e[K], f[K];

        for (int j = 0; j < K; j++) {
            const double w = (double)before[row * K + j];

            e[j] = (double)after[row * K + j] - w;
            f[j] = step * rint(w / step) - w;
        }
        chosen += output_error(e);
        nearest += output_error(f);
    }
    cr_expect_lt(chosen, nearest / 4.0);
}

Test(rounding, threads_and_other_rows_do_not_change_a_row)
{
    static float alone[ROWS * K], together[ROWS * K], weight[ROWS * K];

    make_input(5);
    make_weight(weight, 6);
    memcpy(together, weight, sizeof(weight));
    memcpy(alone, weight, sizeof(weight));
    round_all(together, ROWS, 3);
    for (int row = 0; row < ROWS; row++)
        round_all(alone + row * K, 1, 1);
    cr_expect_arr_eq(alone, together, sizeof(alone));
}

Test(rounding, zeros_stay_zeros)
{
    static float weight[ROWS * K];

    make_input(7);
    memset(weight, 0, sizeof(weight));
    round_all(weight, ROWS, 2);
    for (int i = 0; i < ROWS * K; i++)
        cr_expect_eq(weight[i], 0.0f);
}

Test(rounding, the_estimate_is_below_the_worst_probe_and_falls_with_the_spread)
{
    float equal[141], spread[141];
    float of_equal, of_spread;

    for (int i = 0; i < 141; i++) {
        equal[i] = 0.999f;
        spread[i] = 1.0f - 0.001f * expf(-(float)(i % 47) / 15.0f);
    }
    of_equal = gsv_expected_min(equal, 141, 0.0);
    of_spread = gsv_expected_min(spread, 141, 0.0);
    cr_expect_float_eq(of_equal, 0.9985f, 1e-5f, "%f", (double)of_equal);
    cr_expect_lt(of_spread, 0.9985f, "the worst is as far off, the others less: %f",
                 (double)of_spread);
    cr_expect_lt(gsv_expected_min(equal, 141, 0.5), 0.99f);
    cr_expect_float_eq(gsv_model_variance(equal, 141), 0.0, 1e-9);
    cr_expect_float_eq(gsv_model_variance(spread, 141), 0.75, 1e-9, "the maximum");
    spread[140] = -1.0f;
    cr_expect_eq(gsv_expected_min(spread, 141, 0.0), -1.0f);
    for (int i = 0; i < 141; i++)
        equal[i] = 1.0f;
    cr_expect_gt(gsv_expected_min(equal, 141, 0.0), 0.9999f);
}

Test(rounding, the_tail_of_repeated_texts_counts_by_its_shape)
{
    float light[100], heavy[100], of_light, of_heavy;

    for (int i = 0; i < 100; i++) {
        const float exceeded = (float)(i + 1) / 101.0f; /* the part of losses above this one */

        light[i] = 1.0f - 0.0002f * (1.0f - logf(exceeded) / 4.0f);
        heavy[i] = 1.0f - 0.00002f / exceeded;
    }
    of_light = gsv_tail_min(light, 100);
    of_heavy = gsv_tail_min(heavy, 100);
    cr_expect_gt(of_light, 0.997f, "%f", (double)of_light);
    cr_expect_lt(of_heavy, 0.98f, "the worst is 0.99798, one in 2,000 is 0.96: %f",
                 (double)of_heavy);
    cr_expect_eq(gsv_tail_min(heavy, 39), 1.0f, "too few for a tail");
}
