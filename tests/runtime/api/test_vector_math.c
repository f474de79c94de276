/*
 * test_vector_math.c - gpuserve_dot and gpuserve_top_k against a plain sort; compact vectors; the
 * library's names.
 */
#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float next_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 24) - 0.5f;
}

Test(arithmetic, sparse_numbers_are_compacted)
{
    const float row[8] = { 0, 0.5f, -1, 0, 2, (float)NAN, 0, 1e-30f };
    uint32_t indices[8];
    float values[8];

    cr_expect_eq(gpuserve_sparse_compact(row, 8, indices, values, 8), 3);
    cr_expect(indices[0] == 1 && indices[1] == 4 && indices[2] == 7);
    cr_expect(values[0] == 0.5f && values[1] == 2 && values[2] == 1e-30f);
    indices[1] = 99;
    cr_expect_eq(gpuserve_sparse_compact(row, 8, indices, values, 1), 3);
    cr_expect_eq(indices[1], 99); /* untouched */
    cr_expect_eq(gpuserve_sparse_compact(row, 8, NULL, NULL, 0), 3);
    cr_expect_eq(gpuserve_sparse_compact(row, 8, NULL, values, 1), 0);
    cr_expect_eq(gpuserve_sparse_compact(NULL, 8, indices, values, 8), 0);
    cr_expect_eq(gpuserve_sparse_compact(row, 0, indices, values, 8), 0);
}

Test(arithmetic, dot_sums_in_float64)
{
    float a[1000], b[1000];

    for (size_t n = 0; n <= 1000; n += n < 20 ? 1 : 245) {
        uint32_t state = 7;
        double want = 0;

        for (size_t i = 0; i < n; i++) {
            a[i] = next_float(&state);
            b[i] = next_float(&state) * 1e6f;
            want += (double)a[i] * (double)b[i];
        }
        cr_expect_float_eq(gpuserve_dot(a, b, n), (float)want, 1e-6 * fabs(want) + 1e-12, "n %zu",
                           n);
    }
    cr_expect_eq(gpuserve_dot(NULL, a, 3), 0);
}

static const float *sorted_scores;

/* Best first; ties by row; NaN last. */
static int compare(const void *left, const void *right)
{
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    const float x = sorted_scores[a], y = sorted_scores[b];

    if (isnan(x) || isnan(y)) {
        if (isnan(x) && isnan(y))
            return a < b ? -1 : 1;
        return isnan(x) ? 1 : -1;
    }
    if (x != y)
        return x > y ? -1 : 1;
    return a < b ? -1 : 1;
}

Test(arithmetic, top_k_is_a_sort_cut_short)
{
    enum { N = 200, DIM = 3 };
    static float rows[N * DIM], scores[N], got_scores[N];
    static size_t order[N], got[N];
    const float query[DIM] = { 1, -2, 0.5f };

    for (uint32_t seed = 1; seed < 40; seed++) {
        const size_t ks[] = { 0, 1, 2, 7, 100, N, N + 5 };
        uint32_t state = seed;

        for (size_t i = 0; i < N * DIM; i++) /* few distinct values: many ties */
            rows[i] = floorf(next_float(&state) * 4);
        rows[(seed % N) * DIM] = NAN;
        rows[(seed * 3 % N) * DIM] = INFINITY;
        for (size_t i = 0; i < N; i++) {
            scores[i] = gpuserve_dot(query, rows + i * DIM, DIM);
            order[i] = i;
        }
        sorted_scores = scores;
        qsort(order, N, sizeof(order[0]), compare);
        for (size_t k = 0; k < sizeof(ks) / sizeof(ks[0]); k++) {
            const size_t want = ks[k] < N ? ks[k] : N;

            for (int with_scores = 0; with_scores < 2; with_scores++) {
                cr_assert_eq(gpuserve_top_k(query, rows, N, DIM, ks[k], got,
                                            with_scores ? got_scores : NULL),
                             want);
                for (size_t i = 0; i < want; i++) {
                    cr_assert_eq(got[i], order[i], "seed %u, k %zu, place %zu", seed, ks[k], i);
                    cr_assert(!with_scores ||
                              memcmp(&got_scores[i], &scores[got[i]], sizeof(float)) == 0);
                }
            }
        }
    }
    cr_expect_eq(gpuserve_top_k(NULL, rows, N, DIM, 3, got, NULL), 0);
    cr_expect_eq(gpuserve_top_k(query, rows, 0, DIM, 3, got, NULL), 0);
}

Test(version, names_are_told)
{
    cr_expect_str_eq(gpuserve_version(), "0.2.0");
    cr_expect_eq(gpuserve_abi_version(), 0);
    cr_expect_str_eq(gpuserve_status_name(GPUSERVE_OK), "GPUSERVE_OK");
    cr_expect_str_eq(gpuserve_status_name(GPUSERVE_E_INTERNAL), "GPUSERVE_E_INTERNAL");
    cr_expect_str_eq(gpuserve_status_name((gpuserve_status)999), "unknown status");
    cr_expect_str_eq(gpuserve_status_name((gpuserve_status)-1), "unknown status");
    for (int i = 0; i <= GPUSERVE_E_MISMATCH; i++)
        cr_expect_neq(strncmp(gpuserve_status_name((gpuserve_status)i), "unknown", 7), 0);
}

/* Buffers of exactly their size, so that a sanitizer sees a byte too many. The bits of real vectors
 * are in tests/python/test_quantization.py. */
Test(compact, every_precision_fills_exactly_its_bytes)
{
    for (uint32_t precision = 0; precision <= GPUSERVE_PRECISION_UBINARY; precision++) {
        for (size_t dim = 1; dim <= 33; dim++) {
            const size_t bytes = gpuserve_quantized_bytes(precision, dim);
            float *vectors = malloc(2 * dim * sizeof(float));
            float *ranges = malloc(2 * dim * sizeof(float));
            uint8_t *made = malloc(2 * bytes);
            uint32_t state = 7;

            for (size_t i = 0; i < 2 * dim; i++)
                vectors[i] = next_float(&state);
            cr_expect_eq(gpuserve_vector_ranges(vectors, 2, dim, 0.0f, ranges, NULL), GPUSERVE_OK);
            cr_expect_eq(
                gpuserve_quantize(vectors, 2, dim, precision, ranges, made, 2 * bytes, NULL),
                GPUSERVE_OK);
            cr_expect_eq(
                gpuserve_quantize(vectors, 2, dim, precision, ranges, made, 2 * bytes - 1, NULL),
                GPUSERVE_E_TOO_LARGE);
            free(vectors);
            free(ranges);
            free(made);
        }
    }
}

Test(compact, values_and_bits)
{
    const float vectors[9] = { -1, 0, 0.5f, 1, 2, -0.0f, 1e-30f, (float)NAN, 3 };
    const float ranges[18] = { 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3 };
    uint8_t made[9];

    cr_expect_eq(gpuserve_quantize(vectors, 1, 9, GPUSERVE_PRECISION_UBINARY, NULL, made, 2, NULL),
                 GPUSERVE_OK);
    cr_expect(made[0] == 0x3A && made[1] == 0x80);
    cr_expect_eq(gpuserve_quantize(vectors, 1, 9, GPUSERVE_PRECISION_UINT8, ranges, made, 9, NULL),
                 GPUSERVE_OK);
    cr_expect(made[0] == 0 && made[2] == 127 && made[3] >= 254 && made[4] == 255 && made[7] == 0 &&
              made[8] == 0);
}

Test(compact, bad_arguments_are_named)
{
    const float vectors[4] = { 1, 2, 3, (float)INFINITY }, ranges[4] = { 0, 1, 1, 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float made_ranges[4];
    uint8_t made[4];

    cr_expect_eq(gpuserve_quantize(vectors, 1, 2, 6, NULL, made, 4, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "precision 6"), "%s", error.message);
    cr_expect_eq(gpuserve_quantize(vectors, 1, 2, GPUSERVE_PRECISION_INT8, NULL, made, 4, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_quantize(vectors, 1, 2, GPUSERVE_PRECISION_INT8, ranges, made, 4, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "dimension 1"), "%s", error.message);
    cr_expect_eq(
        gpuserve_quantize(vectors, SIZE_MAX, 2, GPUSERVE_PRECISION_FLOAT16, NULL, made, 4, &error),
        GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gpuserve_vector_ranges(vectors, 2, 2, 0.0f, made_ranges, &error),
                 GPUSERVE_E_NUMERIC);
    cr_expect(strstr(error.message, "vector 1") && strstr(error.message, "dimension 1"), "%s",
              error.message);
    cr_expect_eq(gpuserve_vector_ranges(vectors, 1, 2, 0.0f, made_ranges, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_vector_ranges(vectors, 2, 1, 2.0f, made_ranges, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_quantize(NULL, 1, 2, 0, NULL, made, 4, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_quantize(NULL, 0, 2, 0, NULL, NULL, 0, &error), GPUSERVE_OK);
    cr_expect_null(gpuserve_calibration_text(1u << 20));
    cr_expect(strlen(gpuserve_calibration_text(0)) > 0);
}

Test(arithmetic, max_sim_sums_the_largest_products_of_the_query)
{
    enum { N = 67, M = 13, DIM = 37 };
    static float query[N * DIM], document[M * DIM];
    uint32_t state = 3;

    for (size_t i = 0; i < N * DIM; i++)
        query[i] = next_float(&state);
    for (size_t i = 0; i < M * DIM; i++)
        document[i] = next_float(&state);
    for (size_t n = 0; n <= N; n++) {
        double want = 0;

        for (size_t q = 0; q < n; q++) {
            double best = -INFINITY;

            for (size_t d = 0; d < M; d++)
                best = fmax(best, gpuserve_dot(query + q * DIM, document + d * DIM, DIM));
            want += best;
        }
        cr_expect_float_eq(gpuserve_max_sim(query, n, document, M, DIM), (float)want, 1e-4, "%zu",
                           n);
    }
    cr_expect_eq(gpuserve_max_sim(query, N, document, 0, DIM), 0);
    cr_expect_eq(gpuserve_max_sim(NULL, N, document, M, DIM), 0);
    cr_expect_eq(gpuserve_max_sim(query, N, NULL, M, DIM), 0);
    document[5] = NAN;
    cr_expect(isnan(gpuserve_max_sim(query, N, document, M, DIM)));
}
