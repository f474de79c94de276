/*
 * test_max_sim.c - late interaction of every instruction set against the plain C of kernels/ref.
 */
#include "kernels/cpu/runtime/isa.h"
#include "kernels/kernels.h"
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const limits[] = { "generic",     "avx2",        "avx2_vnni",  "avx512",
                                      "avx512_vnni", "avx512_bf16", "avx512_amx", "none" };

typedef void (*max_sim_fn)(const struct gsv_max_sim *op, float *best);

enum { MAX_ROWS = 21 };

static max_sim_fn choose(const char *limit)
{
    setenv("GPUSERVE_MAX_ISA", limit, 1);
    return gsv_cpu_choose_isa()->max_sim;
}

/* Document rows are read in another order if `numbers` has their numbers. */
static void check(const char *limit, max_sim_fn run, struct gsv_max_sim op)
{
    const size_t n_query = op.n_query, n_document = op.n_document, dim = op.dim;
    float *query = make_floats(n_query * dim, 1), *document = make_floats(MAX_ROWS * dim, 2);
    float *got = make_poison(n_query), *want = make_poison(n_query), *alone = make_poison(1);

    op.query = query;
    op.document = document;
    gsv_ref_max_sim(&op, want);
    run(&op, got);
    cr_expect(all_close(got, want, n_query, 1e-5f, 1e-5f), "%s: %zu by %zu by %zu: %s", limit,
              n_query, n_document, dim, difference());
    for (size_t i = 0; i < n_query; i++) { /* the bits do not depend on the other query rows */
        op.query = query + i * dim;
        op.n_query = 1;
        run(&op, alone);
        cr_expect(same_bits(alone, got + i, 1), "%s: row %zu of %zu", limit, i, n_query);
    }
    free_floats(query);
    free_floats(document);
    free_floats(got);
    free_floats(want);
    free_floats(alone);
}

Test(max_sim, equals_the_oracle_in_every_instruction_set)
{
    static const size_t dims[] = { 1, 3, 8, 17, 32, 100, 128, 1024 };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const max_sim_fn run = choose(limits[i]);

        for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
            for (size_t n = 1; n <= 9; n += 2)
                for (size_t m = 1; m <= MAX_ROWS; m += 4)
                    check(limits[i], run,
                          (struct gsv_max_sim){ .n_query = n, .n_document = m, .dim = dims[d] });
    }
}

Test(max_sim, of_chosen_rows_and_of_rows_divided_by_their_lengths)
{
    static const int32_t numbers[] = { 20, 3, 3, 0, 11, 7, 19, 1, 5 };
    static const size_t dims[] = { 1, 17, 128 };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const max_sim_fn run = choose(limits[i]);

        for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
            for (size_t m = 1; m <= sizeof(numbers) / sizeof(numbers[0]); m++)
                for (size_t normalizes = 0; normalizes < 2; normalizes++)
                    check(limits[i], run,
                          (struct gsv_max_sim){ .rows = m % 2 ? numbers : NULL,
                                                .n_query = 6,
                                                .n_document = m,
                                                .dim = dims[d],
                                                .normalizes = normalizes });
    }
}

Test(max_sim, a_nan_stays_and_infinity_is_the_largest)
{
    enum { N = 3, DIM = 8 };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const max_sim_fn run = choose(limits[i]);

        for (size_t at = 0; at < N; at++) {
            float query[DIM], document[N * DIM], best;
            const struct gsv_max_sim op = {
                .query = query, .document = document, .n_query = 1, .n_document = N, .dim = DIM
            };

            for (size_t j = 0; j < DIM; j++)
                query[j] = 1;
            for (size_t j = 0; j < N * DIM; j++)
                document[j] = (float)j;
            document[at * DIM] = NAN;
            run(&op, &best);
            cr_expect(isnan(best), "%s: row %zu", limits[i], at);
            document[at * DIM] = INFINITY;
            run(&op, &best);
            cr_expect_eq(best, INFINITY, "%s: row %zu", limits[i], at);
        }
    }
}

/* ------------------------------------------------------------------------------- the operation */

enum { N_TEXTS = 5, QUERY_ROWS = 40, N_NUMBERS = 29 };

/* Two texts share a query; one has no rows, and one no query. */
static const struct gpuserve_max_sim_text texts[N_TEXTS] = {
    { 0, 5, 0, 7 }, { 5, 33, 7, 1 }, { 0, 5, 8, 0 }, { 38, 0, 8, 9 }, { 38, 2, 17, 12 }
};

struct operands {
    float *query, *in;
    int32_t rows[N_NUMBERS];
    int32_t dim;
};

static struct operands make_operands(int32_t dim)
{
    struct operands o = { .query = make_floats(QUERY_ROWS * (size_t)dim, 3),
                          .in = make_floats(MAX_ROWS * (size_t)dim, 4),
                          .dim = dim };

    for (int32_t i = 0; i < N_NUMBERS; i++)
        o.rows[i] = (7 * i + 3) % MAX_ROWS;
    return o;
}

/* The scores of texts [first, first + n). */
static float *run_op(const struct target *t, const struct operands *o, int32_t first, int32_t n,
                     bool normalize)
{
    static const int32_t lengths[N_TEXTS] = { 1, 1, 1, 1, 1 };
    const struct gpuserve_batch batch = make_batch(lengths, n);
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, N_TEXTS, o->dim, 1, 32);
    float *out = make_poison((size_t)n);
    const struct gpuserve_op_max_sim op = { .batch = &batch,
                                            .in = o->in,
                                            .query = o->query,
                                            .texts = texts + first,
                                            .rows = o->rows,
                                            .out = out,
                                            .dim = o->dim,
                                            .normalize = normalize };

    cr_assert_eq(t->backend->max_sim(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    return out;
}

/* Fused multiply-add: these instruction sets have the same bits. */
static bool has_fma(const struct target *t)
{
    return strncmp(t->name, "cpu ", 4) == 0 && !strstr(t->name, "generic");
}

Test(max_sim, of_a_batch_matches_ref_and_each_text_has_the_bits_that_it_has_alone)
{
    static const int32_t dims[] = { 1, 19, 96, 128 };

    for (size_t i = 0; i < 2 * sizeof(dims) / sizeof(dims[0]); i++) {
        struct operands o = make_operands(dims[i / 2]);
        float *want = run_op(target_at(0), &o, 0, N_TEXTS, i % 2), *fused = NULL;

        cr_expect(want[2] == 0 && want[3] == 0);
        for (int b = 1; b < target_count(); b++) {
            float *got = run_op(target_at(b), &o, 0, N_TEXTS, i % 2);

            cr_expect(all_close(got, want, N_TEXTS, 1e-4f, 1e-5f), "%s, dim %d: %s",
                      target_at(b)->name, o.dim, difference());
            for (int32_t s = 0; s < N_TEXTS; s++) {
                float *alone = run_op(target_at(b), &o, s, 1, i % 2);

                cr_expect(same_bits(alone, got + s, 1), "%s: text %d", target_at(b)->name, s);
                free_floats(alone);
            }
            if (!has_fma(target_at(b)))
                free_floats(got);
            else if (!fused)
                fused = got;
            else {
                cr_expect(same_bits(got, fused, N_TEXTS), "%s has bits of its own",
                          target_at(b)->name);
                free_floats(got);
            }
        }
        if (fused)
            free_floats(fused);
        free_floats(want);
        free_floats(o.query);
        free_floats(o.in);
    }
}
