/*
 * test_rows.c - embed, add_norm, pool, normalize, activate, max_sim and compact against ref.
 */
#include "tests/kernels_cuda/harness.h"

#include <gpuserve/retrieval.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The models' widths, and widths without a register kernel. */
static const int32_t widths[] = { 128, 256, 312, 384,  512,  768,  1024, 1,
                                  7,   32,  100, 1152, 1540, 2560, 4096, 4104 };
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

static const struct lengths lengths = { 4, { 1, 5, 2, 9 } };

/* Options of a norm: all kinds, with and without gamma and beta. */
struct norm_options {
    int32_t kind;
    bool gamma, beta;
};
static const struct norm_options norms[] = {
    { GPUSERVE_NORM_LAYER, true, true },  { GPUSERVE_NORM_LAYER, false, false },
    { GPUSERVE_NORM_LAYER, true, false }, { GPUSERVE_NORM_RMS, true, false },
    { GPUSERVE_NORM_RMS, true, true },    { GPUSERVE_NORM_NONE, false, false },
    { GPUSERVE_NORM_NONE, true, true },
};
#define N_NORMS (sizeof(norms) / sizeof(norms[0]))

static void try_embed(const struct format *format, int32_t hidden, const struct norm_options *norm,
                      bool bare, float word_scale)
{
    const struct gpuserve_backend *cuda = cuda_backend();
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
    const struct gpuserve_op_embed op = { .batch = &batch,
                                          .out = out.device,
                                          .word = word.device,
                                          .position = bare ? NULL : position.device,
                                          .type = bare ? NULL : type.device,
                                          .gamma = norm->gamma ? gamma.device : NULL,
                                          .beta = norm->beta ? beta.device : NULL,
                                          .eps = 1e-5f,
                                          .hidden = hidden,
                                          .norm = norm->kind,
                                          .word_scale = word_scale };
    struct gpuserve_op_embed same = op;

    same.batch = &plain;
    same.out = want;
    same.word = word.host;
    same.position = bare ? NULL : position.host;
    same.type = bare ? NULL : type.host;
    same.gamma = norm->gamma ? gamma.host : NULL;
    same.beta = norm->beta ? beta.host : NULL;
    cr_assert_eq(cuda->embed(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    cr_assert_eq(gsv_backend_ref()->embed(NULL, &same), GPUSERVE_OK);
    cr_expect_leq(distance(out.host, want, (size_t)host.n_tokens * width), format->tolerance,
                  "%s, width %d, norm %d", format->name, hidden, norm->kind);
    for (size_t j = 0; j < out.n; j++)
        cr_assert(isfinite(out.host[j]), "rows past the tokens must be finite");
    free(want);
    free_buffer(&word), free_buffer(&position), free_buffer(&type);
    free_buffer(&gamma), free_buffer(&beta), free_buffer(&out);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

Test(kernels_cuda_rows, embed)
{
    for (size_t i = 0; i < N_WIDTHS * 3; i++)
        if (!is_left_out(i))
            try_embed(&formats[i % 3], widths[i / 3], &norms[0], i / 3 % 2 == 1, 0.0f);
}

Test(kernels_cuda_rows, embed_with_each_norm_and_scale)
{
    for (size_t i = 0; i < N_NORMS * 6; i++)
        if (!is_left_out(i))
            try_embed(&formats[i % 3], i % 6 < 3 ? 128 : 36, &norms[i / 6], i / 6 % 2 == 1,
                      i / 6 % 3 == 1 ? 0.0f : 11.5f);
}

/* Where an add_norm writes: apart, over its input or residual, and the sum over its own output. */
struct norm_places {
    bool residual, in_place;
    int sum; /* 0: none, 1: apart, 2: over the residual or input, 3: as `out` */
};

static void try_add_norm(const struct format *format, int32_t cols, int32_t rows,
                         const struct norm_places *places, const struct norm_options *norm)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t n = (size_t)rows * (size_t)cols;
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
    struct buffer in = make_input(format->dtype, n, 11, 3.0f);
    struct buffer more = make_input(format->dtype, n, 12, 1.0f);
    struct buffer gamma = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)cols, 13, 1.0f);
    struct buffer beta = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)cols, 14, 1.0f);
    struct buffer out = make_output(format->dtype, n), sum = make_output(format->dtype, n);
    float *want = malloc(n * sizeof(float) + 1), *want_sum = malloc(n * sizeof(float) + 1);
    struct buffer *to = places->in_place ? places->residual ? &more : &in : &out;
    struct buffer *sum_to = places->sum == 2   ? places->residual ? &more : &in
                            : places->sum == 3 ? to
                                               : &sum;
    const struct gpuserve_op_add_norm op = { .out = to->device,
                                             .in = in.device,
                                             .residual = places->residual ? more.device : NULL,
                                             .gamma = norm->gamma ? gamma.device : NULL,
                                             .beta = norm->beta ? beta.device : NULL,
                                             .eps = 1e-5f,
                                             .rows = rows,
                                             .cols = cols,
                                             .sum = places->sum ? sum_to->device : NULL,
                                             .norm = norm->kind };
    struct gpuserve_op_add_norm same = op;

    same.out = want;
    same.in = in.host;
    same.residual = places->residual ? more.host : NULL;
    same.gamma = norm->gamma ? gamma.host : NULL;
    same.beta = norm->beta ? beta.host : NULL;
    same.sum = places->sum ? want_sum : NULL;
    cr_assert_eq(gsv_backend_ref()->add_norm(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->add_norm(stream, &op), GPUSERVE_OK);
    finish(stream, to->device);
    cuda->stream_destroy(&stream);
    download(to);
    cr_expect_leq(distance(to->host, want, n), format->tolerance,
                  "%s, %d x %d, norm %d, residual %d, in place %d, sum %d", format->name, rows,
                  cols, norm->kind, places->residual, places->in_place, places->sum);
    if (places->sum && sum_to != to) {
        download(sum_to);
        cr_expect_leq(distance(sum_to->host, want_sum, n), format->tolerance,
                      "the sum: %s, %d x %d, residual %d, in place %d, sum %d", format->name, rows,
                      cols, places->residual, places->in_place, places->sum);
    }
    free(want), free(want_sum);
    free_buffer(&in), free_buffer(&more), free_buffer(&gamma), free_buffer(&beta);
    free_buffer(&out), free_buffer(&sum);
}

Test(kernels_cuda_rows, add_norm)
{
    static const int32_t row_counts[] = { 0, 1, 3, 4, 5, 37 };

    for (size_t i = 0; i < N_WIDTHS * 3; i++)
        for (size_t r = 0; r < sizeof(row_counts) / sizeof(row_counts[0]) && !is_left_out(i); r++)
            try_add_norm(&formats[i % 3], widths[i / 3], row_counts[r],
                         &(struct norm_places){ r % 2 == 1, r % 3 == 1, 0 }, &norms[0]);
}

/* Each kind with the sum apart, over an input, and overwritten by the output. */
Test(kernels_cuda_rows, add_norm_with_each_norm_and_sum)
{
    static const int32_t some_widths[] = { 128, 312, 1156, 33, 1152 };

    for (size_t i = 0; i < N_NORMS * 3 * 5; i++) {
        for (int p = 0; p < 16 && !is_left_out(i); p++) {
            const struct norm_places places = { p & 1, p & 2, p / 4 };

            try_add_norm(&formats[i % 3], some_widths[i / 3 % 5], 3, &places, &norms[i / 15]);
        }
    }
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
                if (!is_left_out(3 * (i + (size_t)pooling) + f))
                    try_pool(&formats[f], hiddens[i],
                             pooling % 2 ? hiddens[i] : (hiddens[i] + 1) / 2, pooling, f != 1);
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
        for (int32_t act = GPUSERVE_ACT_NONE; act <= GPUSERVE_ACT_LAYERNORM; act++) {
            const int32_t rows = shapes[i][0], cols = shapes[i][1], ld = cols + 2;
            const size_t n = (size_t)rows * (size_t)ld;
            struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
            struct buffer data = make_input(GPUSERVE_DTYPE_FLOAT32, n, 31, 6.0f);
            float *want = malloc(n * sizeof(float) + 1);
            struct buffer gamma = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)cols, 32, 1.0f);
            const bool bare = i % 2 == 1; /* a LayerNorm without gamma and beta */
            struct gpuserve_op_rows op = { .data = data.device,
                                           .rows = rows,
                                           .cols = cols,
                                           .ld = ld,
                                           .activation = act,
                                           .eps = 1e-5f,
                                           .gamma = bare ? NULL : gamma.device,
                                           .beta = bare ? NULL : gamma.device };
            struct gpuserve_op_rows same = op;

            same.data = want;
            same.gamma = same.beta = bare ? NULL : gamma.host;

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
            free_buffer(&data), free_buffer(&gamma);
        }
    }
}

enum { LATE_TEXTS = 6, LATE_QUERIES = 40, LATE_ROWS = 90, LATE_NUMBERS = 149, LATE_PLACES = 16 };

/* Two texts share a query; queries and texts are larger and smaller than tiles; one text has no
 * rows, and one no query. The others are those that a backend adds. */
static const struct gpuserve_max_sim_text late_texts[LATE_PLACES] = {
    { 0, 33, 0, 70 },  { 33, 1, 70, 1 },  { 33, 1, 71, 64 },
    { 0, 33, 135, 0 }, { 34, 0, 135, 5 }, { 34, 6, 140, 9 }
};

/* `size` bytes on the device, behind which is a guard. */
static struct buffer make_bytes(const void *from, size_t size)
{
    struct buffer buffer = make_output(GPUSERVE_DTYPE_FLOAT32, size / sizeof(float));

    cr_assert_eq(cuda_backend()->memory_write(cuda_device(), buffer.device, from, size, NULL),
                 GPUSERVE_OK);
    return buffer;
}

static void try_max_sim(const struct format *format, int32_t dim, bool normalize)
{
    static const struct lengths mix = { LATE_TEXTS, { 1, 1, 1, 1, 1, 1 } };
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_host_batch host = make_host_batch(&mix, 9, 1);
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 200, LATE_PLACES, 1, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    const struct gpuserve_batch plain = oracle_batch(&host);
    struct buffer in = make_input(format->dtype, LATE_ROWS * (size_t)dim, 41, 2.0f);
    struct buffer query = make_input(GPUSERVE_DTYPE_FLOAT32, LATE_QUERIES * (size_t)dim, 42, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, LATE_PLACES);
    struct buffer texts = make_bytes(late_texts, sizeof(late_texts)), rows;
    int32_t numbers[LATE_NUMBERS];
    float want[LATE_TEXTS];
    struct gpuserve_op_max_sim op = { .batch = &batch,
                                      .in = in.device,
                                      .query = query.device,
                                      .texts = texts.device,
                                      .out = out.device,
                                      .dim = dim,
                                      .normalize = normalize };
    struct gpuserve_op_max_sim same = op;

    for (int32_t i = 0; i < LATE_NUMBERS; i++)
        numbers[i] = (17 * i + 3) % LATE_ROWS;
    rows = make_bytes(numbers, sizeof(numbers));
    op.rows = rows.device;
    same.batch = &plain;
    same.in = in.host;
    same.query = query.host;
    same.texts = late_texts;
    same.rows = numbers;
    same.out = want;
    cr_assert_eq(gsv_backend_ref()->max_sim(NULL, &same), GPUSERVE_OK);
    cr_assert_eq(cuda->max_sim(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    for (int32_t s = 0; s < batch.n_sequences; s++)
        cr_expect_leq(distance(out.host + s, s < LATE_TEXTS ? want + s : &(float){ 0 }, 1), 3e-6,
                      "%s, dim %d, normalize %d, text %d", format->name, dim, normalize, s);
    for (int32_t s = batch.n_sequences; s < LATE_PLACES; s++)
        cr_assert(isnan(out.host[s]), "a score past the batch was written");
    free_buffer(&in), free_buffer(&query), free_buffer(&out), free_buffer(&texts);
    free_buffer(&rows);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

Test(kernels_cuda_rows, max_sim)
{
    static const int32_t dims[] = { 16, 33, 128 };

    for (size_t i = 0; i < 3 * sizeof(dims) / sizeof(dims[0]); i++)
        for (int normalize = 0; normalize < 2 && !is_left_out(i); normalize++)
            try_max_sim(&formats[i % 3], dims[i / 3], normalize);
}

/* A NaN in a row of one text alone, and rows of zeros, which have no direction. */
Test(kernels_cuda_rows, max_sim_of_nan_and_of_zeros)
{
    static const struct lengths mix = { 3, { 1, 1, 1 } };
    static const struct gpuserve_max_sim_text three[4] = { { 0, 2, 0, 2 },
                                                           { 0, 2, 2, 2 },
                                                           { 0, 2, 4, 1 } };
    static const int32_t numbers[] = { 0, 1, 2, 3, 4 };
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_host_batch host = make_host_batch(&mix, 9, 1);
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT32, 64, 4, 1, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    struct buffer in = make_input(GPUSERVE_DTYPE_FLOAT32, 5 * 8, 43, 1.0f);
    struct buffer query = make_input(GPUSERVE_DTYPE_FLOAT32, 2 * 8, 44, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, 4);
    struct buffer texts = make_bytes(three, sizeof(three));
    struct buffer rows = make_bytes(numbers, sizeof(numbers));
    const struct gpuserve_op_max_sim op = {
        &batch, in.device, query.device, texts.device, rows.device, out.device, 8, 1
    };

    in.host[3 * 8 + 7] = NAN;
    for (int i = 0; i < 8; i++)
        in.host[4 * 8 + i] = 0;
    upload(&in);
    cr_assert_eq(cuda->max_sim(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    download(&out);
    cr_expect(isfinite(out.host[0]));
    cr_expect(isnan(out.host[1]));
    cr_expect_eq(out.host[2], 0);
    free_buffer(&in), free_buffer(&query), free_buffer(&out), free_buffer(&texts);
    free_buffer(&rows);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

enum { COMPACT_ROWS = 3, MAX_COMPACT = 300 };

static size_t compact_bytes(uint32_t precision, size_t cols)
{
    if (precision == GPUSERVE_PRECISION_FLOAT16)
        return 2 * cols;
    return precision <= GPUSERVE_PRECISION_UINT8 ? cols : (cols + 7) / 8;
}

static void try_compact(int32_t cols, uint32_t precision)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
    const int32_t ld = cols + 2;
    const size_t words = (compact_bytes(precision, (size_t)cols) + 3) / 4 + 1;
    const size_t n = COMPACT_ROWS * words;
    struct buffer in = make_input(GPUSERVE_DTYPE_FLOAT32, COMPACT_ROWS * (size_t)ld, 61, 1.5f);
    struct buffer ranges = make_input(GPUSERVE_DTYPE_FLOAT32, 2 * (size_t)cols, 62, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, n);
    uint32_t want[COMPACT_ROWS * (MAX_COMPACT / 2 + 2)], got[COMPACT_ROWS * (MAX_COMPACT / 2 + 2)];
    struct gpuserve_op_compact op = { .in = in.device,
                                      .out = out.device,
                                      .ranges = ranges.device,
                                      .rows = COMPACT_ROWS,
                                      .cols = cols,
                                      .ld = ld,
                                      .words = (int32_t)words,
                                      .precision = precision };
    struct gpuserve_op_compact same = op;

    for (int32_t c = 0; c < cols; c++) { /* minima below maxima, some equal */
        ranges.host[c] = -fabsf(ranges.host[c]);
        ranges.host[cols + c] = c % 5 == 2 ? ranges.host[c] : fabsf(ranges.host[cols + c]);
    }
    in.host[ld] = 1e30f;
    in.host[ld + cols - 1] = -3e-6f;
    in.host[2 * ld + cols / 2] = cols % 2 ? NAN : INFINITY;
    in.host[cols] = NAN; /* between two rows */
    upload(&in), upload(&ranges);
    same.in = in.host;
    same.ranges = ranges.host;
    same.out = want;
    cr_assert_eq(gsv_backend_ref()->compact(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->compact(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    cr_assert_eq(cuda->memory_read(cuda_device(), got, out.device, n * sizeof(*got), NULL),
                 GPUSERVE_OK);
    download(&out); /* looks at the guard */
    cr_expect_eq(memcmp(got, want, n * sizeof(*got)), 0, "%d columns, precision %u", cols,
                 precision);
    free_buffer(&in), free_buffer(&ranges), free_buffer(&out);
    cuda->stream_destroy(&stream);
}

Test(kernels_cuda_rows, compact)
{
    static const int32_t columns[] = { 1, 2, 31, 33, 100, 257 };

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY; one++)
            try_compact(columns[i], one);
}
