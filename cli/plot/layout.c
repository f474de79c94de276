/*
 * layout.c - the plane, the clusters and the neighbours of a map.
 *
 *   plane       principal component analysis: subspace iteration on the covariance matrix
 *   clusters    k-means, about sqrt(n / 2) of them, the best of several k-means++ starts
 *   neighbours  all cosines, in blocks
 *
 * Matrix products run on the library's threads. Sums have a fixed order and the random numbers a
 * fixed seed, so the same vectors give the same map.
 */
#include "cli/plot/map.h"

#include <gpuserve/compute.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUBSPACE 8
#define ITERATIONS 60
#define MEANS_ITERATIONS 30
#define STARTS 8
#define BLOCK 256

static int multiply(gpuserve_compute *compute, gpuserve_matmul_job job)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.c_capacity = (size_t)(job.m * job.n);
    if (gpuserve_matmul(compute, &job, NULL, &error) == GPUSERVE_OK)
        return CLI_OK;
    return cli_fail_with(&error, "--plot");
}

static void normalize_rows(struct cli_map *map)
{
    for (size_t i = 0; i < map->n; i++) {
        float *row = map->vectors + i * map->dim;
        double norm = 0;

        for (size_t j = 0; j < map->dim; j++)
            norm += (double)row[j] * row[j];
        for (size_t j = 0; j < map->dim && norm > 0; j++)
            row[j] = (float)(row[j] / sqrt(norm));
    }
}

/* --------------------------------------------------------------------------------------- plane */

/* Subtract the mean of each column: [n, dim], owned. */
static float *center(const struct cli_map *map)
{
    float *centered = cli_alloc(map->n * map->dim, sizeof(*centered));

    for (size_t j = 0; j < map->dim; j++) {
        double sum = 0;

        for (size_t i = 0; i < map->n; i++)
            sum += map->vectors[i * map->dim + j];
        for (size_t i = 0; i < map->n; i++)
            centered[i * map->dim + j] =
                (float)(map->vectors[i * map->dim + j] - sum / (double)map->n);
    }
    return centered;
}

/* Gram-Schmidt on the rows of [SUBSPACE, dim]. A row that the others span becomes zero. */
static void orthonormalize(double *rows, size_t dim)
{
    for (size_t i = 0; i < SUBSPACE; i++) {
        double *row = rows + i * dim, norm = 0;

        for (size_t k = 0; k < i; k++) {
            const double *other = rows + k * dim;
            double dot = 0;

            for (size_t j = 0; j < dim; j++)
                dot += row[j] * other[j];
            for (size_t j = 0; j < dim; j++)
                row[j] -= dot * other[j];
        }
        for (size_t j = 0; j < dim; j++)
            norm += row[j] * row[j];
        norm = sqrt(norm);
        for (size_t j = 0; j < dim; j++)
            row[j] = norm > 1e-30 ? row[j] / norm : 0;
    }
}

/* The first rows become the eigenvectors of the largest eigenvalues: the subspace converges, and
 * within it the rows, because Gram-Schmidt keeps the first from the others. */
static void iterate(const float *covariance, size_t dim, double *rows)
{
    double *next = cli_alloc(SUBSPACE * dim, sizeof(*next));

    for (size_t i = 0; i < SUBSPACE * dim; i++) /* a fixed start without symmetry */
        rows[i] = sin(1.0 + 0.7 * (double)i) + 0.01 * (double)(i % 7);
    orthonormalize(rows, dim);
    for (int n = 0; n < ITERATIONS; n++) {
        for (size_t i = 0; i < SUBSPACE; i++) {
            for (size_t j = 0; j < dim; j++) {
                const float *of = covariance + j * dim;
                double sum = 0;

                for (size_t k = 0; k < dim; k++)
                    sum += of[k] * rows[i * dim + k];
                next[i * dim + j] = sum;
            }
        }
        memcpy(rows, next, SUBSPACE * dim * sizeof(*rows));
        orthonormalize(rows, dim);
    }
    free(next);
}

/* The sign of a component is free: the largest coordinate is positive. */
static void project(const struct cli_map *map, const float *centered, const double *row, double *to)
{
    double largest = 0;

    for (size_t i = 0; i < map->n; i++) {
        to[i] = 0;
        for (size_t j = 0; j < map->dim; j++)
            to[i] += centered[i * map->dim + j] * row[j];
        if (fabs(to[i]) > fabs(largest))
            largest = to[i];
    }
    for (size_t i = 0; i < map->n && largest < 0; i++)
        to[i] = -to[i];
}

static double variance_of(const double *values, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sum;
}

static int make_plane(struct cli_map *map, gpuserve_compute *compute)
{
    float *centered = center(map), *covariance = cli_alloc(map->dim * map->dim, sizeof(float));
    double *rows = cli_alloc(SUBSPACE * map->dim, sizeof(*rows)), total = 0;
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    int result;

    job.transpose_a = 1;
    job.m = job.n = (int64_t)map->dim;
    job.k = (int64_t)map->n;
    job.a = job.b = centered;
    job.c = covariance;
    result = multiply(compute, job);
    if (result == CLI_OK) {
        iterate(covariance, map->dim, rows);
        project(map, centered, rows, map->x);
        project(map, centered, rows + map->dim, map->y);
        for (size_t j = 0; j < map->dim; j++)
            total += covariance[j * map->dim + j];
        map->explained[0] = total > 0 ? variance_of(map->x, map->n) / total : 0;
        map->explained[1] = total > 0 ? variance_of(map->y, map->n) / total : 0;
    }
    free(centered);
    free(covariance);
    free(rows);
    return result;
}

/* ------------------------------------------------------------------------------------ clusters */

static double distance(const float *a, const float *b, size_t dim)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < dim; j++)
        sum += (a[j] - b[j]) * (a[j] - b[j]);
    return sum;
}

/* k-means++: each next centroid is a vector, chosen by its squared distance to the nearest one
 * before. Returns the number of centroids: fewer if the vectors are equal. */
static size_t start_centroids(const struct cli_map *map, float *centroids, size_t n_wanted,
                              uint64_t state)
{
    double *nearest = cli_alloc(map->n, sizeof(*nearest));
    size_t chosen = cli_random(&state) % map->n, n = 0;

    for (size_t i = 0; i < map->n; i++)
        nearest[i] = HUGE_VAL;
    for (;;) {
        double total = 0, at;

        memcpy(centroids + n * map->dim, map->vectors + chosen * map->dim,
               map->dim * sizeof(*centroids));
        n++;
        for (size_t i = 0; i < map->n; i++) {
            const double d =
                distance(map->vectors + i * map->dim, map->vectors + chosen * map->dim, map->dim);

            nearest[i] = d < nearest[i] ? d : nearest[i];
            total += nearest[i];
        }
        if (n == n_wanted || total < 1e-9)
            break;
        at = (double)(cli_random(&state) >> 11) * 0x1p-53 * total;
        for (chosen = 0; chosen + 1 < map->n && at >= nearest[chosen]; chosen++)
            at -= nearest[chosen];
    }
    free(nearest);
    return n;
}

/* Gives each vector the nearest centroid; true if any changed. */
static bool assign(struct cli_map *map, const float *centroids)
{
    bool changed = false;

    for (size_t i = 0; i < map->n; i++) {
        uint32_t best = 0;
        double min = HUGE_VAL;

        for (size_t c = 0; c < map->n_clusters; c++) {
            const double d =
                distance(map->vectors + i * map->dim, centroids + c * map->dim, map->dim);

            if (d < min) {
                min = d;
                best = (uint32_t)c;
            }
        }
        changed = changed || map->cluster[i] != best;
        map->cluster[i] = best;
    }
    return changed;
}

/* A cluster without vectors keeps its centroid. */
static void move_centroids(const struct cli_map *map, float *centroids)
{
    double *sum = cli_alloc(map->dim, sizeof(*sum));

    for (size_t c = 0; c < map->n_clusters; c++) {
        size_t count = 0;

        memset(sum, 0, map->dim * sizeof(*sum));
        for (size_t i = 0; i < map->n; i++) {
            if (map->cluster[i] != c)
                continue;
            count++;
            for (size_t j = 0; j < map->dim; j++)
                sum[j] += map->vectors[i * map->dim + j];
        }
        for (size_t j = 0; j < map->dim && count > 0; j++)
            centroids[c * map->dim + j] = (float)(sum[j] / (double)count);
    }
    free(sum);
}

static void find_middles(struct cli_map *map, const float *centroids)
{
    double min[CLI_MAP_MAX_CLUSTERS];

    for (size_t c = 0; c < map->n_clusters; c++)
        min[c] = HUGE_VAL;
    for (size_t i = 0; i < map->n; i++) {
        const uint32_t c = map->cluster[i];
        const double d = distance(map->vectors + i * map->dim, centroids + c * map->dim, map->dim);

        if (d < min[c]) {
            min[c] = d;
            map->middle[c] = (uint32_t)i;
        }
    }
}

/* The sum of squared distances to the centroids, which k-means makes small. */
static double inertia_of(const struct cli_map *map, const float *centroids)
{
    double sum = 0;

    for (size_t i = 0; i < map->n; i++)
        sum +=
            distance(map->vectors + i * map->dim, centroids + map->cluster[i] * map->dim, map->dim);
    return sum;
}

/* The best of several starts: one alone often ends in a poor local minimum. */
static void make_clusters(struct cli_map *map)
{
    const size_t root = (size_t)lround(sqrt((double)map->n / 2));
    const size_t wanted = root < CLI_MAP_MAX_CLUSTERS ? root : CLI_MAP_MAX_CLUSTERS;
    const size_t bytes = CLI_MAP_MAX_CLUSTERS * map->dim * sizeof(float);
    float *centroids = cli_alloc(bytes, 1), *best = cli_alloc(bytes, 1);
    size_t n_best = 0;
    double min = HUGE_VAL;

    for (uint64_t seed = 1; seed <= STARTS; seed++) {
        double inertia;

        map->n_clusters = start_centroids(map, centroids, wanted, seed);
        for (int n = 0; n < MEANS_ITERATIONS && (assign(map, centroids) || n == 0); n++)
            move_centroids(map, centroids);
        inertia = inertia_of(map, centroids);
        if (inertia < min) {
            min = inertia;
            n_best = map->n_clusters;
            memcpy(best, centroids, bytes);
        }
    }
    map->n_clusters = n_best;
    assign(map, best);
    find_middles(map, best);
    free(centroids);
    free(best);
}

/* ---------------------------------------------------------------------------------- neighbours */

/* Inserts text `i` into the sorted neighbours of a row. */
static void insert(uint32_t *neighbours, float *similarity, size_t n, uint32_t i, float score)
{
    size_t at = n;

    while (at > 0 && score > similarity[at - 1])
        at--;
    if (at == n)
        return;
    memmove(neighbours + at + 1, neighbours + at, (n - 1 - at) * sizeof(*neighbours));
    memmove(similarity + at + 1, similarity + at, (n - 1 - at) * sizeof(*similarity));
    neighbours[at] = i;
    similarity[at] = score;
}

static int find_neighbours(struct cli_map *map, gpuserve_compute *compute)
{
    const size_t k = map->n_neighbours;
    float *scores = cli_alloc(BLOCK * map->n, sizeof(*scores));
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    int result = CLI_OK;

    job.transpose_b = 1;
    job.n = (int64_t)map->n;
    job.k = (int64_t)map->dim;
    job.b = map->vectors;
    job.c = scores;
    for (size_t first = 0; first < map->n && result == CLI_OK; first += BLOCK) {
        const size_t rows = map->n - first < BLOCK ? map->n - first : BLOCK;

        job.m = (int64_t)rows;
        job.a = map->vectors + first * map->dim;
        result = multiply(compute, job);
        for (size_t i = 0; i < rows && result == CLI_OK; i++) {
            uint32_t *neighbours = map->neighbours + (first + i) * k;
            float *similarity = map->similarity + (first + i) * k;

            for (size_t j = 0; j < k; j++)
                similarity[j] = -HUGE_VALF;
            for (size_t j = 0; j < map->n; j++)
                if (j != first + i)
                    insert(neighbours, similarity, k, (uint32_t)j, scores[i * map->n + j]);
        }
    }
    free(scores);
    return result;
}

int cli_map_lay_out(struct cli_map *map)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_compute *compute = NULL;
    int result;

    if (map->n < CLI_MAP_MIN_TEXTS)
        return cli_fail("--plot: %zu texts; a map needs %d", map->n, CLI_MAP_MIN_TEXTS);
    options.device = "cpu";
    if (gpuserve_compute_open(&compute, NULL, &options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, "--plot");
    map->n_neighbours = map->n - 1 < CLI_MAP_NEIGHBOURS ? map->n - 1 : CLI_MAP_NEIGHBOURS;
    map->x = cli_alloc(map->n, sizeof(*map->x));
    map->y = cli_alloc(map->n, sizeof(*map->y));
    map->cluster = cli_alloc(map->n, sizeof(*map->cluster));
    map->neighbours = cli_alloc(map->n * map->n_neighbours, sizeof(*map->neighbours));
    map->similarity = cli_alloc(map->n * map->n_neighbours, sizeof(*map->similarity));
    normalize_rows(map);
    result = make_plane(map, compute);
    if (result == CLI_OK)
        result = find_neighbours(map, compute);
    if (result == CLI_OK)
        make_clusters(map);
    gpuserve_compute_close(&compute);
    return result;
}
