/*
 * test_gates.c - rotate, glu, route and add_scaled on every target against ref.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <string.h>

#define ROWS 37

/* -------------------------------------------------------------------------------------- rotate */

struct rotate_case {
    int32_t n_heads, n_kv_heads, head_size, rotary;
    bool interleaved, query_norm, key_norm, table;
};

static const struct rotate_case rotate_cases[] = {
    { 1, 1, 2, 2, false, false, false, true },   { 3, 3, 64, 64, false, false, false, true },
    { 3, 1, 256, 256, false, true, true, true }, { 4, 2, 65, 50, false, false, true, true },
    { 2, 2, 33, 6, true, true, false, true },    { 4, 2, 64, 64, true, true, true, true },
    { 2, 1, 40, 38, true, false, false, true },  { 2, 1, 17, 0, false, true, true, false },
    { 2, 2, 80, 34, true, false, false, true },
};

static float *run_rotate(const struct target *t, const struct rotate_case *c, const float *qkv,
                         const float *gamma, const float *table)
{
    const int32_t lengths[] = { 1, ROWS - 1 };
    const int32_t columns = (c->n_heads + 2 * c->n_kv_heads) * c->head_size;
    struct gpuserve_batch batch = make_batch(lengths, 2);
    float *out = make_floats((size_t)ROWS * (size_t)columns, 1);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, ROWS, columns, 1, 32);
    int32_t positions[ROWS];
    const struct gpuserve_op_rotate op = {
        .batch = &batch,
        .qkv = out,
        .query_gamma = c->query_norm ? gamma : NULL,
        .key_gamma = c->key_norm ? gamma + c->head_size : NULL,
        .table = c->table ? table : NULL,
        .eps = 1e-6f,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_size = c->head_size,
        .rotary = c->rotary,
        .interleaved = c->interleaved,
    };

    for (int32_t i = 0; i < ROWS; i++)
        positions[i] = i * 5 % ROWS;
    batch.positions = positions;
    memcpy(out, qkv, (size_t)ROWS * (size_t)columns * sizeof(float));
    cr_assert_eq(t->backend->rotate(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

/* Norms of up to 256 columns and one rotation: a few roundings of values up to about 2. */
Test(gates, rotate_matches_ref)
{
    for (size_t i = 0; i < sizeof(rotate_cases) / sizeof(rotate_cases[0]); i++) {
        const struct rotate_case *c = &rotate_cases[i];
        const size_t n = (size_t)ROWS * (size_t)((c->n_heads + 2 * c->n_kv_heads) * c->head_size);
        float *qkv = make_floats(n, 81), *gamma = make_floats(2 * (size_t)c->head_size, 82);
        float *table = make_floats((size_t)ROWS * (size_t)c->rotary, 83), *want;

        want = run_rotate(target_at(0), c, qkv, gamma, table);
        for (int b = 1; b < target_count(); b++) {
            float *got = run_rotate(target_at(b), c, qkv, gamma, table);

            cr_expect(all_close(got, want, n, 1e-6f, 1e-6f), "%s, case %zu: %s", target_at(b)->name,
                      i, difference());
            free_floats(got);
        }
        free_floats(want);
        free_floats(qkv);
        free_floats(gamma);
        free_floats(table);
    }
}

/* ----------------------------------------------------------------------------------------- glu */

static const int32_t widths[] = { 1, 3, 15, 16, 17, 33, 128, 1153 };

#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* Rows 2 * cols + 3 apart; in place, or to rows cols + 1 apart. */
static float *run_glu(const struct target *t, int32_t cols, int32_t activation, const float *in,
                      bool in_place)
{
    const size_t n = (size_t)ROWS * (size_t)(2 * cols + 3);
    float *out = make_poison(n);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, ROWS, 2 * cols, 1, 32);
    const struct gpuserve_op_glu op = {
        .in = in_place ? out : in,
        .out = out,
        .rows = ROWS,
        .cols = cols,
        .in_ld = 2 * cols + 3,
        .out_ld = in_place ? 2 * cols + 3 : cols + 1,
        .activation = activation,
    };

    if (in_place)
        memcpy(out, in, n * sizeof(float));
    cr_assert_eq(t->backend->glu(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

Test(gates, glu_matches_ref)
{
    static const int32_t activations[] = { GPUSERVE_ACT_NONE,       GPUSERVE_ACT_GELU,
                                           GPUSERVE_ACT_GELU_TANH,  GPUSERVE_ACT_RELU,
                                           GPUSERVE_ACT_TANH,       GPUSERVE_ACT_SILU,
                                           GPUSERVE_ACT_QUICK_GELU, GPUSERVE_ACT_SIGMOID };

    for (size_t i = 0; i < N_WIDTHS * 8 * 2; i++) {
        const int32_t cols = widths[i / 16], activation = activations[i / 2 % 8];
        const size_t n = (size_t)ROWS * (size_t)(2 * cols + 3);
        float *in = make_floats(n, 84), *want;

        for (size_t j = 0; j < n; j++)
            in[j] *= j % 7 ? 3.0f : 30.0f;
        want = run_glu(target_at(0), cols, activation, in, i % 2);
        for (int b = 1; b < target_count(); b++) {
            float *got = run_glu(target_at(b), cols, activation, in, i % 2);

            /* the activations have an absolute error of 1e-6 at values up to 30, which the second
             * factor scales */
            cr_expect(all_close(got, want, n, 3e-5f, 6e-6f), "%s, %d columns, activation %d: %s",
                      target_at(b)->name, (int)cols, (int)activation, difference());
            free_floats(got);
        }
        free_floats(want);
        free_floats(in);
    }
}

/* -------------------------------------------------------------------------- mixture of experts */

static float *run_route(const struct target *t, const float *logits, int32_t experts, int32_t top_k,
                        bool renormalize)
{
    float *weights = make_poison((size_t)ROWS * (size_t)experts);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, ROWS, experts, 1, 32);
    const struct gpuserve_op_route op = { logits, weights, ROWS, experts, top_k, renormalize };

    cr_assert_eq(t->backend->route(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return weights;
}

/* Logits in steps of 1/4, so that many are equal. */
Test(gates, route_matches_ref)
{
    static const int32_t counts[] = { 1, 2, 8, 15, 16, 17, 60 };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) * 2; i++) {
        const int32_t experts = counts[i / 2];
        const size_t n = (size_t)ROWS * (size_t)experts;
        float *logits = make_floats(n, 85);

        for (size_t j = 0; j < n; j++)
            logits[j] = floorf(logits[j] * 12.0f) / 4.0f;
        for (int32_t top_k = 1; top_k <= experts; top_k += 1 + top_k / 3) {
            float *want = run_route(target_at(0), logits, experts, top_k, i % 2);

            for (int b = 1; b < target_count(); b++) {
                float *got = run_route(target_at(b), logits, experts, top_k, i % 2);

                cr_expect(all_close(got, want, n, 1e-7f, 2e-6f), "%s, %d of %d experts: %s",
                          target_at(b)->name, (int)top_k, (int)experts, difference());
                for (size_t j = 0; j < n; j++)
                    cr_assert_eq(got[j] == 0.0f, want[j] == 0.0f, "%s: element %zu is chosen",
                                 target_at(b)->name, j);
                free_floats(got);
            }
            free_floats(want);
        }
        free_floats(logits);
    }
}

enum { WEIGHTS_LD = 5 };

static float *run_add_scaled(const struct target *t, int32_t cols, const float *in,
                             const float *out_before, const float *weights, bool first)
{
    const size_t n = (size_t)ROWS * (size_t)cols;
    float *out = make_poison(n);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, ROWS, cols, 1, 32);
    const struct gpuserve_op_add_scaled op = {
        .out = out,
        .in = in,
        .weights = weights,
        .weights_ld = WEIGHTS_LD,
        .rows = ROWS,
        .cols = cols,
        .first = first,
        .factor = 1.75f,
    };

    if (!first)
        memcpy(out, out_before, n * sizeof(float));
    cr_assert_eq(t->backend->add_scaled(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

/* A third of the weights is 0, and a NaN in such a row does not count. */
Test(gates, add_scaled_matches_ref)
{
    for (size_t i = 0; i < N_WIDTHS * 4; i++) {
        const int32_t cols = widths[i / 4];
        const size_t n = (size_t)ROWS * (size_t)cols;
        float *in = make_floats(n, 86), *before = make_floats(n, 87), *want;
        float *weights = make_floats(ROWS * WEIGHTS_LD, 88);
        const float *used = i % 2 ? weights : NULL;

        for (size_t r = 0; r < ROWS; r += 3) {
            weights[r * WEIGHTS_LD] = 0.0f;
            if (used)
                in[r * (size_t)cols] = NAN;
        }
        want = run_add_scaled(target_at(0), cols, in, before, used, i / 2 % 2);
        for (size_t j = 0; j < n; j++)
            cr_assert(isfinite(want[j]));
        for (int b = 1; b < target_count(); b++) {
            float *got = run_add_scaled(target_at(b), cols, in, before, used, i / 2 % 2);

            cr_expect(all_close(got, want, n, 4e-7f, 0.0f), "%s, %d columns, variant %zu: %s",
                      target_at(b)->name, (int)cols, i % 4, difference());
            free_floats(got);
        }
        free_floats(want);
        free_floats(in);
        free_floats(before);
        free_floats(weights);
    }
}
