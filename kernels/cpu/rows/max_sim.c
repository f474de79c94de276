/*
 * max_sim: the largest dot product of each query row with any document row (late interaction).
 *
 * A tile of GSV_QUERY_ROWS by GSV_DOCUMENT_ROWS dot products is one vector of sums: each product
 * has a vector of partial sums, and a transpose adds up the lanes of all of them at once. The bits
 * of a dot product depend on its two rows alone. Rows past the end repeat the last one.
 */
#include "kernels/cpu/rows/lanes.h"
#include "kernels/cpu/runtime/isa_symbols.h"

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

/* The rows of `rows` from `first` on. */
GSV_INLINE void point_at(const float *at[], int n, const float *rows, size_t first, size_t n_rows,
                         size_t dim)
{
    for (int i = 0; i < n; i++) {
        const size_t row = first + (size_t)i;

        at[i] = rows + (row < n_rows ? row : n_rows - 1) * dim;
    }
}

/* Lane q * GSV_DOCUMENT_ROWS + d: the product of query row q and document row d. */
GSV_INLINE vf multiply_tile(const float *const query[], const float *const document[], int32_t dim)
{
    vf sums[GSV_VL], total = vf_set(0.0f);

    for (int i = 0; i < GSV_VL; i++)
        sums[i] = vf_set(0.0f);
    for (int32_t c = 0; c < dim; c += GSV_VL) {
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

/* A NaN stays. */
GSV_INLINE float larger(float best, float value)
{
    return value > best || value != value ? value : best;
}

void GSV_VARIANT(gsv_max_sim)(const struct gsv_max_sim *op, float *best)
{
    const int32_t dim = (int32_t)op->dim;

    for (size_t q = 0; q < op->n_query; q += GSV_QUERY_ROWS) {
        const float *query[GSV_QUERY_ROWS];
        float max[GSV_QUERY_ROWS];

        point_at(query, GSV_QUERY_ROWS, op->query, q, op->n_query, op->dim);
        for (int i = 0; i < GSV_QUERY_ROWS; i++)
            max[i] = -__builtin_inff();
        for (size_t d = 0; d < op->n_document; d += GSV_DOCUMENT_ROWS) {
            const float *document[GSV_DOCUMENT_ROWS];
            float lanes[GSV_VL];

            point_at(document, GSV_DOCUMENT_ROWS, op->document, d, op->n_document, op->dim);
            vf_store(lanes, multiply_tile(query, document, dim));
            for (int i = 0; i < GSV_VL; i++)
                max[i / GSV_DOCUMENT_ROWS] = larger(max[i / GSV_DOCUMENT_ROWS], lanes[i]);
        }
        for (size_t i = 0; i < GSV_QUERY_ROWS && q + i < op->n_query; i++)
            best[q + i] = max[i];
    }
}
