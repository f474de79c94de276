/*
 * weight_rounding.c - rounding of INT8 weights by the error of the outputs.
 *
 * A row's error e in the weights gives an output error of e x. Its mean square is e H e^T with H =
 * the mean of x x^T. H of a text has a few large directions, above all the mean of its tokens: an
 * error along it is in every token and does not average out in pooling. Rounding each weight to
 * nearest ignores that.
 *
 * Coordinate descent: the weights of a row are rounded in order, each to the neighbour that gives
 * the lower e H e^T with the errors chosen so far. A second pass takes all others into account.
 * With H as n directions and a diagonal, a weight costs O(n) and no k x k matrix is needed.
 *
 * ROWS rows are rounded together: one row per lane, so the compiler needs no sums across a vector
 * and the result does not depend on its vectors.
 */
#include "lib/model/int8/int8.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { ROWS = 16, PASSES = 2 };

/* One float of each row. */
typedef float row_floats __attribute__((vector_size(ROWS * sizeof(float)), aligned(sizeof(float))));

#define LEVELS 127.0f
#define MIN_SCALE 1e-32f /* as in kernels/ref/linear.c: 1 / scale stays finite */

struct rounded_rows {
    row_floats *moved;  /* [n] sum over j of change_j * u_j */
    row_floats *values; /* [k] weights in steps of the row's scale */
    row_floats *change; /* [k] rounded value - value */
    const float *scale; /* [rows] of the block */
};

/* The threads take the next block of rows from a counter. */
struct rounding {
    float *weight;
    const float *scale;
    const int32_t *copies; /* [k] or NULL */
    size_t rows;
    const struct gsv_input_squares *input;
    atomic_size_t next;
};

struct worker {
    struct rounding *rounding;
    float *scratch;
};

static size_t worker_floats(size_t k, size_t n)
{
    return ROWS * (n + 2 * k);
}

static int32_t limited(int32_t n_threads)
{
    if (n_threads < 1)
        return 1;
    return n_threads < GSV_MAX_ROUNDING_THREADS ? n_threads : GSV_MAX_ROUNDING_THREADS;
}

size_t gsv_rounding_floats(size_t k, size_t n, int32_t n_threads)
{
    return worker_floats(k, n) * (size_t)limited(n_threads);
}

static void load_row(struct rounded_rows *b, size_t row, const float *weight, size_t k)
{
    const float inverse = b->scale[row] >= MIN_SCALE ? 1.0f / b->scale[row] : 0.0f;

    for (size_t j = 0; j < k; j++)
        b->values[j][row] = weight[j] * inverse;
}

static void store_row(const struct rounded_rows *b, size_t row, float *weight, size_t k)
{
    for (size_t j = 0; j < k; j++)
        weight[j] = (b->values[j][row] + b->change[j][row]) * b->scale[row];
}

/* The change that rounds `value`. `slope` is half the derivative of e H e^T by this weight's error
 * where that is 0, and `square` the element of H's diagonal. A weight at the end of the range stays
 * there. */
static inline float choose(float value, float slope, float square, float limit)
{
    const float down = floorf(value) - value;

    if (fabsf(value) > limit - 0.5f)
        return copysignf(limit, value) - value;
    return (2.0f * down + 1.0f) * square + 2.0f * slope < 0.0f ? down + 1.0f : down;
}

/* `limit` is the largest integer. */
static void round_column(struct rounded_rows *b, const struct gsv_input_squares *input, size_t j,
                         float limit)
{
    const float *u = input->u + j * input->n;
    const row_floats before = b->change[j];
    float square = input->rest[j];
    row_floats slope = { 0.0f }, differs;

    for (size_t t = 0; t < input->n; t++) {
        square += u[t] * u[t];
        slope += b->moved[t] * u[t];
    }
    slope -= before * (square - input->rest[j]);
    for (size_t r = 0; r < ROWS; r++)
        b->change[j][r] = choose(b->values[j][r], slope[r], square, limit);
    differs = b->change[j] - before;
    for (size_t t = 0; t < input->n; t++)
        b->moved[t] += differs * u[t];
}

static void round_block(const struct rounding *rounding, size_t row, float *scratch)
{
    const struct gsv_input_squares *input = rounding->input;
    const size_t k = input->k, left = rounding->rows - row, n = left < ROWS ? left : ROWS;
    float *weight = rounding->weight + row * k;
    struct rounded_rows b = { .moved = (row_floats *)(void *)scratch,
                              .scale = rounding->scale + row };

    b.values = b.moved + input->n;
    b.change = b.values + k;
    memset(scratch, 0, worker_floats(k, input->n) * sizeof(float));
    for (size_t r = 0; r < n; r++)
        load_row(&b, r, weight + r * k, k);
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t j = 0; j < k; j++)
            round_column(&b, input, j,
                         rounding->copies ? LEVELS * (float)rounding->copies[j] : LEVELS);
    for (size_t r = 0; r < n; r++)
        store_row(&b, r, weight + r * k, k);
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct rounding *rounding = worker->rounding;
    size_t row;

    while ((row = atomic_fetch_add(&rounding->next, ROWS)) < rounding->rows)
        round_block(rounding, row, worker->scratch);
    return NULL;
}

/* If a thread cannot be created, the others do its blocks. */
void gsv_round_weights(float *weight, const float *scale, const int32_t *copies, size_t rows,
                       const struct gsv_input_squares *input, float *scratch, int32_t n_threads)
{
    struct rounding rounding = {
        .weight = weight, .scale = scale, .copies = copies, .rows = rows, .input = input
    };
    struct worker workers[GSV_MAX_ROUNDING_THREADS];
    pthread_t threads[GSV_MAX_ROUNDING_THREADS];
    const int32_t max = limited(n_threads) - 1;
    int32_t n = 0;

    for (int32_t i = 0; i <= max; i++)
        workers[i] =
            (struct worker){ &rounding, scratch + (size_t)i * worker_floats(input->k, input->n) };
    while (n < max && pthread_create(&threads[n], NULL, work, &workers[n]) == 0)
        n++;
    work(&workers[max]);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}
