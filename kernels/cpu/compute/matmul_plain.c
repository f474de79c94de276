/*
 * matmul_plain: the two baseline variants, in plain C on the calling thread.
 *
 *   naive   each output is one sum over k, read directly from A and B. With large matrices each
 *           step of the inner loop loads a cache line of B and uses one number of it
 *   tiled   cache blocking: blocks of A and B are copied to local tiles that stay in the L1
 *           cache, transposed if needed, and multiplied there; vectorized by the compiler
 *
 * matmul.c has the third variant: packed panels, vector registers, threads.
 */
#include "kernels/cpu/runtime/cpu.h"

#define TILE 64 /* three tiles of floats are 48 KiB */

/* Index of the element (row, column) of op(matrix). */
static int64_t offset_of(int64_t stride, int32_t transpose, int64_t row, int64_t column)
{
    return transpose ? column * stride + row : row * stride + column;
}

static void put(const struct gpuserve_op_matmul *op, int64_t row, int64_t column, float sum)
{
    float *c = &op->c[row * op->c_stride + column];

    *c = op->beta != 0.0f ? op->alpha * sum + op->beta * *c : op->alpha * sum;
}

void gsv_cpu_matmul_naive(const struct gpuserve_op_matmul *op)
{
    for (int32_t i = 0; i < op->m; i++) {
        for (int32_t j = 0; j < op->n; j++) {
            float sum = 0.0f;

            for (int32_t p = 0; p < op->k; p++)
                sum += op->a[offset_of(op->a_stride, op->transpose_a, i, p)] *
                       op->b[offset_of(op->b_stride, op->transpose_b, p, j)];
            put(op, i, j, sum);
        }
    }
}

/* Start of a tile, and its extent within the matrix. */
struct corner {
    int32_t row, column, rows, columns;
};

static struct corner corner_at(int32_t row, int32_t column, int32_t rows, int32_t columns)
{
    return (struct corner){ row, column, gsv_min(TILE, rows - row),
                            gsv_min(TILE, columns - column) };
}

/* Copies the tile of op(matrix), with zeros outside the matrix. */
static void fetch(float (*tile)[TILE], const float *matrix, int64_t stride, int32_t transpose,
                  struct corner at)
{
    for (int32_t r = 0; r < TILE; r++) {
        for (int32_t c = 0; c < TILE; c++)
            tile[r][c] = r < at.rows && c < at.columns
                             ? matrix[offset_of(stride, transpose, at.row + r, at.column + c)]
                             : 0.0f;
    }
}

/* sums += a b on whole tiles: constant loop bounds let the compiler vectorize best. */
static void multiply(float (*sums)[TILE], float (*a)[TILE], float (*b)[TILE])
{
    for (int i = 0; i < TILE; i++) {
        for (int p = 0; p < TILE; p++) {
            for (int j = 0; j < TILE; j++)
                sums[i][j] += a[i][p] * b[p][j];
        }
    }
}

void gsv_cpu_matmul_tiled(const struct gpuserve_op_matmul *op)
{
    for (int32_t i = 0; i < op->m; i += TILE) {
        for (int32_t j = 0; j < op->n; j += TILE) {
            const struct corner c = corner_at(i, j, op->m, op->n);
            float sums[TILE][TILE] = { { 0.0f } };
            float a[TILE][TILE], b[TILE][TILE];

            for (int32_t p = 0; p < op->k; p += TILE) {
                fetch(a, op->a, op->a_stride, op->transpose_a, corner_at(i, p, op->m, op->k));
                fetch(b, op->b, op->b_stride, op->transpose_b, corner_at(p, j, op->k, op->n));
                multiply(sums, a, b);
            }
            for (int32_t r = 0; r < c.rows; r++) {
                for (int32_t s = 0; s < c.columns; s++)
                    put(op, i + r, j + s, sums[r][s]);
            }
        }
    }
}
