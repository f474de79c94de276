/*
 * vector_math.c - dot products, late interaction, top-k rows of a matrix, compaction of sparse
 * rows.
 *
 * Sums use float64 in a fixed order: eight partial sums, which lets the compiler vectorise, joined
 * pairwise. Top-k uses a binary heap of k rows whose root is the worst kept row, then heapsort. No
 * allocation, no shared state.
 */
#include "kernels/kernels.h"

#include <gpuserve/gpuserve.h>

#include <math.h>
#include <stdbool.h>

static double dot(const float *a, const float *b, size_t n)
{
    double part[8] = { 0 };
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        for (size_t j = 0; j < 8; j++)
            part[j] += (double)a[i + j] * (double)b[i + j];
    }
    for (size_t j = 0; i < n; i++, j++)
        part[j] += (double)a[i] * (double)b[i];
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

GPUSERVE_API float gpuserve_dot(const float *a, const float *b, size_t n)
{
    return a && b ? (float)dot(a, b, n) : 0.0f;
}

GPUSERVE_API float gpuserve_max_sim(const float *query, size_t n_query, const float *document,
                                    size_t n_document, size_t dim)
{
    const struct gsv_max_sim op = { .query = query,
                                    .n_query = n_query,
                                    .document = document,
                                    .n_document = n_document,
                                    .dim = dim };

    return query && document && dim <= INT32_MAX ? gsv_cpu_max_sim(&op) : 0.0f;
}

/* Top-k state. Row numbers are kept in the caller's `indices`. Scores are recomputed if the caller
 * gave no `scores` array, which avoids an allocation. */
struct vector_math_ranking {
    const float *query;
    const float *rows;
    size_t dim;
    size_t *indices;
    float *scores; /* or NULL */
};

static float score_of_row(const struct vector_math_ranking *r, size_t row)
{
    return (float)dot(r->query, r->rows + row * r->dim, r->dim);
}

static float score_at(const struct vector_math_ranking *r, size_t position)
{
    return r->scores ? r->scores[position] : score_of_row(r, r->indices[position]);
}

/* Whether (score, row) ranks behind the other: lower score, or equal score and later row. NaN ranks
 * last. */
static bool is_worse(float score, size_t row, float other, size_t other_row)
{
    if (isnan(score) || isnan(other))
        return isnan(score) && isnan(other) ? row > other_row : isnan(score);
    return score != other ? score < other : row > other_row;
}

static void put(const struct vector_math_ranking *r, size_t position, size_t row, float score)
{
    r->indices[position] = row;
    if (r->scores)
        r->scores[position] = score;
}

/* Sift-down: moves (row, score) from the root of a heap of n until no child is worse. */
static void sink(const struct vector_math_ranking *r, size_t n, size_t row, float score)
{
    size_t position = 0;

    for (;;) {
        size_t child = 2 * position + 1;
        float child_score;

        if (child >= n)
            break;
        child_score = score_at(r, child);
        if (child + 1 < n) {
            const float right = score_at(r, child + 1);

            if (is_worse(right, r->indices[child + 1], child_score, r->indices[child])) {
                child++;
                child_score = right;
            }
        }
        if (!is_worse(child_score, r->indices[child], score, row))
            break;
        put(r, position, r->indices[child], child_score);
        position = child;
    }
    put(r, position, row, score);
}

/* Sift-up: moves (row, score) from the end of a heap of `position` elements towards the root. */
static void rise(const struct vector_math_ranking *r, size_t position, size_t row, float score)
{
    while (position > 0) {
        const size_t parent = (position - 1) / 2;
        const float parent_score = score_at(r, parent);

        if (!is_worse(score, row, parent_score, r->indices[parent]))
            break;
        put(r, position, r->indices[parent], parent_score);
        position = parent;
    }
    put(r, position, row, score);
}

GPUSERVE_API size_t gpuserve_sparse_compact(const float *row, size_t n, uint32_t *indices,
                                            float *values, size_t capacity)
{
    size_t found = 0;

    if (!row || n > UINT32_MAX || ((!indices || !values) && capacity > 0))
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (!(row[i] > 0.0f))
            continue;
        if (found < capacity) {
            indices[found] = (uint32_t)i;
            values[found] = row[i];
        }
        found++;
    }
    return found;
}

GPUSERVE_API size_t gpuserve_top_k(const float *query, const float *rows, size_t n_rows, size_t dim,
                                   size_t k, size_t *indices, float *scores)
{
    const struct vector_math_ranking r = { query, rows, dim, indices, scores };
    size_t kept;

    if (!query || !rows || !indices)
        return 0;
    kept = k < n_rows ? k : n_rows;
    if (kept == 0)
        return 0;
    for (size_t row = 0; row < n_rows; row++) {
        const float score = score_of_row(&r, row);

        if (row < kept)
            rise(&r, row, row, score);
        else if (is_worse(score_at(&r, 0), r.indices[0], score, row))
            sink(&r, kept, row, score);
    }
    for (size_t n = kept; n > 1; n--) {
        const size_t worst = r.indices[0], last = r.indices[n - 1];
        const float worst_score = score_at(&r, 0), last_score = score_at(&r, n - 1);

        sink(&r, n - 1, last, last_score);
        put(&r, n - 1, worst, worst_score);
    }
    return kept;
}
