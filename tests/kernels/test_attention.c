/*
 * test_attention.c - attention on every target against ref.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>

enum { POSITION_KEY = 1, POSITION_QUERY = 2 };

struct attention_case {
    int32_t lengths[8];
    int32_t n_sequences, n_heads, head_size;
    bool bias;
    float gain;     /* scale of Q: sharpness of the softmax */
    int32_t groups; /* query heads per key head; 0: 1 */
    bool causal;
    int32_t window;
    float softcap;
    int32_t positions;     /* POSITION_* */
    int32_t position_rows; /* an even number */
    int32_t left_out;      /* last keys of each text that no query reads; one key stays */
    bool exact;
};

static const struct attention_case cases[] = {
    { { 1 }, 1, 1, 1, false, 1.0f },
    { { 1, 2, 3, 4, 5 }, 5, 3, 32, false, 1.0f },
    { { 16, 31, 32, 33 }, 4, 2, 32, true, 1.0f },
    { { 13, 14, 15, 28, 29 }, 5, 2, 64, false, 8.0f },
    { { 100, 1, 257 }, 3, 1, 128, true, 1.0f },
    { { 40, 7 }, 2, 2, 20, true, 1.0f }, /* not a multiple of any vector */
    { { 9, 70 }, 2, 1, 48, false, 100.0f },
    { { 130 }, 1, 12, 32, false, 1.0f },
    { { 7, 2 }, 2, 12, 32, false, 1.0f }, /* tasks of 7 and of 5 heads */
    /* grouped queries */
    { { 5, 37, 1 }, 3, 6, 33, false, 1.0f, .groups = 3 },
    { { 45 }, 1, 3, 256, false, 1.0f, .groups = 3 },
    { { 45, 3 }, 2, 4, 16, true, 1.0f, .groups = 2, .causal = true },
    /* causal and window, shorter and longer than a tile, a panel and a text */
    { { 1, 2, 31, 33, 100 }, 5, 2, 32, false, 1.0f, .causal = true },
    { { 257 }, 1, 1, 65, true, 2.0f, .causal = true },
    { { 1, 40, 333 }, 3, 2, 64, false, 1.0f, .window = 1 },
    { { 17, 64, 333 }, 3, 1, 32, false, 1.0f, .window = 64 },
    { { 90, 333 }, 2, 1, 32, true, 1.0f, .window = 31 },
    { { 90, 333 }, 2, 2, 32, false, 8.0f, .groups = 2, .causal = true, .window = 33 },
    { { 20, 50 }, 2, 1, 24, false, 1.0f, .window = INT32_MAX },
    /* softcap */
    { { 12, 70 }, 2, 2, 32, false, 30.0f, .softcap = 5.0f },
    { { 70 }, 1, 2, 256, true, 1.0f, .groups = 2, .causal = true, .window = 9, .softcap = 50.0f },
    /* disentangled: all distances, saturated ones, both terms, one row */
    { { 1, 2, 9, 40 }, 4, 2, 32, false, 1.0f, .positions = 3, .position_rows = 128 },
    { { 33, 200 }, 2, 2, 64, false, 1.0f, .positions = 3, .position_rows = 32 },
    { { 33, 100 }, 2, 1, 37, false, 4.0f, .positions = POSITION_KEY, .position_rows = 50 },
    { { 33, 100 }, 2, 1, 37, true, 4.0f, .positions = POSITION_QUERY, .position_rows = 50 },
    { { 7, 64 }, 2, 3, 16, false, 1.0f, .positions = 3, .position_rows = 2 },
    { { 150 }, 1, 1, 32, true, 1.0f, 0, true, 40, 3.0f, 3, 64 },
    /* fewer keys than queries, around a panel and a tile of keys */
    { { 1, 12, 32, 33, 64 }, 5, 2, 32, false, 1.0f, .left_out = 7 },
    { { 40, 3, 100 }, 3, 2, 64, true, 1.0f, .left_out = 33 },
    { { 33, 90 }, 2, 4, 16, false, 8.0f, .groups = 2, .window = 64, .left_out = 31 },
    { { 50, 20 }, 2, 2, 48, false, 1.0f, .causal = true, .softcap = 9.0f, .left_out = 5 },
    { { 33, 100 }, 2, 1, 37, false, 1.0f, .positions = 3, .position_rows = 50, .left_out = 30 },
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* Inputs of a case; the same for each target. */
struct inputs {
    float *qkv, *bias, *position_key, *position_query;
    int32_t *index;
    int32_t span, n_tokens;
    size_t width, row; /* floats of a row of `out` and of `qkv` */
};

/* Half of the rows for distances one apart, the rest for longer distances in steps of one to two
 * rows with gaps of one to three distances; then saturated. */
static int32_t index_of(int32_t distance, int32_t rows)
{
    const int32_t half = rows / 2, far = abs(distance), near = half / 2;
    int32_t steps = far;

    if (far > near)
        steps = near + (far - near) * 2 / 3 + (far - near) / 7;
    steps = steps < half ? steps : half - 1;
    return distance < 0 ? half - steps : half + steps;
}

static struct inputs make_inputs(const struct attention_case *c)
{
    const struct gpuserve_batch batch = make_batch(c->lengths, c->n_sequences);
    const int32_t kv = c->groups ? c->n_heads / c->groups : c->n_heads;
    struct inputs in = { .span = batch.max_seqlen + 3, .n_tokens = batch.n_tokens };
    const int32_t distances = 2 * in.span - 1;
    const size_t size = (size_t)c->head_size;

    in.width = (size_t)c->n_heads * size;
    in.row = in.width + 2 * (size_t)kv * size;
    in.qkv = make_floats((size_t)in.n_tokens * in.row, 11);
    in.bias = make_floats((size_t)c->n_heads * (size_t)distances, 12);
    in.position_key = make_floats((size_t)c->position_rows * in.width, 14);
    in.position_query = make_floats((size_t)c->position_rows * in.width, 15);
    in.index = malloc((size_t)distances * sizeof(*in.index));
    for (int32_t i = 0; i < distances; i++)
        in.index[i] = index_of(i - (in.span - 1), c->position_rows);
    for (size_t r = 0; r < (size_t)in.n_tokens; r++)
        for (size_t j = 0; j < in.width; j++)
            in.qkv[r * in.row + j] *= c->gain;
    return in;
}

static void free_inputs(struct inputs *in)
{
    free_floats(in->qkv);
    free_floats(in->bias);
    free_floats(in->position_key);
    free_floats(in->position_query);
    free(in->index);
}

/* The keys of each text that queries read. */
static void count_keys(const struct attention_case *c, int32_t counts[8])
{
    for (int32_t i = 0; i < c->n_sequences; i++)
        counts[i] = c->lengths[i] > c->left_out ? c->lengths[i] - c->left_out : 1;
}

static float *run(const struct target *t, uint32_t dtype, const struct attention_case *c,
                  const struct inputs *in)
{
    struct gpuserve_batch batch = make_batch(c->lengths, c->n_sequences);
    int32_t counts[8];
    float *out = make_poison((size_t)batch.n_tokens * in->width);
    struct gpuserve_stream *stream = open_attention_stream(
        t, dtype, batch.n_tokens, batch.max_seqlen, c->n_heads, c->head_size, c->position_rows);
    const struct gpuserve_op_attention op = {
        .batch = &batch,
        .qkv = in->qkv,
        .out = out,
        .relative_bias = c->bias ? in->bias : NULL,
        .bias_span = in->span,
        .n_heads = c->n_heads,
        .head_size = c->head_size,
        .scale = 1.0f / sqrtf((float)c->head_size),
        .n_kv_heads = c->groups ? c->n_heads / c->groups : 0,
        .causal = c->causal,
        .window = c->window,
        .softcap = c->softcap,
        .position_key = c->positions & POSITION_KEY ? in->position_key : NULL,
        .position_query = c->positions & POSITION_QUERY ? in->position_query : NULL,
        .position_index = in->index,
        .position_rows = c->position_rows,
        .exact = c->exact,
    };

    count_keys(c, counts);
    batch.key_counts = c->left_out > 0 ? counts : NULL;
    cr_assert_eq(t->backend->attention(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

struct tolerance {
    float absolute, for_gain;
};

/* Outputs are averages of values up to 1. A score of size s has an error of s times that of its
 * operands, so the tolerance grows with `gain`. Relative errors of an operand: float32 1e-7;
 * bfloat16 2^-9; int16 about 2^-13 of the largest. */
static struct tolerance tolerance_of(const struct target *t, uint32_t dtype)
{
    if (dtype == GPUSERVE_DTYPE_FLOAT32)
        return (struct tolerance){ 1e-6f, 4e-7f };
    return t->has_s16 ? (struct tolerance){ 2e-4f, 2e-4f } : (struct tolerance){ 3e-3f, 2e-3f };
}

static void match(const struct attention_case *c, const struct inputs *in, uint32_t dtype,
                  size_t number)
{
    float *want = run(target_at(0), GPUSERVE_DTYPE_FLOAT32, c, in);

    for (int b = 1; b < target_count(); b++) {
        const struct tolerance allowed = tolerance_of(target_at(b), dtype);
        float *got = run(target_at(b), dtype, c, in);

        cr_expect(all_close(got, want, (size_t)in->n_tokens * in->width,
                            allowed.absolute + allowed.for_gain * c->gain, allowed.absolute),
                  "%s, case %zu: %s", target_at(b)->name, number, difference());
        free_floats(got);
    }
    free_floats(want);
}

static void match_ref(uint32_t dtype)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct inputs in = make_inputs(&cases[i]);

        match(&cases[i], &in, dtype, i);
        free_inputs(&in);
    }
}

Test(attention, every_target_matches_ref)
{
    match_ref(GPUSERVE_DTYPE_FLOAT32);
}

/* int8 streams round attention's operands to bfloat16 or int16 if the processor has such products.
 */
Test(attention, int8_streams_match_ref_as_16_bits_do)
{
    match_ref(GPUSERVE_DTYPE_INT8);
}

/* All operands at their largest magnitude: the sums of int16 come closest to 32 bits. */
Test(attention, the_largest_sums_of_an_int8_stream_are_exact)
{
    static const struct attention_case largest[] = {
        { { 700 }, 1, 1, 32, false, 1.0f },
        { { 700 }, 1, 1, 64, false, 1.0f },
        { { 33 }, 1, 1, 256, false, 1.0f },
        { { 3 }, 1, 1, 1, false, 1.0f },
    };

    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++) {
        struct inputs in = make_inputs(&largest[i]);

        for (size_t j = 0; j < (size_t)in.n_tokens * in.row; j++)
            in.qkv[j] = j / in.row % 2 ? -3.0f : 3.0f;
        match(&largest[i], &in, GPUSERVE_DTYPE_INT8, i);
        for (size_t j = 0; j < (size_t)in.n_tokens * in.row; j++)
            in.qkv[j] = 3.0f;
        match(&largest[i], &in, GPUSERVE_DTYPE_INT8, i);
        for (size_t j = 0; j < (size_t)in.n_tokens * in.row; j++)
            in.qkv[j] = 0.0f;
        match(&largest[i], &in, GPUSERVE_DTYPE_INT8, i);
        free_inputs(&in);
    }
}

/* int16 computes a text of more keys than it has steps for, and a head with an infinity, in
 * float32. */
Test(attention, what_int16_cannot_hold_is_in_float32)
{
    const struct attention_case longer = { { 16385 }, 1, 1, 8, false, 1.0f, .window = 2 };
    const struct attention_case infinite = { { 40 }, 1, 1, 32, false, 1.0f };

    for (int i = 0; i < 4; i++) {
        const struct attention_case *c = i == 0 ? &longer : &infinite;
        struct inputs in = make_inputs(c);

        if (i > 0) /* of Q, K and V */
            in.qkv[7 * in.row + (size_t)(i - 1) * in.width + 5] = -INFINITY;
        for (int b = 1; b < target_count(); b++) {
            float *want, *got;

            if (!target_at(b)->has_s16)
                continue;
            want = run(target_at(b), GPUSERVE_DTYPE_FLOAT32, c, &in);
            got = run(target_at(b), GPUSERVE_DTYPE_INT8, c, &in);
            cr_expect_arr_eq(got, want, (size_t)in.n_tokens * in.width * sizeof(*got), "%s, %d",
                             target_at(b)->name, i);
            free_floats(got);
            free_floats(want);
        }
        free_inputs(&in);
    }
}

/* The bits are those of a float32 stream, whatever the processor rounds otherwise. */
Test(attention, exact_attention_of_an_int8_stream_is_in_float32)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct attention_case c = cases[i];
        struct inputs in = make_inputs(&c);

        for (int b = 1; b < target_count(); b++) {
            float *want = run(target_at(b), GPUSERVE_DTYPE_FLOAT32, &c, &in), *got;

            c.exact = true;
            got = run(target_at(b), GPUSERVE_DTYPE_INT8, &c, &in);
            c.exact = false;
            cr_expect_arr_eq(got, want, (size_t)in.n_tokens * in.width * sizeof(*got),
                             "%s, case %zu", target_at(b)->name, i);
            free_floats(got);
            free_floats(want);
        }
        free_inputs(&in);
    }
}

/* A NaN in one text affects only the same head of the same text. */
static void nan_stays(uint32_t dtype, int32_t window)
{
    const struct attention_case c = { { 5, 20, 33 }, 3, 2, 32, false, 1.0f, .window = window };
    struct inputs in = make_inputs(&c);
    const size_t width = in.width;

    in.qkv[7 * in.row + width + 40] = NAN; /* a key of the second text, second head */
    for (int b = 0; b < target_count(); b++) {
        float *out = run(target_at(b), dtype, &c, &in);

        for (size_t i = 0; i < 58 * width; i++) {
            const bool in_head = i / width >= 5 && i / width < 25 && i % width >= 32;
            const bool spoilt = in_head && (window == 0 || labs((long)(i / width) - 7) <= window);

            cr_assert_eq(isnan(out[i]), spoilt, "%s: row %zu column %zu is %g", target_at(b)->name,
                         i / width, i % width, (double)out[i]);
        }
        free_floats(out);
    }
    free_inputs(&in);
}

Test(attention, nan_stays_in_its_sequence_and_head)
{
    nan_stays(GPUSERVE_DTYPE_FLOAT32, 0);
    nan_stays(GPUSERVE_DTYPE_INT8, 0);
}

/* The score of a masked key is -infinity whatever the key holds. */
Test(attention, nan_of_a_masked_key_stays_out)
{
    nan_stays(GPUSERVE_DTYPE_FLOAT32, 4);
    nan_stays(GPUSERVE_DTYPE_INT8, 4);
}
