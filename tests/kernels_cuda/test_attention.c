/*
 * test_attention.c - attention against ref: tensor core kernels with each tile height, and the
 * generic kernel.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attention_case {
    struct lengths lengths;
    int32_t n_heads, head_size;
    bool bias;
    float gain; /* scale of Q: sharpness of the softmax */
};

static const struct attention_case cases[] = {
    { { 1, { 1 } }, 1, 32, false, 1.0f },
    { { 1, { 1 } }, 1, 1, false, 1.0f },
    { { 5, { 0, 5, 0, 1, 0 } }, 2, 64, true, 1.0f },
    { { 4, { 0, 0, 3, 0 } }, 2, 20, false, 1.0f },
    { { 5, { 1, 2, 3, 15, 16 } }, 3, 32, true, 1.0f }, /* 16-row tiles */
    { { 4, { 17, 31, 32, 9 } }, 2, 64, true, 1.0f },   /* 16- or 32-row tiles */
    { { 4, { 63, 64, 65, 1 } }, 2, 64, false, 8.0f },  /* around the end of a key tile */
    { { 3, { 100, 1, 200 } }, 2, 128, true, 1.0f },
    { { 2, { 127, 129 } }, 12, 32, false, 30.0f },
    { { 2, { 40, 7 } }, 2, 20, true, 1.0f },
    { { 2, { 9, 70 } }, 1, 48, false, 8.0f },
    { { 1, { 21 } }, 2, 256, false, 1.0f },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* The device's rows as floats. The stream's `n_heads` determines the tile height. */
static struct buffer run_cuda(const struct attention_case *c, uint32_t dtype, int32_t stream_heads,
                              struct buffer *qkv, const struct buffer *bias, int32_t span)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    struct gpuserve_host_batch host = make_host_batch(&c->lengths, 9, 1);
    struct gpuserve_stream *stream =
        cuda_stream(dtype, host.n_tokens + 40, c->lengths.n + 3, stream_heads, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    struct buffer out = make_output(dtype, (size_t)batch.n_rows * width);
    const struct gpuserve_op_attention op = { .batch = &batch,
                                              .qkv = qkv->device,
                                              .out = out.device,
                                              .relative_bias = c->bias ? bias->device : NULL,
                                              .bias_span = span,
                                              .n_heads = c->n_heads,
                                              .head_size = c->head_size,
                                              .scale = 1.0f / sqrtf((float)c->head_size) };

    cr_assert_eq(cuda->attention(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    for (size_t i = (size_t)host.n_tokens * width; i < out.n; i++)
        cr_assert_eq(out.host[i], 0.0f, "rows of no sequence are zero");
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
    return out;
}

static float *run_ref(const struct attention_case *c, const struct buffer *qkv,
                      const struct buffer *bias, int32_t span)
{
    struct gpuserve_host_batch host = make_host_batch(&c->lengths, 9, 1);
    const struct gpuserve_batch batch = oracle_batch(&host);
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    float *want = malloc((size_t)host.n_tokens * width * sizeof(float));
    const struct gpuserve_op_attention op = { .batch = &batch,
                                              .qkv = qkv->host,
                                              .out = want,
                                              .relative_bias = c->bias ? bias->host : NULL,
                                              .bias_span = span,
                                              .n_heads = c->n_heads,
                                              .head_size = c->head_size,
                                              .scale = 1.0f / sqrtf((float)c->head_size) };

    cr_assert_eq(gsv_backend_ref()->attention(NULL, &op), GPUSERVE_OK);
    free_host_batch(&host);
    return want;
}

static int32_t tokens_of(const struct lengths *lengths)
{
    int32_t n = 0;

    for (int32_t i = 0; i < lengths->n; i++)
        n += lengths->of[i];
    return n;
}

/* Rows after the last token are NaN, so that a read of them is detected. */
static struct buffer make_qkv(const struct attention_case *c, uint32_t dtype, uint32_t seed)
{
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    const size_t n_tokens = (size_t)tokens_of(&c->lengths);
    struct buffer qkv = make_input(dtype, (n_tokens + 40) * 3 * width, seed, 1.0f);

    for (size_t r = 0; r < n_tokens; r++)
        for (size_t j = 0; j < width; j++)
            qkv.host[r * 3 * width + j] *= c->gain; /* see download() below */
    for (size_t i = n_tokens * 3 * width; i < qkv.n; i++)
        qkv.host[i] = NAN;
    upload(&qkv);
    download(&qkv); /* scaling may give values that the format cannot represent */
    return qkv;
}

Test(kernels_cuda_attention, matches_ref)
{
    for (size_t i = 0; i < N_CASES * 3; i++) {
        const struct attention_case *c = &cases[i / 3];
        const struct format *format = &formats[i % 3];
        const int32_t span = 210;
        const size_t n = (size_t)(tokens_of(&c->lengths) * c->n_heads * c->head_size);
        struct buffer qkv = make_qkv(c, format->dtype, 81);
        struct buffer bias = make_input(GPUSERVE_DTYPE_FLOAT32,
                                        (size_t)c->n_heads * (2 * (size_t)span - 1), 82, 1.0f);
        float *want = run_ref(c, &qkv, &bias, span);
        struct buffer got = run_cuda(c, format->dtype, c->n_heads, &qkv, &bias, span);

        /* A score of size s has an error of s * 6e-8 in its weight. */
        cr_expect_leq(distance(got.host, want, n),
                      format->tolerance + (i % 3 == 0 ? 1e-6 * (double)c->gain : 0), "%s, case %zu",
                      format->name, i / 3);
        free(want);
        free_buffer(&got), free_buffer(&bias), free_buffer(&qkv);
    }
}

/* The tile height of 16, 32 or 64 rows depends on the device's occupancy; a text's bits must not
 * depend on it. */
Test(kernels_cuda_attention, bits_do_not_depend_on_the_tile_height)
{
    static const struct attention_case c = { { 4, { 70, 1, 130, 33 } }, 2, 64, true, 1.0f };
    /* 16, 32 and 64 rows on the emulator's 16 cores; the larger ones cover devices with about
     * 130. */
    static const int32_t heads[] = { 1, 3, 20, 1000 };

    for (size_t f = 1; f <= 2; f++) {
        struct buffer qkv = make_qkv(&c, formats[f].dtype, 91);
        struct buffer bias = make_input(GPUSERVE_DTYPE_FLOAT32, 2 * 419, 92, 1.0f);
        struct buffer want = run_cuda(&c, formats[f].dtype, heads[0], &qkv, &bias, 210);

        for (size_t i = 1; i < sizeof(heads) / sizeof(heads[0]); i++) {
            struct buffer got = run_cuda(&c, formats[f].dtype, heads[i], &qkv, &bias, 210);

            cr_expect_eq(memcmp(got.host, want.host, got.n * sizeof(float)), 0, "%s, %d heads",
                         formats[f].name, heads[i]);
            free_buffer(&got);
        }
        free_buffer(&want);
        free_buffer(&bias), free_buffer(&qkv);
    }
}

/* The same text alone and in a batch. */
Test(kernels_cuda_attention, bits_do_not_depend_on_the_neighbours)
{
    static const struct attention_case among = { { 3, { 50, 77, 20 } }, 2, 32, false, 1.0f };
    const size_t width = 64;

    for (size_t f = 0; f < 3; f++) {
        struct buffer qkv = make_qkv(&among, formats[f].dtype, 93);
        struct buffer together = run_cuda(&among, formats[f].dtype, 2, &qkv, NULL, 0);
        size_t at = 0;

        for (int i = 0; i < 3; i++) {
            const size_t n = (size_t)among.lengths.of[i];
            const struct attention_case alone = { { 1, { (int32_t)n } }, 2, 32, false, 1.0f };
            struct buffer own = make_qkv(&alone, formats[f].dtype, 94);
            struct buffer single;

            memcpy(own.host, qkv.host + at * 3 * width, n * 3 * width * sizeof(float));
            upload(&own);
            single = run_cuda(&alone, formats[f].dtype, 2, &own, NULL, 0);
            cr_expect_eq(memcmp(together.host + at * width, single.host, n * width * sizeof(float)),
                         0, "%s, text %d", formats[f].name, i);
            free_buffer(&single), free_buffer(&own);
            at += n;
        }
        free_buffer(&together), free_buffer(&qkv);
    }
}

/* A NaN in one text affects only the same head of the same text. */
Test(kernels_cuda_attention, nan_stays_in_its_sequence_and_head)
{
    static const struct attention_case c = { { 3, { 5, 20, 33 } }, 2, 32, false, 1.0f };
    const size_t width = 64;

    for (size_t f = 0; f < 3; f++) {
        struct buffer qkv = make_qkv(&c, formats[f].dtype, 95);
        struct buffer out;

        qkv.host[7 * 3 * width + width + 40] = NAN; /* a key of the second text, second head */
        upload(&qkv);
        out = run_cuda(&c, formats[f].dtype, 2, &qkv, NULL, 0);
        for (size_t i = 0; i < 58 * width; i++) {
            const bool spoilt = i / width >= 5 && i / width < 25 && i % width >= 32;

            cr_assert_eq(isnan(out.host[i]), spoilt, "%s: row %zu column %zu is %g",
                         formats[f].name, i / width, i % width, (double)out.host[i]);
        }
        free_buffer(&out), free_buffer(&qkv);
    }
}
