/*
 * test_rows.c - embed, add_norm, pool, normalize and activate against ref.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The models' widths, and widths without a register kernel. */
static const int32_t widths[] = { 128, 256, 312, 384, 512, 768, 1024, 1, 7, 32, 100, 1152 };
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

static const struct lengths lengths = { 4, { 1, 5, 2, 9 } };

Test(kernels_cuda_rows, embed)
{
    const struct gpuserve_backend *cuda = cuda_backend();

    for (size_t i = 0; i < N_WIDTHS * 3; i++) {
        const struct format *format = &formats[i % 3];
        const int32_t hidden = widths[i / 3];
        const size_t width = (size_t)hidden;
        struct gpuserve_host_batch host = make_host_batch(&lengths, 50, 1);
        struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
        struct gpuserve_batch batch = begin(stream, &host);
        const struct gpuserve_batch plain = oracle_batch(&host);
        struct buffer word = make_input(format->dtype, 50 * width, 2, 1.0f);
        struct buffer position = make_input(format->dtype, 16 * width, 3, 0.5f);
        struct buffer type = make_input(format->dtype, 2 * width, 4, 0.25f);
        struct buffer gamma = make_input(GPUSERVE_DTYPE_FLOAT32, width, 5, 1.0f);
        struct buffer beta = make_input(GPUSERVE_DTYPE_FLOAT32, width, 6, 1.0f);
        struct buffer out = make_output(format->dtype, (size_t)batch.n_rows * width);
        float *want = malloc((size_t)host.n_tokens * width * sizeof(float));
        const bool bare = i / 3 % 2 == 1; /* without positions and types */
        const struct gpuserve_op_embed op = { .batch = &batch,
                                              .out = out.device,
                                              .word = word.device,
                                              .position = bare ? NULL : position.device,
                                              .type = bare ? NULL : type.device,
                                              .gamma = gamma.device,
                                              .beta = beta.device,
                                              .eps = 1e-12f,
                                              .hidden = hidden };
        const struct gpuserve_op_embed same = { .batch = &plain,
                                                .out = want,
                                                .word = word.host,
                                                .position = bare ? NULL : position.host,
                                                .type = bare ? NULL : type.host,
                                                .gamma = gamma.host,
                                                .beta = beta.host,
                                                .eps = 1e-12f,
                                                .hidden = hidden };

        cr_assert_eq(cuda->embed(stream, &op), GPUSERVE_OK);
        finish(stream, out.device);
        download(&out);
        cr_assert_eq(gsv_backend_ref()->embed(NULL, &same), GPUSERVE_OK);
        cr_expect_leq(distance(out.host, want, (size_t)host.n_tokens * width), format->tolerance,
                      "%s, width %d", format->name, hidden);
        for (size_t j = 0; j < out.n; j++)
            cr_assert(isfinite(out.host[j]), "rows past the tokens must be finite");
        free(want);
        free_buffer(&word), free_buffer(&position), free_buffer(&type);
        free_buffer(&gamma), free_buffer(&beta), free_buffer(&out);
        free_host_batch(&host);
        cuda->stream_destroy(&stream);
    }
}

static void try_layernorm(const struct format *format, int32_t cols, int32_t rows, bool residual,
                          bool in_place)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t n = (size_t)rows * (size_t)cols;
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
    struct buffer in = make_input(format->dtype, n, 11, 3.0f);
    struct buffer more = make_input(format->dtype, n, 12, 1.0f);
    struct buffer gamma = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)cols, 13, 1.0f);
    struct buffer beta = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)cols, 14, 1.0f);
    struct buffer out = make_output(format->dtype, n);
    float *want = malloc(n * sizeof(float) + 1);
    struct buffer *to = in_place ? residual ? &more : &in : &out;
    const struct gpuserve_op_add_norm op = {
        to->device, in.device, residual ? more.device : NULL, gamma.device, beta.device, 1e-5f,
        rows,       cols
    };
    const struct gpuserve_op_add_norm same = { want,       in.host,   residual ? more.host : NULL,
                                               gamma.host, beta.host, 1e-5f,
                                               rows,       cols };

    cr_assert_eq(gsv_backend_ref()->add_norm(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->add_norm(stream, &op), GPUSERVE_OK);
    finish(stream, to->device);
    cuda->stream_destroy(&stream);
    download(to);
    cr_expect_leq(distance(to->host, want, n), format->tolerance, "%s, %d x %d%s%s", format->name,
                  rows, cols, residual ? ", residual" : "", in_place ? ", in place" : "");
    free(want);
    free_buffer(&in), free_buffer(&more), free_buffer(&gamma), free_buffer(&beta);
    free_buffer(&out);
}

Test(kernels_cuda_rows, add_norm)
{
    static const int32_t row_counts[] = { 0, 1, 3, 4, 5, 37 };

    for (size_t i = 0; i < N_WIDTHS * 3; i++)
        for (size_t r = 0; r < sizeof(row_counts) / sizeof(row_counts[0]); r++)
            try_layernorm(&formats[i % 3], widths[i / 3], row_counts[r], r % 2 == 1, r % 3 == 1);
}

/* E[x^2] - mean^2 would lose all digits here. */
Test(kernels_cuda_rows, add_norm_with_a_large_mean)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT32, 64, 8, 1, 0);
    struct buffer in = make_input(GPUSERVE_DTYPE_FLOAT32, 384, 15, 1.0f);
    struct buffer gamma = make_input(GPUSERVE_DTYPE_FLOAT32, 384, 16, 1.0f);
    struct buffer beta = make_input(GPUSERVE_DTYPE_FLOAT32, 384, 17, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, 384);
    float want[384];
    const struct gpuserve_op_add_norm op = { out.device,  in.device, NULL, gamma.device,
                                             beta.device, 1e-5f,     1,    384 };
    const struct gpuserve_op_add_norm same = { want,      in.host, NULL, gamma.host,
                                               beta.host, 1e-5f,   1,    384 };

    for (size_t i = 0; i < 384; i++)
        in.host[i] += 1000.0f;
    upload(&in);
    cr_assert_eq(gsv_backend_ref()->add_norm(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->add_norm(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    cuda->stream_destroy(&stream);
    download(&out);
    /* The mean itself is rounded by 1000 * 6e-8. */
    cr_expect_leq(distance(out.host, want, 384), 3e-4);
    free_buffer(&in), free_buffer(&gamma), free_buffer(&beta), free_buffer(&out);
}

static void try_pool(const struct format *format, int32_t hidden, int32_t columns, int32_t pooling,
                     bool normalize)
{
    static const struct lengths mix = { 6, { 1, 2, 40, 7, 64, 3 } };
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_host_batch host = make_host_batch(&mix, 9, 1);
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 200, 16, 1, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    const struct gpuserve_batch plain = oracle_batch(&host);
    const int32_t ld = columns + 3;
    struct buffer in = make_input(format->dtype, (size_t)batch.n_rows * (size_t)hidden, 21, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, (size_t)batch.n_sequences * (size_t)ld);
    float *want = calloc((size_t)host.n_sequences * (size_t)ld, sizeof(float));
    struct gpuserve_op_pool op = { &batch, in.device, out.device, pooling,
                                   hidden, columns,   ld,         normalize };
    struct gpuserve_op_pool same = {
        &plain, in.host, want, pooling, hidden, columns, ld, normalize
    };

    cr_assert_eq(gsv_backend_ref()->pool(NULL, &same), GPUSERVE_OK);
    cr_assert_eq(cuda->pool(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    for (int32_t s = 0; s < batch.n_sequences; s++) {
        const float *row = out.host + (size_t)s * (size_t)ld;

        for (int32_t c = columns; c < ld; c++)
            cr_assert(isnan(row[c]), "a column between rows was written");
        if (s < host.n_sequences)
            cr_expect_leq(distance(row, want + (size_t)s * (size_t)ld, (size_t)columns), 2e-6,
                          "%s, pooling %d, %d of %d columns, sequence %d", format->name, pooling,
                          columns, hidden, s);
        for (int32_t c = 0; s >= host.n_sequences && c < columns; c++)
            cr_assert_eq(row[c], 0.0f, "an empty sequence pools to zeros");
    }
    free(want);
    free_buffer(&in), free_buffer(&out);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

/* Inputs are exact in their format and sums are float32, so one tolerance fits all formats. */
Test(kernels_cuda_rows, pool)
{
    static const int32_t hiddens[] = { 128, 384, 1024, 33, 1 };

    for (size_t i = 0; i < sizeof(hiddens) / sizeof(hiddens[0]); i++)
        for (int32_t pooling = GPUSERVE_POOL_CLS; pooling <= GPUSERVE_POOL_LAST; pooling++)
            for (size_t f = 0; f < 3; f++)
                try_pool(&formats[f], hiddens[i], pooling % 2 ? hiddens[i] : (hiddens[i] + 1) / 2,
                         pooling, f != 1);
}

static void try_empty(const struct format *format, int32_t hidden, int32_t pooling, bool normalize)
{
    static const struct lengths mix = { 2, { 2, 3 } };
    static const int32_t cuts[] = { 0, 0, 2, 2, 2, 5, 5 }; /* 0, 2, 0, 0, 3 and 0 tokens */
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_host_batch host = make_host_batch(&mix, 9, 1);
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 200, 16, 1, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    struct buffer in = make_input(format->dtype, (size_t)batch.n_rows * (size_t)hidden, 21, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, 6 * (size_t)hidden);
    struct buffer parts = make_output(GPUSERVE_DTYPE_FLOAT32, 7);
    struct gpuserve_op_pool op = { &batch, in.device, out.device, pooling,
                                   hidden, hidden,    hidden,     normalize };

    cr_assert_eq(cuda->memory_write(cuda_device(), parts.device, cuts, sizeof(cuts), NULL),
                 GPUSERVE_OK);
    batch.cu_seqlens = parts.device;
    batch.n_sequences = 6;
    cr_assert_eq(cuda->pool(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    for (int32_t s = 0; s < 6; s++) {
        for (int32_t c = 0; c < hidden; c++) {
            const float x = out.host[(size_t)s * (size_t)hidden + (size_t)c];

            cr_assert(cuts[s + 1] > cuts[s] ? isfinite(x) : x == 0.0f,
                      "%s, pooling %d, sequence %d, column %d: %g", format->name, pooling, s, c, x);
        }
    }
    free_buffer(&in), free_buffer(&out), free_buffer(&parts);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

/* Empty sequences first, in between, twice and last. */
Test(kernels_cuda_rows, pool_of_an_empty_sequence_is_zeros)
{
    for (int32_t pooling = GPUSERVE_POOL_CLS; pooling <= GPUSERVE_POOL_LAST; pooling++)
        for (size_t f = 0; f < 3; f++)
            for (int32_t hidden = 33; hidden <= 128; hidden += 95)
                try_empty(&formats[f], hidden, pooling, f == 1);
}

Test(kernels_cuda_rows, normalize_and_activate)
{
    static const int32_t shapes[][2] = { { 1, 1 }, { 3, 7 }, { 5, 128 }, { 2, 1000 }, { 0, 4 } };
    const struct gpuserve_backend *cuda = cuda_backend();

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int32_t act = GPUSERVE_ACT_NONE; act <= GPUSERVE_ACT_SOFTMAX; act++) {
            const int32_t rows = shapes[i][0], cols = shapes[i][1], ld = cols + 2;
            const size_t n = (size_t)rows * (size_t)ld;
            struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
            struct buffer data = make_input(GPUSERVE_DTYPE_FLOAT32, n, 31, 6.0f);
            float *want = malloc(n * sizeof(float) + 1);
            struct gpuserve_op_rows op = { data.device, rows, cols, ld, act };
            struct gpuserve_op_rows same = { want, rows, cols, ld, act };

            memcpy(want, data.host, n * sizeof(float));
            begin_any(stream);
            /* NONE means normalize here. */
            cr_assert_eq(act ? cuda->activate(stream, &op) : cuda->normalize(stream, &op),
                         GPUSERVE_OK);
            cr_assert_eq(act ? gsv_backend_ref()->activate(NULL, &same)
                             : gsv_backend_ref()->normalize(NULL, &same),
                         GPUSERVE_OK);
            finish(stream, data.device);
            cuda->stream_destroy(&stream);
            download(&data);
            cr_expect_leq(distance(data.host, want, n), 1e-6, "activation %d, %d x %d", act, rows,
                          cols);
            free(want);
            free_buffer(&data);
        }
    }
}
