/*
 * test_gates.c - rotate, glu, route and add_scaled against ref.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *copy_of(const struct buffer *buffer)
{
    float *copy = malloc(buffer->n * sizeof(float) + 1);

    cr_assert_not_null(copy);
    memcpy(copy, buffer->host, buffer->n * sizeof(float));
    return copy;
}

/* --- rotate --- */

struct rotate_case {
    int32_t n_heads, n_kv_heads, head_size;
    int32_t rotary; /* 0: no rotation */
    int32_t interleaved;
    bool query_norm, key_norm;
};

static const struct rotate_case rotate_cases[] = {
    { 2, 2, 64, 64, 0, false, false },  { 4, 2, 64, 64, 0, true, true },
    { 3, 1, 256, 256, 0, true, true },  { 2, 1, 128, 128, 1, false, false },
    { 2, 2, 64, 32, 0, false, true },   { 2, 2, 64, 16, 1, true, false },
    { 2, 2, 64, 0, 0, true, true },     { 2, 2, 64, 0, 0, false, true },
    { 1, 1, 512, 512, 0, true, true },  { 2, 2, 64, 24, 0, true, true }, /* halves of 12 */
    { 3, 3, 20, 10, 0, true, true },    { 3, 3, 20, 20, 1, true, true },
    { 2, 1, 13, 6, 0, true, true },     { 2, 1, 13, 12, 1, false, true }, /* an odd head size */
    { 5, 5, 2, 2, 0, false, false },    { 1, 1, 1, 0, 0, true, true },
    { 7, 1, 300, 100, 1, true, false },
};
#define N_ROTATE (sizeof(rotate_cases) / sizeof(rotate_cases[0]))

static void try_rotate(const struct rotate_case *c, const struct format *format)
{
    static const struct lengths lengths = { 4, { 1, 5, 2, 9 } };
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t row = (size_t)(c->n_heads + 2 * c->n_kv_heads) * (size_t)c->head_size;
    const size_t values = (size_t)(c->n_heads + c->n_kv_heads) * (size_t)c->head_size;
    struct gpuserve_host_batch host = make_host_batch(&lengths, 50, 1);
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
    struct gpuserve_batch batch = begin(stream, &host);
    const struct gpuserve_batch plain = oracle_batch(&host);
    struct buffer qkv = make_input(format->dtype, (size_t)batch.n_rows * row, 41, 2.0f);
    struct buffer query = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)c->head_size, 42, 1.0f);
    struct buffer key = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)c->head_size, 43, 1.0f);
    struct buffer table = make_input(GPUSERVE_DTYPE_FLOAT32, 16 * (size_t)c->rotary, 44, 1.0f);
    float *want = copy_of(&qkv), *before = copy_of(&qkv);
    const struct gpuserve_op_rotate op = { .batch = &batch,
                                           .qkv = qkv.device,
                                           .query_gamma = c->query_norm ? query.device : NULL,
                                           .key_gamma = c->key_norm ? key.device : NULL,
                                           .table = c->rotary ? table.device : NULL,
                                           .eps = 1e-6f,
                                           .n_heads = c->n_heads,
                                           .n_kv_heads = c->n_kv_heads,
                                           .head_size = c->head_size,
                                           .rotary = c->rotary,
                                           .interleaved = c->interleaved };
    struct gpuserve_op_rotate same = op;

    same.batch = &plain;
    same.qkv = want;
    same.query_gamma = c->query_norm ? query.host : NULL;
    same.key_gamma = c->key_norm ? key.host : NULL;
    same.table = c->rotary ? table.host : NULL;
    cr_assert_eq(gsv_backend_ref()->rotate(NULL, &same), GPUSERVE_OK);
    cr_assert_eq(cuda->rotate(stream, &op), GPUSERVE_OK);
    finish(stream, qkv.device);
    download(&qkv);
    cr_expect_leq(distance(qkv.host, want, (size_t)host.n_tokens * row), format->tolerance,
                  "%s, case %td", format->name, c - rotate_cases);
    for (size_t i = 0; i < qkv.n; i++) {
        cr_assert(isfinite(qkv.host[i]));
        cr_assert(i % row < values || qkv.host[i] == before[i], "the values do not change");
    }
    free(want), free(before);
    free_buffer(&qkv), free_buffer(&query), free_buffer(&key), free_buffer(&table);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

Test(kernels_cuda_gates, rotate)
{
    for (size_t i = 0; i < N_ROTATE * 3; i++)
        try_rotate(&rotate_cases[i / 3], &formats[i % 3]);
}

/* --- glu --- */

static void try_glu(const struct format *format, int32_t rows, int32_t cols, int32_t activation,
                    bool in_place)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const int32_t in_ld = 2 * cols + (rows % 2 ? 8 : 0), out_ld = in_place ? in_ld : cols;
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
    struct buffer in = make_input(format->dtype, (size_t)rows * (size_t)in_ld, 51, 4.0f);
    struct buffer out = make_output(format->dtype, (size_t)rows * (size_t)out_ld);
    struct buffer *to = in_place ? &in : &out;
    float *want = copy_of(to);
    const struct gpuserve_op_glu op = { .in = in.device,
                                        .out = to->device,
                                        .rows = rows,
                                        .cols = cols,
                                        .in_ld = in_ld,
                                        .out_ld = out_ld,
                                        .activation = activation };
    struct gpuserve_op_glu same = op;

    same.in = in_place ? want : in.host;
    same.out = want;
    cr_assert_eq(gsv_backend_ref()->glu(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->glu(stream, &op), GPUSERVE_OK);
    finish(stream, to->device);
    cuda->stream_destroy(&stream);
    download(to);
    cr_expect_leq(distance(to->host, want, to->n), format->tolerance,
                  "%s, %d x %d, activation %d, in place %d", format->name, rows, cols, activation,
                  in_place);
    free(want);
    free_buffer(&in), free_buffer(&out);
}

Test(kernels_cuda_gates, glu)
{
    static const int32_t shapes[][2] = { { 1, 1 },    { 3, 7 }, { 5, 128 },
                                         { 2, 1000 }, { 0, 8 }, { 37, 36 } };

    for (int32_t activation = GPUSERVE_ACT_NONE; activation <= GPUSERVE_ACT_SIGMOID; activation++)
        for (size_t i = 0; i < 6 * 3; i++)
            try_glu(&formats[i % 3], shapes[i / 3][0], shapes[i / 3][1], activation,
                    activation % 2 == 0);
}

/* --- mixture of experts --- */

static void try_route(const struct format *format, int32_t rows, int32_t experts, int32_t top_k,
                      bool equal)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t n = (size_t)rows * (size_t)experts;

    for (int renormalize = 0; renormalize < 2; renormalize++) {
        struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
        struct buffer logits = make_input(format->dtype, n, 61, 5.0f);
        struct buffer weights = make_output(GPUSERVE_DTYPE_FLOAT32, n);
        float *want = malloc(n * sizeof(float) + 1);
        struct gpuserve_op_route op = { logits.device, weights.device, rows,
                                        experts,       top_k,          renormalize };
        struct gpuserve_op_route same = { logits.host, want, rows, experts, top_k, renormalize };

        for (size_t i = 0; equal && i < n; i++)
            logits.host[i] = (float)(i % 3);
        upload(&logits);
        cr_assert_eq(gsv_backend_ref()->route(NULL, &same), GPUSERVE_OK);
        begin_any(stream);
        cr_assert_eq(cuda->route(stream, &op), GPUSERVE_OK);
        finish(stream, weights.device);
        cuda->stream_destroy(&stream);
        download(&weights);
        cr_expect_leq(distance(weights.host, want, n), 1e-6, "%s, %d of %d experts", format->name,
                      top_k, experts);
        for (size_t i = 0; i < n; i++)
            cr_assert_eq(weights.host[i] == 0.0f, want[i] == 0.0f, "%s, expert %zu of %d",
                         format->name, i % (size_t)experts, experts);
        free(want);
        free_buffer(&logits), free_buffer(&weights);
    }
}

Test(kernels_cuda_gates, route)
{
    static const int32_t shapes[][3] = { { 1, 1, 1 },  { 5, 8, 2 },   { 37, 8, 8 },
                                         { 3, 33, 4 }, { 2, 100, 1 }, { 0, 8, 2 } };

    for (size_t i = 0; i < 6 * 3; i++)
        for (int equal = 0; equal < 2; equal++)
            try_route(&formats[i % 3], shapes[i / 3][0], shapes[i / 3][1], shapes[i / 3][2], equal);
}

/* Rows of weight 0 hold NaN: they count as zeros. */
static void try_add_scaled(const struct format *format, int32_t rows, int32_t cols, bool first,
                           bool weighted)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const int32_t experts = 3;
    const size_t n = (size_t)rows * (size_t)cols;
    struct gpuserve_stream *stream = cuda_stream(format->dtype, 64, 8, 1, 0);
    struct buffer in = make_input(format->dtype, n, 71, 1.0f);
    struct buffer out = first ? make_output(format->dtype, n) : make_input(format->dtype, n, 72, 1);
    struct buffer weights = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)(rows * experts), 73, 2.0f);
    float *want = copy_of(&out);
    struct gpuserve_op_add_scaled op = { .out = out.device,
                                         .in = in.device,
                                         .weights_ld = experts,
                                         .rows = rows,
                                         .cols = cols,
                                         .first = first,
                                         .factor = 0.75f };
    struct gpuserve_op_add_scaled same = op;

    for (size_t i = 0; weighted && i < n; i++) {
        const size_t row = i / (size_t)cols;

        if (row % 2 == 1) {
            in.host[i] = NAN;
            weights.host[row * (size_t)experts + 1] = 0.0f;
        }
    }
    upload(&in), upload(&weights);
    op.weights = weighted ? (const float *)weights.device + 1 : NULL;
    same.weights = weighted ? weights.host + 1 : NULL;
    same.out = want;
    same.in = in.host;
    cr_assert_eq(gsv_backend_ref()->add_scaled(NULL, &same), GPUSERVE_OK);
    begin_any(stream);
    cr_assert_eq(cuda->add_scaled(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    cuda->stream_destroy(&stream);
    download(&out);
    cr_expect_leq(distance(out.host, want, n), format->tolerance,
                  "%s, %d x %d, first %d, weighted %d", format->name, rows, cols, first, weighted);
    free(want);
    free_buffer(&in), free_buffer(&out), free_buffer(&weights);
}

Test(kernels_cuda_gates, add_scaled)
{
    static const int32_t shapes[][2] = { { 1, 1 },    { 3, 7 }, { 5, 128 },
                                         { 2, 1000 }, { 0, 8 }, { 37, 36 } };

    for (size_t i = 0; i < 6 * 3; i++)
        for (int way = 0; way < 4; way++)
            try_add_scaled(&formats[i % 3], shapes[i / 3][0], shapes[i / 3][1], way & 1, way & 2);
}
