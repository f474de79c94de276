/*
 * test_attention.c - attention against ref: tensor core kernels with each tile height, and the
 * generic kernel.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPAN 210 /* longest text that biases and position indices cover */
#define POSITION_ROWS 40

struct attention_case {
    struct lengths lengths;
    int32_t n_heads, head_size;
    bool bias;
    float gain; /* scale of Q: sharpness of the softmax */
    /* options */
    int32_t n_kv_heads; /* 0: n_heads */
    bool causal;
    int32_t window;
    float softcap;
    bool position_key, position_query; /* disentangled */
    int32_t left_out; /* last keys of each text that no query reads; one key stays */
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
    /* The options alone and together, with and without a fast kernel for the head size. */
    { { 3, { 5, 70, 1 } }, 4, 64, false, 1.0f, .n_kv_heads = 2 },
    { { 3, { 5, 70, 0 } }, 6, 128, true, 1.0f, .n_kv_heads = 1 },
    { { 2, { 9, 40 } }, 6, 20, true, 1.0f, .n_kv_heads = 3 },
    { { 4, { 1, 64, 65, 130 } }, 2, 64, false, 1.0f, .causal = true },
    { { 2, { 33, 7 } }, 2, 36, false, 8.0f, .causal = true },
    { { 3, { 3, 200, 64 } }, 2, 32, false, 1.0f, .window = 5 },
    { { 2, { 200, 65 } }, 2, 64, false, 8.0f, .window = 64 },
    { { 2, { 63, 130 } }, 1, 128, true, 1.0f, .window = 500 },
    { { 2, { 30, 9 } }, 2, 24, false, 1.0f, .window = 1 },
    { { 2, { 200, 65 } }, 2, 64, false, 8.0f, .causal = true, .window = 70 },
    { { 3, { 17, 80, 2 } }, 2, 64, false, 30.0f, .softcap = 5.0f },
    { { 2, { 17, 40 } }, 2, 40, true, 30.0f, .softcap = 2.0f },
    { { 2, { 90, 13 } }, 2, 32, false, 1.0f, .position_key = true, .position_query = true },
    { { 2, { 90, 130 } }, 2, 64, true, 4.0f, .position_key = true, .position_query = true },
    { { 3, { 64, 0, 33 } }, 2, 64, false, 1.0f, .position_key = true },
    { { 2, { 64, 33 } }, 2, 64, false, 1.0f, .position_query = true },
    { { 2, { 20, 33 } }, 2, 128, false, 1.0f, .position_key = true, .position_query = true },
    { { 2, { 20, 33 } }, 2, 12, false, 1.0f, .position_key = true, .position_query = true },
    { { 2, { 100, 30 } },
      3,
      64,
      true,
      4.0f,
      .causal = true,
      .window = 20,
      .softcap = 3.0f,
      .position_key = true,
      .position_query = true },
    { { 4, { 1, 150, 64, 0 } },
      4,
      256,
      true,
      1.0f,
      .n_kv_heads = 1,
      .causal = true,
      .window = 80,
      .softcap = 4.0f },
    { { 2, { 130, 15 } }, 3, 256, false, 4.0f, .n_kv_heads = 1, .window = 40 },
    /* fewer keys than queries, in each kernel */
    { { 4, { 5, 70, 1, 130 } }, 2, 64, true, 1.0f, .left_out = 20 },
    { { 3, { 40, 66, 2 } }, 2, 20, true, 8.0f, .left_out = 3 },
    { { 2, { 64, 90 } }, 2, 64, false, 1.0f, .n_kv_heads = 1, .window = 70, .left_out = 32 },
    { { 2, { 20, 33 } },
      2,
      64,
      false,
      1.0f,
      .position_key = true,
      .position_query = true,
      .left_out = 9 },
    { { 2, { 70, 15 } }, 2, 256, false, 4.0f, .causal = true, .left_out = 11 },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* Inputs besides QKV, on both sides. */
struct tables {
    struct buffer bias, position_key, position_query, index;
    int32_t host_index[2 * SPAN - 1];
};

static int32_t kv_heads(const struct attention_case *c)
{
    return c->n_kv_heads > 0 ? c->n_kv_heads : c->n_heads;
}

/* Elements of a row of QKV. */
static size_t row_width(const struct attention_case *c)
{
    return (size_t)(c->n_heads + 2 * kv_heads(c)) * (size_t)c->head_size;
}

/* Each distance near 0 has its own row of the position matrices; farther ones share rows. */
static int32_t bucket(int32_t distance)
{
    const int32_t far = abs(distance) < 10 ? abs(distance) : 10 + (abs(distance) - 10) / 25;

    return POSITION_ROWS / 2 + (distance < 0 ? -far : far);
}

static struct tables *make_tables(const struct attention_case *c, uint32_t dtype)
{
    const size_t rows = POSITION_ROWS * (size_t)c->n_heads * (size_t)c->head_size;
    struct tables *t = malloc(sizeof(*t));

    cr_assert_not_null(t);
    t->bias =
        make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)c->n_heads * (2 * (size_t)SPAN - 1), 82, 1.0f);
    t->position_key = make_input(dtype, rows, 83, 1.0f);
    t->position_query = make_input(dtype, rows, 84, 1.0f);
    t->index = make_output(GPUSERVE_DTYPE_FLOAT32, 2 * SPAN - 1);
    for (int32_t i = 0; i < 2 * SPAN - 1; i++)
        t->host_index[i] = bucket(i - (SPAN - 1));
    cr_assert_eq(cuda_backend()->memory_write(cuda_device(), t->index.device, t->host_index,
                                              sizeof(t->host_index), NULL),
                 GPUSERVE_OK);
    return t;
}

static void free_tables(struct tables *t)
{
    free_buffer(&t->bias), free_buffer(&t->position_key);
    free_buffer(&t->position_query), free_buffer(&t->index);
    free(t);
}

static struct gpuserve_op_attention op_of(const struct attention_case *c, const struct tables *t,
                                          bool on_device)
{
    const struct gpuserve_op_attention op = {
        .relative_bias = !c->bias    ? NULL
                         : on_device ? t->bias.device
                                     : t->bias.host,
        .bias_span = SPAN,
        .n_heads = c->n_heads,
        .head_size = c->head_size,
        .scale = 1.0f / sqrtf((float)c->head_size),
        .n_kv_heads = c->n_kv_heads,
        .causal = c->causal,
        .window = c->window,
        .softcap = c->softcap,
        .position_key = !c->position_key ? NULL
                        : on_device      ? t->position_key.device
                                         : t->position_key.host,
        .position_query = !c->position_query ? NULL
                          : on_device        ? t->position_query.device
                                             : t->position_query.host,
        .position_index = on_device ? t->index.device : t->host_index,
        .position_rows = POSITION_ROWS,
    };

    return op;
}

/* The keys of each text that queries read; NULL: all. */
static const int32_t *count_keys(const struct attention_case *c)
{
    static int32_t counts[8];

    for (int32_t i = 0; i < c->lengths.n; i++) {
        const int32_t n = c->lengths.of[i];

        counts[i] = n > c->left_out ? n - c->left_out : n > 0;
    }
    return c->left_out > 0 ? counts : NULL;
}

/* The device's rows as floats. The stream's `n_heads` determines the tile height. */
static struct buffer run_cuda(const struct attention_case *c, uint32_t dtype, int32_t stream_heads,
                              struct buffer *qkv, const struct tables *tables)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    struct gpuserve_host_batch host = make_host_batch(&c->lengths, 9, 1);
    struct gpuserve_stream *stream =
        cuda_stream(dtype, host.n_tokens + 40, c->lengths.n + 3, stream_heads, 0);
    struct gpuserve_batch batch;
    struct buffer out;
    struct gpuserve_op_attention op = op_of(c, tables, true);

    host.key_counts = count_keys(c);
    batch = begin(stream, &host);
    out = make_output(dtype, (size_t)batch.n_rows * width);
    op.batch = &batch;
    op.qkv = qkv->device;
    op.out = out.device;
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
                      const struct tables *tables)
{
    struct gpuserve_host_batch host = make_host_batch(&c->lengths, 9, 1);
    struct gpuserve_batch batch = oracle_batch(&host);
    const size_t width = (size_t)c->n_heads * (size_t)c->head_size;
    float *want = malloc((size_t)host.n_tokens * width * sizeof(float));
    struct gpuserve_op_attention op = op_of(c, tables, false);

    batch.key_counts = count_keys(c);
    op.batch = &batch;
    op.qkv = qkv->host;
    op.out = want;
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
    const size_t row = row_width(c);
    const size_t n_tokens = (size_t)tokens_of(&c->lengths);
    struct buffer qkv = make_input(dtype, (n_tokens + 40) * row, seed, 1.0f);

    for (size_t r = 0; r < n_tokens; r++)
        for (size_t j = 0; j < width; j++)
            qkv.host[r * row + j] *= c->gain; /* see download() below */
    for (size_t i = n_tokens * row; i < qkv.n; i++)
        qkv.host[i] = NAN;
    upload(&qkv);
    download(&qkv); /* scaling may give values that the format cannot represent */
    return qkv;
}

static void compare_with_ref(const struct attention_case *c, const struct format *format)
{
    const bool is_exact = format->dtype == GPUSERVE_DTYPE_FLOAT32;
    const size_t n = (size_t)(tokens_of(&c->lengths) * c->n_heads * c->head_size);
    struct buffer qkv = make_qkv(c, format->dtype, 81);
    struct tables *tables = make_tables(c, format->dtype);
    float *want = run_ref(c, &qkv, tables);
    struct buffer got = run_cuda(c, format->dtype, c->n_heads, &qkv, tables);

    /* A score of size s has an error of s * 6e-8 in its weight. */
    cr_expect_leq(distance(got.host, want, n),
                  format->tolerance + (is_exact ? 1e-6 * (double)c->gain : 0), "%s, case %td",
                  format->name, c - cases);
    free(want);
    free_tables(tables);
    free_buffer(&got), free_buffer(&qkv);
}

Test(kernels_cuda_attention, matches_ref)
{
    for (size_t i = 0; i < N_CASES * 3; i++) {
        /* float32 has a kernel of its own; float16 and bfloat16, which take turns, share one. */
        const bool is_twin = IS_SANITIZED && i % 3 == 1 + i / 3 % 2;

        if (!is_twin)
            compare_with_ref(&cases[i / 3], &formats[i % 3]);
    }
}

/* Texts of several key tiles, of one tile, and shorter than a window. */
static const struct attention_case invariant_cases[] = {
    { { 4, { 70, 1, 130, 33 } }, 2, 64, true, 1.0f },
    { { 4, { 70, 1, 130, 33 } }, 4, 64, true, 1.0f, .n_kv_heads = 2, .causal = true },
    { { 4, { 70, 1, 200, 33 } }, 2, 64, false, 1.0f, .window = 20, .softcap = 4.0f },
    { { 4, { 70, 1, 200, 33 } }, 2, 128, false, 1.0f, .causal = true, .window = 50 },
    { { 3, { 70, 1, 140 } }, 2, 256, false, 1.0f, .n_kv_heads = 1, .window = 30 },
    { { 3, { 70, 1, 80 } }, 2, 64, false, 1.0f, .position_key = true, .position_query = true },
};
#define N_INVARIANT (sizeof(invariant_cases) / sizeof(invariant_cases[0]))

static void try_heights(const struct attention_case *c, const struct format *format)
{
    /* 16, 32 and 64 rows on the emulator's 16 cores; the larger ones cover devices with about
     * 130. */
    static const int32_t heads[] = { 1, 3, 20, 1000 };
    struct buffer qkv = make_qkv(c, format->dtype, 91);
    struct tables *tables = make_tables(c, format->dtype);
    struct buffer want = run_cuda(c, format->dtype, heads[0], &qkv, tables);

    for (size_t i = 1; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct buffer got = run_cuda(c, format->dtype, heads[i], &qkv, tables);

        cr_expect_eq(memcmp(got.host, want.host, got.n * sizeof(float)), 0,
                     "%s, case %td, %d heads", format->name, c - invariant_cases, heads[i]);
        free_buffer(&got);
    }
    free_buffer(&want);
    free_tables(tables);
    free_buffer(&qkv);
}

/* The tile height of 16, 32 or 64 rows depends on the device's occupancy; a text's bits must not
 * depend on it. */
Test(kernels_cuda_attention, bits_do_not_depend_on_the_tile_height)
{
    for (size_t i = 0; i < N_INVARIANT; i++)
        for (size_t f = 0; f < 3; f++)
            if (!is_left_out(3 * i + f))
                try_heights(&invariant_cases[i], &formats[f]);
}

static void try_neighbours(const struct attention_case *among, const struct format *format)
{
    const size_t width = (size_t)among->n_heads * (size_t)among->head_size;
    const size_t row = row_width(among);
    struct buffer qkv = make_qkv(among, format->dtype, 93);
    struct tables *tables = make_tables(among, format->dtype);
    struct buffer together = run_cuda(among, format->dtype, 2, &qkv, tables);
    size_t at = 0;

    for (int i = 0; i < among->lengths.n; i++) {
        const size_t n = (size_t)among->lengths.of[i];
        struct attention_case alone = *among;
        struct buffer own, single;

        alone.lengths = (struct lengths){ 1, { (int32_t)n } };
        own = make_qkv(&alone, format->dtype, 94);
        memcpy(own.host, qkv.host + at * row, n * row * sizeof(float));
        upload(&own);
        single = run_cuda(&alone, format->dtype, 2, &own, tables);
        cr_expect_eq(memcmp(together.host + at * width, single.host, n * width * sizeof(float)), 0,
                     "%s, case %td, text %d", format->name, among - invariant_cases, i);
        free_buffer(&single), free_buffer(&own);
        at += n;
    }
    free_tables(tables);
    free_buffer(&together), free_buffer(&qkv);
}

/* The same text alone and in a batch. */
Test(kernels_cuda_attention, bits_do_not_depend_on_the_neighbours)
{
    for (size_t i = 0; i < N_INVARIANT; i++)
        for (size_t f = 0; f < 3; f++)
            if (!is_left_out(3 * i + f))
                try_neighbours(&invariant_cases[i], &formats[f]);
}

/* A NaN in one text affects only the same head of the same text, and no query that does not attend
 * to its key. */
Test(kernels_cuda_attention, nan_stays_in_its_sequence_and_head)
{
    static const struct attention_case nan_cases[] = {
        { { 3, { 5, 20, 33 } }, 2, 32, false, 1.0f },
        { { 3, { 5, 20, 33 } }, 2, 32, false, 1.0f, .causal = true },
        { { 3, { 5, 20, 33 } }, 2, 32, false, 1.0f, .window = 3 },
        { { 3, { 5, 20, 33 } }, 2, 20, false, 1.0f, .window = 3, .causal = true },
    };
    const int32_t key = 7; /* of the second text, its second head */

    for (size_t i = 0; i < 4 * 3; i++) {
        const struct attention_case *c = &nan_cases[i / 3];
        const struct format *format = &formats[i % 3];
        const int32_t width = 2 * c->head_size;
        struct buffer qkv = make_qkv(c, format->dtype, 95);
        struct tables *tables = make_tables(c, format->dtype);
        struct buffer out;

        qkv.host[key * 3 * width + width + c->head_size + 2] = NAN;
        upload(&qkv);
        out = run_cuda(c, format->dtype, 2, &qkv, tables);
        for (int32_t j = 0; j < 58 * width; j++) {
            const int32_t row = j / width;
            const bool attends = row >= 5 && row < 25 && (!c->causal || row >= key) &&
                                 (c->window == 0 || abs(row - key) <= c->window);

            cr_assert_eq(isnan(out.host[j]), attends && j % width >= c->head_size,
                         "%s, case %zu: row %d column %d is %g", format->name, i / 3, row,
                         j % width, (double)out.host[j]);
        }
        free_tables(tables);
        free_buffer(&out), free_buffer(&qkv);
    }
}
