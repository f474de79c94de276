/*
 * test_rows.c - embed, norms, pooling, normalize, activate and compact on every target against ref.
 */
#include "tests/kernels/harness.h"

#include <gpuserve/retrieval.h>
#include <math.h>
#include <string.h>

static const int32_t widths[] = { 1, 3, 15, 16, 17, 128, 384, 387, 768, 1024 };

#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* ---------------------------------------------------------------------------------- LayerNorm */

static float *run_layernorm(const struct target *t, int32_t rows, int32_t cols, const float *in,
                            const float *residual, int in_place)
{
    const size_t n = (size_t)rows * (size_t)cols;
    float *gamma = make_floats((size_t)cols, 21), *beta = make_floats((size_t)cols, 22);
    float *out = make_poison(n), *copy = make_floats(n, 1);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, rows + 1, cols, 1, 32);
    struct gpuserve_op_add_norm op = {
        .out = out,
        .in = in,
        .residual = residual,
        .gamma = gamma,
        .beta = beta,
        .eps = 1e-12f,
        .rows = rows,
        .cols = cols,
    };

    if (in_place == 1) { /* out == in */
        memcpy(out, in, n * sizeof(float));
        op.in = out;
    } else if (in_place == 2 && residual) { /* out == residual */
        memcpy(out, residual, n * sizeof(float));
        op.residual = out;
    }
    cr_assert_eq(t->backend->add_norm(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    free_floats(gamma);
    free_floats(beta);
    free_floats(copy);
    return out;
}

/* Results have size 1: 3e-6 is about 25 float32 roundings, and the offset of 10 costs 4 bits of
 * each input in advance. */
Test(rows, add_norm_matches_ref)
{
    for (size_t w = 0; w < N_WIDTHS; w++) {
        for (int variant = 0; variant < 6; variant++) {
            const int32_t cols = widths[w], rows = variant == 0 ? 0 : variant == 1 ? 1 : 37;
            const size_t n = (size_t)rows * (size_t)cols;
            float *in = make_floats(n, 23), *residual = make_floats(n, 24);
            const float *second = variant % 2 ? residual : NULL;
            float *want;

            for (size_t i = 0; i < n && variant > 3; i++)
                in[i] += 10.0f;
            want = run_layernorm(target_at(0), rows, cols, in, second, 0);
            for (int b = 1; b < target_count(); b++) {
                float *got = run_layernorm(target_at(b), rows, cols, in, second, variant % 3);

                if (cols > 1) /* one column: only rounding, times 1e6 */
                    cr_expect(all_close(got, want, n, variant > 3 ? 2e-5f : 3e-6f, 0.0f),
                              "%s, %d columns, variant %d: %s", target_at(b)->name, (int)cols,
                              variant, difference());
                free_floats(got);
            }
            free_floats(want);
            free_floats(in);
            free_floats(residual);
        }
    }
}

/* Buffers that an add_norm shares. */
enum { APART, SUM_IS_IN, SUM_IS_RESIDUAL, OUT_IS_SUM, OUT_IS_IN, N_ALIASES };

struct norm_case {
    int32_t kind, alias;
    bool gamma, beta, sum, residual;
    int32_t gap; /* elements between two rows */
};

/* The result, and behind it the sum if it has a buffer of its own or of an input. */
static float *run_norm(const struct target *t, const struct norm_case *c, int32_t cols,
                       const float *in, const float *residual)
{
    enum { NORM_ROWS = 19 };
    const size_t n = NORM_ROWS * (size_t)(cols + c->gap);
    float *gamma = make_floats((size_t)cols, 21), *beta = make_floats((size_t)cols, 22);
    float *both = c->gap > 0 ? make_floats(2 * n, 25) : make_poison(2 * n);
    float *out = both, *sum = both + n;
    float *first = make_poison(n), *second = make_poison(n);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, NORM_ROWS, cols, 1, 32);
    struct gpuserve_op_add_norm op = {
        .gamma = c->gamma ? gamma : NULL,
        .beta = c->beta ? beta : NULL,
        .eps = 1e-6f,
        .rows = NORM_ROWS,
        .cols = cols,
        .norm = c->kind,
        .ld = c->gap > 0 ? cols + c->gap : 0,
    };

    memcpy(first, in, n * sizeof(float));
    memcpy(second, residual, n * sizeof(float));
    op.in = first;
    op.residual = c->residual ? second : NULL;
    op.sum = !c->sum                                      ? NULL
             : c->alias == SUM_IS_IN                      ? first
             : c->alias == SUM_IS_RESIDUAL && op.residual ? second
                                                          : sum;
    op.out = c->alias == OUT_IS_IN ? first : c->alias == OUT_IS_SUM && op.sum ? op.sum : out;
    cr_assert_eq(t->backend->add_norm(stream, &op), GPUSERVE_OK);
    if (op.sum && op.sum != sum)
        memcpy(sum, op.sum, n * sizeof(float));
    if (op.out != out)
        memcpy(out, op.out, n * sizeof(float));
    t->backend->stream_destroy(&stream);
    free_floats(gamma);
    free_floats(beta);
    free_floats(first);
    free_floats(second);
    return both;
}

Test(rows, add_norm_of_every_kind_and_alias_matches_ref)
{
    static const int32_t cols_of[] = { 3, 16, 33, 387 };

    for (int32_t i = 0; i < 3 * N_ALIASES * 16 * 4; i++) {
        const struct norm_case c = { i % 3,      i / 3 % N_ALIASES, i / 15 & 1,     i / 15 & 2,
                                     i / 15 & 4, i / 15 & 8,        i % 7 * (i & 1) };
        const int32_t cols = cols_of[i / 240];
        const size_t n = 19 * (size_t)(cols + c.gap);
        float *in = make_floats(n, 23), *residual = make_floats(n, 24);
        float *want = run_norm(target_at(0), &c, cols, in, residual);

        for (int b = 1; b < target_count(); b++) {
            float *got = run_norm(target_at(b), &c, cols, in, residual);

            cr_expect(all_close(got, want, 2 * n, 1e-5f, 3e-6f), "%s, %d columns, case %d: %s",
                      target_at(b)->name, (int)cols, (int)i, difference());
            free_floats(got);
        }
        free_floats(want);
        free_floats(in);
        free_floats(residual);
    }
}

struct embed_case {
    bool positions, types;
    int32_t norm;
    uint32_t table_dtype; /* 0: floats */
};

/* `tables` has 92 rows: 50 of words, 40 of positions, 2 of types. */
static float *run_embed(const struct target *t, const struct gpuserve_batch *batch, int32_t hidden,
                        const void *tables, struct embed_case c)
{
    const size_t row =
        (size_t)hidden * (c.table_dtype ? t->backend->table_size(c.table_dtype) : sizeof(float));
    const size_t n = (size_t)batch->n_rows * (size_t)hidden;
    float *gamma = make_floats((size_t)hidden, 21), *beta = make_floats((size_t)hidden, 22);
    float *out = make_poison(n);
    struct gpuserve_stream *stream =
        open_stream(t, GPUSERVE_DTYPE_FLOAT32, batch->n_rows, hidden, 1, 32);
    const struct gpuserve_op_embed op = {
        .batch = batch,
        .out = out,
        .word = tables,
        .position = c.positions ? (const char *)tables + 50 * row : NULL,
        .type = c.types ? (const char *)tables + 90 * row : NULL,
        .gamma = c.norm == GPUSERVE_NORM_LAYER ? gamma : NULL,
        .beta = c.norm == GPUSERVE_NORM_LAYER || c.positions ? beta : NULL,
        .eps = 1e-5f,
        .hidden = hidden,
        .norm = c.norm,
        .word_scale = c.norm == GPUSERVE_NORM_LAYER ? 0.0f : 27.7f,
        .table_dtype = c.table_dtype,
    };

    cr_assert_eq(t->backend->embed(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    free_floats(gamma);
    free_floats(beta);
    return out;
}

struct embed_input {
    int32_t ids[44], types[44], positions[44];
    struct gpuserve_batch batch;
};

static void make_embed_input(struct embed_input *in)
{
    static const int32_t lengths[] = { 3, 40, 1 };

    in->batch = make_batch(lengths, 3);
    for (int32_t i = 0; i < 44; i++) {
        in->ids[i] = i * 17 % 50;
        in->types[i] = i % 2;
        in->positions[i] = i % 40;
    }
    in->batch.ids = in->ids;
    in->batch.type_ids = in->types;
    in->batch.positions = in->positions;
}

Test(rows, embed_matches_ref)
{
    struct embed_input in;

    make_embed_input(&in);
    for (size_t w = 1; w < N_WIDTHS; w++) {
        const int32_t hidden = widths[w];
        float *tables = make_floats(92 * (size_t)hidden, 25);

        for (int variant = 0; variant < 12; variant++) {
            const struct embed_case c = { variant & 1, variant & 2, variant / 4, 0 };
            float *want = run_embed(target_at(0), &in.batch, hidden, tables, c);

            for (int b = 1; b < target_count(); b++) {
                float *got = run_embed(target_at(b), &in.batch, hidden, tables, c);

                cr_expect(all_close(got, want, 44 * (size_t)hidden, 3e-6f, 1e-6f),
                          "%s, %d columns, variant %d: %s", target_at(b)->name, (int)hidden,
                          variant, difference());
                free_floats(got);
            }
            free_floats(want);
        }
        free_floats(tables);
    }
}

/* Tables in 16 bits give the bits that float32 tables with the same numbers give. */
static void expect_narrow_tables(const struct target *t, const struct embed_input *in,
                                 int32_t hidden, struct embed_case c)
{
    const size_t n = 92 * (size_t)hidden;
    const uint32_t rounded =
        c.table_dtype == GPUSERVE_DTYPE_BFLOAT16 ? GPUSERVE_DTYPE_BFLOAT16 : GPUSERVE_DTYPE_FLOAT16;
    float *tables = make_floats(n, 26), *want, *got;
    uint16_t *narrow = calloc(n, sizeof(*narrow));

    for (size_t i = 0; i < n; i += 7)
        tables[i] *= 3e-5f; /* subnormal in float16 */
    cr_assert_eq(t->backend->table_size(c.table_dtype), sizeof(*narrow));
    cr_assert_eq(t->backend->memory_write_table(NULL, narrow, tables, n, c.table_dtype, NULL),
                 GPUSERVE_OK);
    round_to_16_bits(tables, n, rounded);
    got = run_embed(t, &in->batch, hidden, narrow, c);
    c.table_dtype = 0;
    want = run_embed(t, &in->batch, hidden, tables, c);
    cr_expect(memcmp(got, want, 44 * (size_t)hidden * sizeof(*got)) == 0, "%s, %d columns, norm %d",
              t->name, (int)hidden, (int)c.norm);
    free(narrow);
    free_floats(tables);
    free_floats(want);
    free_floats(got);
}

Test(rows, embed_reads_tables_in_16_bits)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT16, GPUSERVE_DTYPE_BFLOAT16,
                                       GPUSERVE_DTYPE_INT8 };
    struct embed_input in;

    make_embed_input(&in);
    for (int b = 1; b < target_count(); b++)
        for (size_t w = 1; w < N_WIDTHS; w++)
            for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
                for (int variant = 0; variant < 12; variant++)
                    expect_narrow_tables(
                        target_at(b), &in, widths[w],
                        (struct embed_case){ variant & 1, variant & 2, variant / 4, dtypes[d] });
}

/* ------------------------------------------------------------------------------------ pooling */

static float *run_pool(const struct target *t, const struct gpuserve_batch *batch, const float *in,
                       int32_t hidden, int32_t columns, int32_t pooling, bool normalize)
{
    const int32_t ld = columns + 7;
    float *out = make_poison((size_t)batch->n_sequences * (size_t)ld);
    struct gpuserve_stream *stream =
        open_stream(t, GPUSERVE_DTYPE_FLOAT32, batch->n_rows, hidden, 1, 32);
    const struct gpuserve_op_pool op = { .batch = batch,
                                         .in = in,
                                         .out = out,
                                         .pooling = pooling,
                                         .hidden = hidden,
                                         .columns = columns,
                                         .out_ld = ld,
                                         .normalize = normalize };

    cr_assert_eq(t->backend->pool(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

Test(rows, pool_matches_ref_in_all_six_kinds)
{
    static const int32_t lengths[] = { 1, 2, 61, 17 };
    const struct gpuserve_batch batch = make_batch(lengths, 4);

    for (size_t w = 0; w < N_WIDTHS; w++) {
        const int32_t hidden = widths[w];
        const int32_t columns = w % 2 ? hidden : (hidden + 1) / 2;
        float *in = make_floats(81 * (size_t)hidden, 31);

        for (int variant = 0; variant < 12; variant++) {
            const int32_t pooling = GPUSERVE_POOL_CLS + variant / 2;
            float *want = run_pool(target_at(0), &batch, in, hidden, columns, pooling, variant % 2);

            for (int b = 1; b < target_count(); b++) {
                float *got =
                    run_pool(target_at(b), &batch, in, hidden, columns, pooling, variant % 2);

                /* up to 61 additions of values up to 1, then a division by a norm that may be below
                 * 1 */
                cr_expect(all_close(got, want, 4 * (size_t)(columns + 7), 3e-6f, 2e-6f),
                          "%s, %d of %d columns, pooling %d: %s", target_at(b)->name, (int)columns,
                          (int)hidden, (int)pooling, difference());
                free_floats(got);
            }
            free_floats(want);
        }
        free_floats(in);
    }
}

/* Empty sequences first, in between, twice and last, with a guard value in every other row. A read
 * outside of a sequence gives the guard, or past the input an address sanitizer error. */
Test(rows, pool_of_an_empty_sequence_is_zeros)
{
    static const int32_t lengths[] = { 0, 2, 0, 0, 3, 0 };
    const struct gpuserve_batch batch = make_batch(lengths, 6);

    for (int b = 0; b < target_count(); b++) {
        for (int variant = 0; variant < 4 * 12; variant++) {
            const int32_t hidden = widths[4 + variant % 4], pooling = 1 + variant / 4 % 6;
            const bool normalize = variant >= 24;
            float *in = make_floats(5 * (size_t)hidden, 33), *out;

            for (int32_t i = 0; i < 5 * hidden; i++)
                in[i] = 1e6f + (float)i;
            out = run_pool(target_at(b), &batch, in, hidden, hidden, pooling, normalize);
            for (int32_t s = 0; s < 6; s++) {
                for (int32_t c = 0; c < hidden; c++) {
                    const float x = out[s * (hidden + 7) + c];

                    cr_assert(lengths[s] > 0 ? x > 0.0f : x == 0.0f,
                              "%s, pooling %d, sequence %d, column %d: %g", target_at(b)->name,
                              (int)pooling, (int)s, (int)c, x);
                }
            }
            free_floats(out);
            free_floats(in);
        }
    }
}

Test(rows, pool_keeps_a_nan_in_its_sequence)
{
    static const int32_t lengths[] = { 4, 9, 5 };
    const struct gpuserve_batch batch = make_batch(lengths, 3);
    float *in = make_floats(18 * 32, 32);

    in[6 * 32 + 3] = NAN;
    for (int b = 0; b < target_count(); b++) {
        for (int32_t pooling = GPUSERVE_POOL_MEAN; pooling <= GPUSERVE_POOL_WEIGHTED_MEAN;
             pooling++) {
            float *out = run_pool(target_at(b), &batch, in, 32, 32, pooling, false);

            for (int i = 0; i < 32; i++) {
                cr_assert(isfinite(out[i]), "%s, pooling %d", target_at(b)->name, (int)pooling);
                cr_assert(isfinite(out[2 * 39 + i]));
                cr_assert_eq(isnan(out[39 + i]), i == 3, "%s, pooling %d, column %d",
                             target_at(b)->name, (int)pooling, i);
            }
            free_floats(out);
        }
    }
    free_floats(in);
}

/* --------------------------------------------------------------------- normalize and activate */

/* activation 0 means normalize; odd widths: LayerNorm without gamma and beta */
static void run_rows(const struct target *t, float *data, int32_t rows, int32_t cols,
                     int32_t activation)
{
    float *gamma = make_floats((size_t)cols, 21), *beta = make_floats((size_t)cols, 22);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, rows + 1, cols, 1, 32);
    const struct gpuserve_op_rows op = {
        data,
        rows,
        cols,
        cols + 3,
        activation,
        1e-5f,
        cols % 2 ? NULL : gamma,
        cols % 2 ? NULL : beta,
    };
    const gpuserve_status st =
        activation ? t->backend->activate(stream, &op) : t->backend->normalize(stream, &op);

    cr_assert_eq(st, GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    free_floats(gamma);
    free_floats(beta);
}

static float *make_rows(size_t n, size_t ld)
{
    float *data = make_floats(n, 41);

    for (size_t i = 0; i < n; i++)
        data[i] *= i / ld % 3 == 0 ? 1.0f : 30.0f;
    for (size_t i = 0; i < ld && i < n; i++)
        data[i] = 0.0f; /* a zero row has no direction */
    return data;
}

Test(rows, normalize_and_activate_match_ref)
{
    for (size_t w = 0; w < N_WIDTHS; w++) {
        for (int32_t activation = 0; activation <= GPUSERVE_ACT_LAYERNORM; activation++) {
            const int32_t cols = widths[w];
            const size_t ld = (size_t)cols + 3, n = 19 * ld;
            float *want = make_rows(n, ld);

            if (activation == 1)
                activation = GPUSERVE_ACT_RELU; /* activate does not support GELU */
            run_rows(target_at(0), want, 19, cols, activation);
            for (int b = 1; b < target_count(); b++) {
                float *got = make_rows(n, ld);

                run_rows(target_at(b), got, 19, cols, activation);
                /* exp of up to 60 in float32: rounding of the argument is 4e-6 of the result. One
                 * column minus its mean is only rounding. */
                cr_expect((activation == GPUSERVE_ACT_LAYERNORM && cols == 1) ||
                              all_close(got, want, n,
                                        activation == GPUSERVE_ACT_LAYERNORM ? 3e-6f : 5e-7f,
                                        6e-6f),
                          "%s, %d columns, activation %d: %s", target_at(b)->name, (int)cols,
                          (int)activation, difference());
                free_floats(got);
            }
            free_floats(want);
        }
    }
}

/* ------------------------------------------------------------------------------------ compact */

enum { COMPACT_ROWS = 5, MAX_COMPACT = 100 };

/* Values of every size: zeros of both signs, subnormal and huge ones of float16, ties. */
static float *make_wide_floats(size_t n)
{
    static const float special[] = { 0.0f,          -0.0f,          1e-8f,    -6e-8f,
                                     3.0e-5f,       65504.0f,       65519.9f, -65520.0f,
                                     1.0009765625f, 1.00048828125f, 1e30f };
    float *floats = make_floats(n, 51);

    for (size_t i = 0; i < n; i++) {
        if (i % 7 == 3)
            floats[i] = special[i / 7 % (sizeof(special) / sizeof(special[0]))];
        else if (i % 3 == 1)
            floats[i] = ldexpf(floats[i], (int)(i % 40) - 26);
    }
    return floats;
}

/* Ranges [2, cols]: some empty, and some that leave values outside. */
static void make_ranges(float *ranges, int32_t cols)
{
    for (int32_t c = 0; c < cols; c++) {
        ranges[c] = -0.75f + 0.01f * (float)(c % 13);
        ranges[cols + c] = c % 11 == 5 ? ranges[c] : 0.5f + 0.03f * (float)(c % 17);
    }
}

static void check_compact(int32_t cols, uint32_t precision)
{
    const int32_t ld = cols + 3;
    const size_t bytes = precision == GPUSERVE_PRECISION_FLOAT16 ? 2 * (size_t)cols
                         : precision <= GPUSERVE_PRECISION_UINT8 ? (size_t)cols
                                                                 : ((size_t)cols + 7) / 8;
    const size_t words = (bytes + 3) / 4 + 1;
    float *in = make_wide_floats(COMPACT_ROWS * (size_t)ld), ranges[2 * MAX_COMPACT];
    uint32_t want[COMPACT_ROWS * (MAX_COMPACT / 2 + 2)], got[COMPACT_ROWS * (MAX_COMPACT / 2 + 2)];
    struct gpuserve_op_compact op = { .in = in,
                                      .out = want,
                                      .ranges = ranges,
                                      .rows = COMPACT_ROWS,
                                      .cols = cols,
                                      .ld = ld,
                                      .words = (int32_t)words,
                                      .precision = precision };

    make_ranges(ranges, cols);
    in[2 * ld + cols - 1] = NAN;
    in[3 * ld] = -INFINITY;
    in[4 * ld + cols] = NAN; /* outside of its row */
    cr_assert_eq(gsv_backend_ref()->compact(NULL, &op), GPUSERVE_OK);
    for (size_t r = 0; r < COMPACT_ROWS; r++)
        cr_expect_eq(want[r * words + words - 1], r != 2 && r != 3);
    op.out = got;
    for (int b = 1; b < target_count(); b++) {
        const struct target *t = target_at(b);
        struct gpuserve_stream *stream =
            open_stream(t, GPUSERVE_DTYPE_FLOAT32, COMPACT_ROWS, cols, 1, 32);

        memset(got, 0xA5, sizeof(got));
        cr_assert_eq(t->backend->compact(stream, &op), GPUSERVE_OK);
        t->backend->stream_destroy(&stream);
        cr_expect_eq(memcmp(got, want, COMPACT_ROWS * words * sizeof(*got)), 0,
                     "%s, %d columns, precision %u", t->name, cols, precision);
    }
    free_floats(in);
}

Test(rows, compact_has_the_bytes_of_ref)
{
    static const int32_t columns[] = { 1, 2, 3, 8, 15, 33, 64, 97 };

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY; one++)
            check_compact(columns[i], one);
}
