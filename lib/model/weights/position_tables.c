/*
 * position_tables.c - computes the tables of relative and rotary positions when weights are loaded.
 *
 *   RELATIVE         buckets of distances expanded to all distances (T5, MPNet)
 *   ALIBI            -slope * |distance|, a slope for each head (Press et al. 2021)
 *   ROTARY           cosines and sines of position * frequency (Su et al. 2021)
 *   POSITIONS        vectors of positions times a layer's key or query projection (DeBERTa)
 *   POSITION_INDEX   the row of POSITIONS for each distance
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gpuserve_status fail_nomem(gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a table of positions");
}

static gpuserve_status write_floats(const struct gsv_net *net, size_t item, const float *values,
                                    size_t n, gpuserve_error *error)
{
    return net->backend->memory_write(net->device, net->addresses[item], values,
                                      n * sizeof(*values), error);
}

/* -------------------------------------------------------------------------------------- buckets */

/* The bucket of a distance (key - query) as in T5 and MPNet: half of the buckets for each
 * direction, exact for small distances, logarithmic up to max_distance for large ones. */
static int32_t relative_bucket(int32_t distance, int32_t n_buckets, int32_t max_distance)
{
    const int32_t half = n_buckets / 2, exact = half / 2;
    const int32_t side = distance > 0 ? half : 0;
    const int32_t length = abs(distance);
    int32_t far;

    if (length < exact)
        return side + length;
    far =
        exact + (int32_t)(logf((float)length / (float)exact) /
                          (float)log((double)max_distance / (double)exact) * (float)(half - exact));
    return side + (far < half - 1 ? far : half - 1);
}

/* Expand the file's [buckets, heads] to [heads, 2 * span - 1] by distance. */
static gpuserve_status load_relative(const struct gsv_net *net, struct gsv_reader *reader,
                                     size_t index, gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[index];
    const int32_t span = gsv_relative_span(net->spec);
    const size_t width = 2 * (size_t)span - 1, heads = (size_t)item->k;
    float *spread;
    gpuserve_status st = gsv_read_whole(reader, item, error);

    if (st != GPUSERVE_OK)
        return st;
    spread = gsv_alloc_array(heads * width, sizeof(*spread));
    if (!spread)
        return fail_nomem(error);
    for (size_t i = 0; i < width; i++) {
        const int32_t bucket = relative_bucket((int32_t)i - (span - 1), item->n,
                                               net->spec->config.relative.max_distance);

        for (size_t head = 0; head < heads; head++)
            spread[head * width + i] = reader->floats[(size_t)bucket * heads + head];
    }
    st = write_floats(net, index, spread, heads * width, error);
    free(spread);
    return st;
}

/* ---------------------------------------------------------------------------------------- ALiBi */

/* Slopes 2^(-8 i / n) for a power of two n of heads; the further ones of another number are every
 * second slope of the next power of two. */
static float alibi_slope(int32_t head, int32_t n_heads)
{
    int32_t power = 1;

    while (power * 2 <= n_heads)
        power *= 2;
    if (head < power)
        return (float)pow(2.0, -8.0 * (head + 1) / power);
    return (float)pow(2.0, -8.0 * (2 * (head - power) + 1) / (2 * power));
}

static gpuserve_status load_alibi(const struct gsv_net *net, size_t index, gpuserve_error *error)
{
    const int32_t heads = net->spec->items[index].k, span = gsv_relative_span(net->spec);
    const size_t width = 2 * (size_t)span - 1;
    float *spread = gsv_alloc_array((size_t)heads * width, sizeof(*spread));
    gpuserve_status st;

    if (!spread)
        return fail_nomem(error);
    for (int32_t head = 0; head < heads; head++)
        for (size_t i = 0; i < width; i++)
            spread[(size_t)head * width + i] =
                -alibi_slope(head, heads) * (float)abs((int32_t)i - (span - 1));
    st = write_floats(net, index, spread, (size_t)heads * width, error);
    free(spread);
    return st;
}

/* --------------------------------------------------------------------------------------- rotary */

/* The angle is rounded to float32, as in transformers. */
static gpuserve_status load_rotary(const struct gsv_net *net, size_t index, gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[index];
    const struct gsv_rotary *rotary = &net->spec->config.rotary[item->which];
    const size_t half = (size_t)item->k / 2, n = (size_t)item->n * (size_t)item->k;
    float *table = gsv_alloc_array(n, sizeof(*table));
    gpuserve_status st;

    if (!table)
        return fail_nomem(error);
    for (size_t r = 0; r < (size_t)item->n; r++) {
        const bool is_long = rotary->long_from > 0 && r >= (size_t)rotary->long_from;
        const float *frequency = is_long ? rotary->long_frequency : rotary->frequency;
        const size_t position = is_long ? r - (size_t)rotary->long_from : r;
        float *row = table + r * 2 * half;

        for (size_t i = 0; i < half; i++) {
            const float angle = (float)position * frequency[i];

            row[i] = (float)cos((double)angle) * rotary->scale;
            row[half + i] = (float)sin((double)angle) * rotary->scale;
        }
    }
    st = write_floats(net, index, table, n, error);
    free(table);
    return st;
}

/* --------------------------------------------------------------------------------- disentangled */

/* DeBERTa v2's make_log_bucket_position(): exact up to half of the buckets, then logarithmic. */
static int32_t log_bucket(int32_t distance, const struct gsv_relative *relative)
{
    const int32_t middle = relative->log_buckets / 2, length = abs(distance);
    float far;

    if (length <= middle || middle < 2)
        return distance;
    far = ceilf(logf((float)length / (float)middle) /
                logf((float)(relative->log_distance - 1) / (float)middle) * (float)(middle - 1));
    return (distance < 0 ? -1 : 1) * ((int32_t)far + middle);
}

/* Index i belongs to query - key = i - (span - 1). */
static gpuserve_status load_position_index(const struct gsv_net *net, size_t index,
                                           gpuserve_error *error)
{
    const struct gsv_relative *relative = &net->spec->config.relative;
    const int32_t span = gsv_relative_span(net->spec), last = 2 * relative->span - 1;
    const size_t width = 2 * (size_t)span - 1;
    int32_t *rows = gsv_alloc_array(width, sizeof(*rows));
    gpuserve_status st;

    if (!rows)
        return fail_nomem(error);
    for (size_t i = 0; i < width; i++) {
        const int32_t distance = (int32_t)i - (span - 1);
        const int32_t row =
            relative->span + (relative->log_buckets ? log_bucket(distance, relative) : distance);

        rows[i] = row < 0 ? 0 : row > last ? last : row;
    }
    st = net->backend->memory_write(net->device, net->addresses[index], rows, width * sizeof(*rows),
                                    error);
    free(rows);
    return st;
}

/* In place: LayerNorm of a row. */
static void normalize_row(float *row, size_t n, const float *gamma, const float *beta, double eps)
{
    double mean = 0, variance = 0;

    for (size_t i = 0; i < n; i++)
        mean += (double)row[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        variance += ((double)row[i] - mean) * ((double)row[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        row[i] = (float)(((double)row[i] - mean) / sqrt(variance + eps) * (double)gamma[i] +
                         (double)beta[i]);
}

/* out = row * weight^T + bias, with the weight transposed: [k, n]. */
static void project_row(double *sums, const float *row, const float *transposed, const float *bias,
                        size_t n, size_t k)
{
    for (size_t j = 0; j < n; j++)
        sums[j] = (double)bias[j];
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < n; j++)
            sums[j] += (double)row[i] * (double)transposed[i * n + j];
}

/* Reads vectors, projection, bias, gamma and beta one after the other into reader->floats. */
struct positions {
    float *vectors, *weight, *bias, *gamma, *beta;
    size_t rows, n, k;
};

static gpuserve_status read_positions(const struct gsv_net *net, struct gsv_reader *reader,
                                      const struct gsv_weight *item, struct positions *p,
                                      gpuserve_error *error)
{
    gpuserve_status st;

    p->rows = (size_t)item->n;
    p->k = (size_t)item->k;
    p->n = (size_t)gsv_context_columns(&net->spec->config);
    p->vectors = reader->floats;
    p->weight = p->vectors + p->rows * p->k;
    p->bias = p->weight + p->n * p->k;
    p->gamma = p->bias + p->n;
    p->beta = p->gamma + p->k;
    memset(p->bias, 0, p->n * sizeof(*p->bias));
    st = gsv_read_tensor(reader, item, 0, p->vectors, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_tensor(reader, item, 1, p->weight, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_tensor(reader, item, 4, p->bias, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_tensor(reader, item, 2, p->gamma, error);
    return st == GPUSERVE_OK ? gsv_read_tensor(reader, item, 5, p->beta, error) : st;
}

/* The same in every load and on every device: sums in float64 in a fixed order. */
static gpuserve_status load_projected(const struct gsv_net *net, struct gsv_reader *reader,
                                      size_t index, gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[index];
    struct positions p;
    float *transposed, *out;
    double *sums;
    gpuserve_status st = read_positions(net, reader, item, &p, error);

    if (st != GPUSERVE_OK)
        return st;
    transposed = gsv_alloc_array(p.n * p.k, sizeof(*transposed));
    out = gsv_alloc_array(p.rows * p.n, sizeof(*out));
    sums = gsv_alloc_array(p.n, sizeof(*sums));
    if (!transposed || !out || !sums)
        st = fail_nomem(error);
    for (size_t i = 0; i < p.n * p.k && st == GPUSERVE_OK; i++)
        transposed[i % p.k * p.n + i / p.k] = p.weight[i];
    for (size_t r = 0; r < p.rows && st == GPUSERVE_OK; r++) {
        if (item->weight[2].count)
            normalize_row(p.vectors + r * p.k, p.k, p.gamma, p.beta, (double)net->spec->config.eps);
        project_row(sums, p.vectors + r * p.k, transposed, p.bias, p.n, p.k);
        for (size_t j = 0; j < p.n; j++)
            out[r * p.n + j] = (float)sums[j];
    }
    if (st == GPUSERVE_OK)
        st = net->backend->memory_write_floats(net->device, net->addresses[index], out,
                                               p.rows * p.n, net->dtype, error);
    free(transposed);
    free(out);
    free(sums);
    return st;
}

gpuserve_status gsv_load_positions(const struct gsv_net *net, struct gsv_reader *reader,
                                   size_t item, gpuserve_error *error)
{
    switch (net->spec->items[item].kind) {
    case GSV_ITEM_RELATIVE:
        return load_relative(net, reader, item, error);
    case GSV_ITEM_ALIBI:
        return load_alibi(net, item, error);
    case GSV_ITEM_ROTARY:
        return load_rotary(net, item, error);
    case GSV_ITEM_POSITION_INDEX:
        return load_position_index(net, item, error);
    default:
        return load_projected(net, reader, item, error);
    }
}
