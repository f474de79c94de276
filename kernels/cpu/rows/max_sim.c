/*
 * max_sim: the largest dot product of each query row with any document row (late interaction).
 *
 * A tile of GSV_QUERY_ROWS by GSV_DOCUMENT_ROWS dot products is one vector of sums: each product
 * has a vector of partial sums, and a transpose adds up the lanes of all of them at once. The bits
 * of a dot product depend on its two rows alone. Rows past the end repeat the last one.
 *
 * Tiles of the document are the outer loop, so that each row's length is computed once; the query
 * stays in the cache.
 */
#include "kernels/cpu/rows/lanes.h"
#include "kernels/cpu/runtime/isa_symbols.h"

#include <math.h>

#if GSV_VL == 16
#define GSV_QUERY_ROWS 4
#define GSV_DOCUMENT_ROWS 4
#elif GSV_VL == 8
#define GSV_QUERY_ROWS 4
#define GSV_DOCUMENT_ROWS 2
#else
#define GSV_QUERY_ROWS 2
#define GSV_DOCUMENT_ROWS 2
#endif

/* Rows `first` to `first + n - 1` of n_rows, whose numbers are in `numbers`, or NULL: consecutive.
 */
GSV_INLINE void point_at(const float *at[], int n, const float *rows, const int32_t *numbers,
                         size_t first, size_t n_rows, size_t dim)
{
    for (int i = 0; i < n; i++) {
        const size_t end = first + (size_t)i, row = end < n_rows ? end : n_rows - 1;

        at[i] = rows + (numbers ? (size_t)numbers[row] : row) * dim;
    }
}

/* The columns that belong to one vector of the GSV_SUM_LANES partial sums, from `first` on; adds
 * their sums to `total`, lane by lane. */
GSV_INLINE vf multiply_part(const float *const query[], const float *const document[],
                            int32_t first, int32_t dim, vf total)
{
    vf sums[GSV_VL];

    for (int i = 0; i < GSV_VL; i++)
        sums[i] = vf_set(0.0f);
    for (int32_t c = first; c < dim; c += GSV_SUM_LANES) {
        const int n = lanes_at(dim, c);
        vf b[GSV_DOCUMENT_ROWS];

        for (int d = 0; d < GSV_DOCUMENT_ROWS; d++)
            b[d] = load_lanes(document[d] + c, n);
        for (int q = 0; q < GSV_QUERY_ROWS; q++) {
            const vf a = load_lanes(query[q] + c, n);

            for (int d = 0; d < GSV_DOCUMENT_ROWS; d++)
                sums[q * GSV_DOCUMENT_ROWS + d] = vf_fma(a, b[d], sums[q * GSV_DOCUMENT_ROWS + d]);
        }
    }
    vf_transpose(sums);
    for (int i = 0; i < GSV_VL; i++)
        total = total + sums[i];
    return total;
}

/* Lane q * GSV_DOCUMENT_ROWS + d: the product of query row q and document row d. Narrow vectors
 * take the columns in several passes: the sums of all parts at once would not fit the registers. */
GSV_INLINE vf multiply_tile(const float *const query[], const float *const document[], int32_t dim)
{
    vf total = vf_set(0.0f);

    for (int32_t s = 0; s < GSV_NS; s++)
        total = multiply_part(query, document, s * GSV_VL, dim, total);
    return total;
}

/* The divisors of a tile's products. */
GSV_INLINE vf divisors_of(const float *const document[], int32_t dim)
{
    float lanes[GSV_VL];

    for (int d = 0; d < GSV_DOCUMENT_ROWS; d++)
        lanes[d] = norm_of(document[d], dim);
    for (int i = GSV_DOCUMENT_ROWS; i < GSV_VL; i++)
        lanes[i] = lanes[i % GSV_DOCUMENT_ROWS];
    return vf_load(lanes);
}

/* A NaN stays. */
GSV_INLINE float larger(float best, float value)
{
    return value > best || value != value ? value : best;
}

void GSV_VARIANT(gsv_max_sim)(const struct gsv_max_sim *op, float *best)
{
    const int32_t dim = (int32_t)op->dim;

    for (size_t q = 0; q < op->n_query; q++)
        best[q] = -__builtin_inff();
    for (size_t d = 0; d < op->n_document; d += GSV_DOCUMENT_ROWS) {
        const float *query[GSV_QUERY_ROWS], *document[GSV_DOCUMENT_ROWS];
        vf divisors = vf_set(1.0f);

        point_at(document, GSV_DOCUMENT_ROWS, op->document, op->rows, d, op->n_document, op->dim);
        if (op->normalizes)
            divisors = divisors_of(document, dim);
        for (size_t q = 0; q < op->n_query; q += GSV_QUERY_ROWS) {
            const size_t left = op->n_query - q, n = left < GSV_QUERY_ROWS ? left : GSV_QUERY_ROWS;
            float lanes[GSV_VL];

            point_at(query, GSV_QUERY_ROWS, op->query, NULL, q, op->n_query, op->dim);
            vf_store(lanes, multiply_tile(query, document, dim) / divisors);
            for (size_t i = 0; i < n * GSV_DOCUMENT_ROWS; i++)
                best[q + i / GSV_DOCUMENT_ROWS] = larger(best[q + i / GSV_DOCUMENT_ROWS], lanes[i]);
        }
    }
}
