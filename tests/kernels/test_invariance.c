/*
 * test_invariance.c - a row's bits do not depend on other rows, the batch or the number of threads.
 *
 * For each instruction set, one thread and one row at a time gives the expected bits. Each other
 * number of rows, position and number of threads must give the same bits.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(RUNS_UNDER_QEMU) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MAX_ROWS 150
#else
#define MAX_ROWS 300
#endif

static const int32_t row_counts[] = {
    1, 2, 3, 5, 6, 7, 8, 13, 14, 15, 28, 29, 64, 113, MAX_ROWS - 1
};

#define N_ROW_COUNTS (sizeof(row_counts) / sizeof(row_counts[0]))

/* True for the same instruction set: equal names up to the comma. */
static bool same_isa(const struct target *a, const struct target *b)
{
    const size_t length = strcspn(a->name, ",");

    return strcspn(b->name, ",") == length && memcmp(a->name, b->name, length) == 0;
}

struct shape {
    int32_t n, k, activation;
};

static const struct shape shapes[] = {
#if MAX_ROWS == 150
    { 192, 192, GPUSERVE_ACT_GELU },     { 96, 768, GPUSERVE_ACT_NONE },
#else
    { 1152, 384, GPUSERVE_ACT_NONE },    { 384, 384, GPUSERVE_ACT_NONE },
    { 1536, 384, GPUSERVE_ACT_GELU },    { 384, 1536, GPUSERVE_ACT_NONE },
#endif
    { 130, 129, GPUSERVE_ACT_GELU },     { 2, 128, GPUSERVE_ACT_TANH },
    { 96, 70, GPUSERVE_ACT_QUICK_GELU },
};

static void run_rows(const struct target *t, struct gpuserve_stream *stream,
                     const struct gpuserve_linear *linear, const struct shape *s, const float *in,
                     float *out, int32_t rows)
{
    const struct gpuserve_op_linear op = {
        .weight = linear,
        .in = in,
        .out = out,
        .residual = out,
        .rows = rows,
        .in_ld = s->k,
        .out_ld = s->n,
        .activation = s->activation,
    };

    memset(out, 0, (size_t)rows * (size_t)s->n * sizeof(float));
    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
}

/* Row by row on the first target of an instruction set. */
static void make_expected(const struct target *t, uint32_t dtype, const struct shape *s,
                          const float *weight, const float *in, float *expected)
{
    struct gpuserve_stream *stream =
        open_stream(t, dtype, MAX_ROWS, s->n > s->k ? s->n : s->k, 1, 32);
    struct test_linear linear = open_linear(t, dtype, s->n, s->k, weight, weight, NULL);

    for (int32_t r = 0; r < MAX_ROWS; r++)
        run_rows(t, stream, linear.linear, s, in + (size_t)r * (size_t)s->k,
                 expected + (size_t)r * (size_t)s->n, 1);
    t->backend->stream_destroy(&stream);
    close_linear(t, &linear);
}

static void compare_counts(const struct target *t, uint32_t dtype, const struct shape *s,
                           const float *weight, const float *in, const float *expected)
{
    struct gpuserve_stream *stream =
        open_stream(t, dtype, MAX_ROWS, s->n > s->k ? s->n : s->k, 1, 32);
    struct test_linear linear = open_linear(t, dtype, s->n, s->k, weight, weight, NULL);
    float *out = make_poison((size_t)MAX_ROWS * (size_t)s->n);

    for (size_t i = 0; i < N_ROW_COUNTS; i++) {
        const int32_t rows = row_counts[i], first = (int32_t)(i * 7) % (MAX_ROWS + 1 - rows);

        run_rows(t, stream, linear.linear, s, in + (size_t)first * (size_t)s->k, out, rows);
        cr_expect(
            same_bits(out, expected + (size_t)first * (size_t)s->n, (size_t)rows * (size_t)s->n),
            "%s, dtype %u, %d x %d: %d rows from %d differ from the same rows alone", t->name,
            (unsigned)dtype, (int)s->n, (int)s->k, (int)rows, (int)first);
    }
    free_floats(out);
    t->backend->stream_destroy(&stream);
    close_linear(t, &linear);
}

static void linear_bits(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *s = &shapes[i];
        float *weight = make_floats((size_t)s->n * (size_t)s->k, 51);
        float *in = make_floats((size_t)MAX_ROWS * (size_t)s->k, 52);
        float *expected = make_poison((size_t)MAX_ROWS * (size_t)s->n);

        for (int b = 1; b < target_count(); b++) {
            if (dtype == GPUSERVE_DTYPE_INT16 && !target_at(b)->has_s16)
                continue;
            if (!same_isa(target_at(b), target_at(b - 1)))
                make_expected(target_at(b), dtype, s, weight, in, expected);
            compare_counts(target_at(b), dtype, s, weight, in, expected);
        }
        free_floats(weight);
        free_floats(in);
        free_floats(expected);
    }
}

Test(invariance, float32_products)
{
    linear_bits(GPUSERVE_DTYPE_FLOAT32);
}

Test(invariance, int8_products)
{
    linear_bits(GPUSERVE_DTYPE_INT8);
}

Test(invariance, int16_products)
{
    linear_bits(GPUSERVE_DTYPE_INT16);
}

Test(invariance, float16_products)
{
    linear_bits(GPUSERVE_DTYPE_FLOAT16);
}

Test(invariance, bfloat16_products)
{
    linear_bits(GPUSERVE_DTYPE_BFLOAT16);
}

/* ---------------------------------------------------- operations on texts, with their options */

#define HIDDEN 96
#define HEADS 3
#define SIZE (HIDDEN / HEADS)
#define EXPERTS 9
#define SPAN 128
#define POSITION_ROWS 40

/* rotate, attention, add_norm, glu, route, add_scaled and pool with one set of options. */
struct recipe {
    int32_t kv_heads, causal, window;
    float softcap;
    int32_t positions; /* 1: attention with position rows */
    int32_t rotary;    /* 0: none */
    int32_t norm;
    int32_t gated; /* 1: glu, route and add_scaled follow add_norm */
};

static const struct recipe recipes[] = {
    { .kv_heads = HEADS },
    { .kv_heads = 1, .causal = 1, .rotary = SIZE, .norm = GPUSERVE_NORM_RMS, .gated = 1 },
    { .kv_heads = HEADS, .window = 9, .rotary = SIZE / 2, .norm = GPUSERVE_NORM_NONE },
    { .kv_heads = 1, .causal = 1, .window = 17, .softcap = 2.0f, .gated = 1 },
    { .kv_heads = HEADS, .positions = 1 },
};

/* Inputs of all recipes. */
struct text_inputs {
    float *qkv, *gamma, *table, *position_key, *position_query;
    int32_t index[2 * SPAN - 1], positions[SPAN * 16];
};

static struct text_inputs *make_text_inputs(size_t n_tokens, const int32_t *lengths)
{
    struct text_inputs *in = malloc(sizeof(*in));
    int32_t *position = in->positions;

    in->qkv = make_floats(n_tokens * 3 * HIDDEN, 62);
    in->gamma = make_floats(HIDDEN, 61);
    in->table = make_floats((size_t)SPAN * SIZE, 63);
    in->position_key = make_floats((size_t)POSITION_ROWS * HIDDEN, 64);
    in->position_query = make_floats((size_t)POSITION_ROWS * HIDDEN, 65);
    for (int32_t i = 0; i < 2 * SPAN - 1; i++) {
        const int32_t row = i - SPAN + POSITION_ROWS / 2;

        in->index[i] = row < 0 ? 0 : row < POSITION_ROWS ? row : POSITION_ROWS - 1;
    }
    for (size_t left = n_tokens; left > 0; left -= (size_t)*lengths++)
        for (int32_t i = 0; i < *lengths; i++)
            *position++ = i;
    return in;
}

static void free_text_inputs(struct text_inputs *in)
{
    free_floats(in->qkv);
    free_floats(in->gamma);
    free_floats(in->table);
    free_floats(in->position_key);
    free_floats(in->position_query);
    free(in);
}

static void attend(const struct target *t, struct gpuserve_stream *stream, const struct recipe *r,
                   const struct text_inputs *in, const struct gpuserve_batch *batch, float *qkv,
                   float *out)
{
    const struct gpuserve_op_rotate rotate = {
        .batch = batch,
        .qkv = qkv,
        .query_gamma = in->gamma,
        .key_gamma = in->gamma + SIZE,
        .table = in->table,
        .eps = 1e-5f,
        .n_heads = HEADS,
        .n_kv_heads = r->kv_heads,
        .head_size = SIZE,
        .rotary = r->rotary,
        .interleaved = r->rotary < SIZE,
    };
    const struct gpuserve_op_attention attention = {
        .batch = batch,
        .qkv = qkv,
        .out = out,
        .n_heads = HEADS,
        .head_size = SIZE,
        .scale = 0.2f,
        .n_kv_heads = r->kv_heads,
        .causal = r->causal,
        .window = r->window,
        .softcap = r->softcap,
        .bias_span = SPAN,
        .position_key = r->positions ? in->position_key : NULL,
        .position_query = r->positions ? in->position_query : NULL,
        .position_index = in->index,
        .position_rows = POSITION_ROWS,
    };

    if (r->rotary)
        cr_assert_eq(t->backend->rotate(stream, &rotate), GPUSERVE_OK);
    cr_assert_eq(t->backend->attention(stream, &attention), GPUSERVE_OK);
}

/* `logits` of the experts and `sum` of the residuals; `hidden` in and out. */
static void feed_forward(const struct target *t, struct gpuserve_stream *stream, int32_t rows,
                         const float *logits, const float *sum, float *hidden)
{
    float *weights = make_poison((size_t)rows * EXPERTS);
    const struct gpuserve_op_glu glu = {
        .in = hidden,
        .out = hidden,
        .rows = rows,
        .cols = HIDDEN / 2,
        .in_ld = HIDDEN,
        .out_ld = HIDDEN,
        .activation = GPUSERVE_ACT_SILU,
    };
    const struct gpuserve_op_route route = { logits, weights, rows, EXPERTS, 2, 1 };
    const struct gpuserve_op_add_scaled add = { hidden, sum, weights + 4, EXPERTS, rows,
                                                HIDDEN, 0,   0.5f,        0 };

    cr_assert_eq(t->backend->glu(stream, &glu), GPUSERVE_OK);
    cr_assert_eq(t->backend->route(stream, &route), GPUSERVE_OK);
    cr_assert_eq(t->backend->add_scaled(stream, &add), GPUSERVE_OK);
    free_floats(weights);
}

/* Runs a recipe on the texts [first, first + n) of `lengths`; one vector each. */
static void run_texts(const struct target *t, uint32_t dtype, const struct recipe *r,
                      const struct text_inputs *in, const int32_t *lengths, int32_t first,
                      int32_t n, float *vectors)
{
    struct gpuserve_batch batch = make_batch(lengths + first, n);
    const size_t tokens = (size_t)batch.n_tokens, row = (size_t)(HEADS + 2 * r->kv_heads) * SIZE;
    float *hidden = make_poison(tokens * HIDDEN), *qkv = make_poison(tokens * row);
    float *sum = make_poison(tokens * HIDDEN);
    struct gpuserve_stream *stream = open_attention_stream(
        t, dtype, batch.n_tokens, batch.max_seqlen, HEADS, SIZE, POSITION_ROWS);
    const struct gpuserve_op_add_norm add_norm = {
        .out = hidden,
        .in = hidden,
        .residual = hidden,
        .gamma = in->gamma,
        .beta = in->gamma,
        .eps = 1e-5f,
        .rows = batch.n_tokens,
        .cols = HIDDEN,
        .sum = sum,
        .norm = r->norm,
    };
    const struct gpuserve_op_pool pool = {
        .batch = &batch,
        .in = hidden,
        .out = vectors,
        .pooling = GPUSERVE_POOL_MEAN,
        .hidden = HIDDEN,
        .columns = HIDDEN,
        .out_ld = HIDDEN,
        .normalize = 1,
    };
    size_t before = 0;

    for (int32_t i = 0; i < first; i++)
        before += (size_t)lengths[i];
    batch.positions = in->positions + before;
    memcpy(qkv, in->qkv + before * row, tokens * row * sizeof(float));
    attend(t, stream, r, in, &batch, qkv, hidden);
    cr_assert_eq(t->backend->add_norm(stream, &add_norm), GPUSERVE_OK);
    if (r->gated)
        feed_forward(t, stream, batch.n_tokens, in->qkv + before * EXPERTS, sum, hidden);
    cr_assert_eq(t->backend->pool(stream, &pool), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    free_floats(hidden);
    free_floats(qkv);
    free_floats(sum);
}

static void text_bits(uint32_t dtype, const struct recipe *r)
{
    enum { N = 14 };
    static const int32_t lengths[N] = { 1, 2, 7, 8, 13, 14, 15, 16, 31, 33, 64, 100, 29, 5 };
    size_t n_tokens = 0;
    float *expected = make_poison(N * HIDDEN), *got = make_poison(N * HIDDEN);
    struct text_inputs *in;

    for (int i = 0; i < N; i++)
        n_tokens += (size_t)lengths[i];
    in = make_text_inputs(n_tokens, lengths);
    for (int b = 1; b < target_count(); b++) {
        const struct target *t = target_at(b);

        if (!same_isa(t, target_at(b - 1)))
            for (int32_t i = 0; i < N; i++)
                run_texts(t, dtype, r, in, lengths, i, 1, expected + (size_t)i * HIDDEN);
        for (int32_t n = 1; n <= N; n += 3)
            for (int32_t first = 0; first + n <= N; first += 2) {
                run_texts(t, dtype, r, in, lengths, first, n, got);
                cr_expect(same_bits(got, expected + (size_t)first * HIDDEN, (size_t)n * HIDDEN),
                          "%s, recipe %td: texts %d to %d differ from the same texts alone",
                          t->name, r - recipes, (int)first, (int)(first + n));
            }
    }
    free_text_inputs(in);
    free_floats(expected);
    free_floats(got);
}

Test(invariance, operations_on_texts)
{
    for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
        text_bits(GPUSERVE_DTYPE_FLOAT32, &recipes[i]);
        text_bits(GPUSERVE_DTYPE_INT8, &recipes[i]); /* attention in bfloat16 if supported */
    }
}

/* ------------------------------------------------------------------------------------- poison */

static void nan_stays(uint32_t dtype)
{
    const struct shape s = { 70, 96, GPUSERVE_ACT_GELU };
    float *weight = make_floats(70 * 96, 71), *in = make_floats(40 * 96, 72);
    float *clean = make_poison(40 * 70), *out = make_poison(40 * 70);

    for (int b = 0; b < target_count(); b++) {
        const struct target *t = target_at(b);
        struct gpuserve_stream *stream = open_stream(t, dtype, 40, 96, 1, 32);
        struct test_linear linear = open_linear(t, dtype, s.n, s.k, weight, NULL, NULL);

        in[17 * 96 + 5] = in[30 * 96 + 95] = 0.25f;
        run_rows(t, stream, linear.linear, &s, in, clean, 40);
        in[17 * 96 + 5] = NAN;
        in[30 * 96 + 95] = INFINITY;
        run_rows(t, stream, linear.linear, &s, in, out, 40);
        for (int r = 0; r < 40; r++) {
            if (r == 17 || r == 30)
                cr_expect(!isfinite(out[r * 70 + 3]) || (r == 30 && out[r * 70 + 3] == 0.0f),
                          "%s, dtype %u: row %d hides its fault as %g", t->name, (unsigned)dtype, r,
                          (double)out[r * 70 + 3]);
            else
                cr_expect(same_bits(out + r * 70, clean + r * 70, 70),
                          "%s, dtype %u: row %d was touched by another's NaN", t->name,
                          (unsigned)dtype, r);
        }
        t->backend->stream_destroy(&stream);
        close_linear(t, &linear);
    }
    free_floats(weight);
    free_floats(in);
    free_floats(clean);
    free_floats(out);
}

Test(invariance, nan_and_infinity_stay_in_their_row)
{
    nan_stays(GPUSERVE_DTYPE_FLOAT32);
    nan_stays(GPUSERVE_DTYPE_INT8);
}
