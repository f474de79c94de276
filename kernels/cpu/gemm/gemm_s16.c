/*
 * gemm_s16: the product of 16-bit integers: signed rows, signed weights, 32-bit integer sums.
 *
 * It computes the products that an int8 net keeps in higher precision, on x86 processors without
 * bfloat16 products. gsv_quantize_s16() gives each row a scale (`step`), as kernels/ref/linear.c
 * defines it; kernels/s16_range.h bounds both ranges of integers so that no sum exceeds 32 bits.
 * So sums are exact in any order. The epilogue computes
 *
 *   (step * sum) * scale + bias, then activation and residual
 *
 * One 32-bit lane holds two products of a column (s16.h).
 */
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/tile_order.h"
#include "kernels/cpu/runtime/s16.h"

GSV_INLINE void tile(int32_t rows, const struct gsv_gemm_s16 *gemm, const struct gsv_tile *at_tile,
                     int32_t *c)
{
    const char *b = at_tile->weight, *ahead = at_tile->ahead;
    vi sums[GSV_MR][GSV_NV];
    struct gsv_tile_rows at;

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vi_set(0);
    gsv_rows_start(&at, rows, gemm->in + (size_t)at_tile->row * gemm->in_ld,
                   gemm->in_ld * sizeof(*gemm->in));
    for (int32_t left = gemm->k; left > 0; left -= 2) {
        vi weight[GSV_NV];

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            weight[v] = *(const vi_any *)(const void *)(b + v * 4 * GSV_VL);
        gsv_fetch(ahead);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vi x = vi_broadcast(gsv_row(&at, r));

#pragma GCC unroll 16
            for (int v = 0; v < GSV_NV; v++)
                sums[r][v] = vs_dot2(sums[r][v], x, weight[v]);
        }
        ahead += at_tile->ahead_step;
        b += GSV_STEP_BYTES;
        gsv_rows_advance(&at, rows, 2 * sizeof(*gemm->in));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            *(vi_any *)(c + r * GSV_NR + v * GSV_VL) = sums[r][v];
}

typedef void (*tile_fn)(const struct gsv_gemm_s16 *gemm, const struct gsv_tile *at, int32_t *c);

#define TILE(rows)                                                                      \
    static void tile_##rows(const struct gsv_gemm_s16 *gemm, const struct gsv_tile *at, \
                            int32_t *c)                                                 \
    {                                                                                   \
        tile(rows, gemm, at, c);                                                        \
    }
#define TILE_NAME(rows) tile_##rows,

GSV_HEIGHTS(TILE)

static const tile_fn tiles[GSV_MR + 1] = { NULL, GSV_HEIGHTS(TILE_NAME) };

static void run_tile(const void *gemm_, const struct gsv_tile *at)
{
    const struct gsv_gemm_s16 *gemm = gemm_;
    int32_t sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    tiles[at->rows](gemm, at, sums);
    finish_tile(&gemm->finish, FINISH_WORDS, &gemm->scales, sums, at->row, at->rows,
                at->panel * GSV_NR);
}

void GSV_VARIANT(gsv_gemm_s16)(const struct gsv_gemm_s16 *gemm, const struct gsv_span *span)
{
    gsv_walk(gemm, span, gemm->weight, (size_t)gemm->k / 2 * GSV_STEP_BYTES,
             (size_t)gemm->k * sizeof(*gemm->in), run_tile);
}
