/*
 * test_max_sim.c - late interaction of every instruction set against the plain C of kernels/ref.
 */
#include "kernels/cpu/runtime/isa.h"
#include "kernels/kernels.h"
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>

static const char *const limits[] = { "generic",     "avx2",        "avx2_vnni",  "avx512",
                                      "avx512_vnni", "avx512_bf16", "avx512_amx", "none" };

typedef void (*max_sim_fn)(const struct gsv_max_sim *op, float *best);

static max_sim_fn choose(const char *limit)
{
    setenv("GPUSERVE_MAX_ISA", limit, 1);
    return gsv_cpu_choose_isa()->max_sim;
}

static void check(const char *limit, max_sim_fn run, size_t n_query, size_t n_document, size_t dim)
{
    float *query = make_floats(n_query * dim, 1), *document = make_floats(n_document * dim, 2);
    float *got = make_poison(n_query), *want = make_poison(n_query), *alone = make_poison(1);
    struct gsv_max_sim op = { query, document, n_query, n_document, dim };

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
                for (size_t m = 1; m <= 21; m += 4)
                    check(limits[i], run, n, m, dims[d]);
    }
}

Test(max_sim, a_nan_stays_and_infinity_is_the_largest)
{
    enum { N = 3, DIM = 8 };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const max_sim_fn run = choose(limits[i]);

        for (size_t at = 0; at < N; at++) {
            float query[DIM], document[N * DIM], best;
            const struct gsv_max_sim op = { query, document, 1, N, DIM };

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
