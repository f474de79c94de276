/*
 * test_attention.c - attention on every target against ref.
 */
#include "tests/kernels/harness.h"

#include <math.h>

struct attention_case {
    int32_t lengths[8];
    int32_t n_sequences, n_heads, head_size;
    bool bias;
    float gain; /* scale of Q: sharpness of the softmax */
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
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static float *run(const struct target *t, uint32_t dtype, const struct attention_case *c,
                  const float *qkv, const float *bias, int32_t span)
{
    const struct gpuserve_batch batch = make_batch(c->lengths, c->n_sequences);
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    float *out = make_poison((size_t)batch.n_tokens * width);
    struct gpuserve_stream *stream =
        open_stream(t, dtype, batch.n_tokens, (int32_t)(3 * width), c->n_heads, c->head_size);
    const struct gpuserve_op_attention op = {
        .batch = &batch,
        .qkv = qkv,
        .out = out,
        .relative_bias = c->bias ? bias : NULL,
        .bias_span = span,
        .n_heads = c->n_heads,
        .head_size = c->head_size,
        .scale = 1.0f / sqrtf((float)c->head_size),
    };

    cr_assert_eq(t->backend->attention(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

static void match_ref(uint32_t dtype, float absolute, float for_gain)
{
    for (size_t i = 0; i < N_CASES; i++) {
        const struct attention_case *c = &cases[i];
        const struct gpuserve_batch batch = make_batch(c->lengths, c->n_sequences);
        const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
        const int32_t span = batch.max_seqlen + 3;
        float *qkv = make_floats((size_t)batch.n_tokens * 3 * width, 11);
        float *bias = make_floats((size_t)c->n_heads * (size_t)(2 * span - 1), 12);
        float *want;

        for (size_t r = 0; r < (size_t)batch.n_tokens; r++)
            for (size_t j = 0; j < width; j++)
                qkv[r * 3 * width + j] *= c->gain;
        want = run(target_at(0), GPUSERVE_DTYPE_FLOAT32, c, qkv, bias, span);
        for (int b = 1; b < target_count(); b++) {
            float *got = run(target_at(b), dtype, c, qkv, bias, span);

            cr_expect(all_close(got, want, (size_t)batch.n_tokens * width,
                                absolute + for_gain * c->gain, absolute),
                      "%s, case %zu: %s", target_at(b)->name, i, difference());
            free_floats(got);
        }
        free_floats(want);
        free_floats(qkv);
        free_floats(bias);
    }
}

/* Outputs are averages of values up to 1. A score of size s has a float32 error of s * 1e-7 in its
 * weight, so the tolerance grows with `gain`. */
Test(attention, every_target_matches_ref)
{
    match_ref(GPUSERVE_DTYPE_FLOAT32, 1e-6f, 4e-7f);
}

/* int8 streams round attention's operands to bfloat16 if the processor has bfloat16 products: a
 * value has a relative error of 2^-9. */
Test(attention, int8_streams_match_ref_as_bfloat16_does)
{
    match_ref(GPUSERVE_DTYPE_INT8, 3e-3f, 2e-3f);
}

/* A NaN in one text affects only the same head of the same text. */
static void nan_stays(uint32_t dtype)
{
    static const struct attention_case c = { { 5, 20, 33 }, 3, 2, 32, false, 1.0f };
    const size_t width = 64;
    float *qkv = make_floats(58 * 3 * width, 13);

    qkv[7 * 3 * width + width + 40] = NAN; /* a key of the second text, second head */
    for (int b = 0; b < target_count(); b++) {
        float *out = run(target_at(b), dtype, &c, qkv, NULL, 0);

        for (size_t i = 0; i < 58 * width; i++) {
            const bool spoilt = i / width >= 5 && i / width < 25 && i % width >= 32;

            cr_assert_eq(isnan(out[i]), spoilt, "%s: row %zu column %zu is %g", target_at(b)->name,
                         i / width, i % width, (double)out[i]);
        }
        free_floats(out);
    }
    free_floats(qkv);
}

Test(attention, nan_stays_in_its_sequence_and_head)
{
    nan_stays(GPUSERVE_DTYPE_FLOAT32);
    nan_stays(GPUSERVE_DTYPE_INT8);
}
