/*
 * gemm_f32: out = activation(in * weight^T + bias) + residual in float32.
 *
 *   for each tile of rows          up to GSV_MR rows, read in place
 *     for each panel of columns    packed weights; tile_order.h defines the order
 *       sums in registers over all k, then bias, activation and residual
 *
 * Each element is one chain of fused multiply-adds in order of k, for every tile height. A row's
 * bits therefore do not depend on the number of rows or their division into tiles.
 */
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/tile_order.h"

/* One step of k. */
GSV_INLINE void step(int32_t rows, const struct gsv_tile_rows *at, const float *b,
                     const char *ahead, vf sums[GSV_MR][GSV_NV])
{
    vf weight[GSV_NV];

#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++)
        weight[v] = vf_load(b + v * GSV_VL);
    gsv_fetch(ahead);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const vf x = vf_set(*(const float *)gsv_row(at, r));

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_fma(x, weight[v], sums[r][v]);
    }
}

GSV_INLINE void tile(int32_t rows, const float *a, size_t lda, const float *b, int32_t k, float *c,
                     size_t ldc, const char *ahead, size_t ahead_step)
{
    vf sums[GSV_MR][GSV_NV];
    struct gsv_tile_rows at;

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_set(0.0f);

    gsv_rows_start(&at, rows, a, lda * sizeof(float));
    for (; k > 0; k--, ahead += ahead_step) {
        step(rows, &at, b, ahead, sums);
        b += GSV_NR;
        gsv_rows_advance(&at, rows, sizeof(float));
    }

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            vf_store(c + (size_t)r * ldc + v * GSV_VL, sums[r][v]);
}

#define TILE(rows)                                                                           \
    static void tile_##rows(const float *a, size_t lda, const float *b, int32_t k, float *c, \
                            size_t ldc, const char *ahead, size_t ahead_step)                \
    {                                                                                        \
        tile(rows, a, lda, b, k, c, ldc, ahead, ahead_step);                                 \
    }

#define TILE_NAME(rows) tile_##rows,

GSV_HEIGHTS(TILE)

const gsv_tile_f32_fn GSV_VARIANT(gsv_tiles_f32)[GSV_TILE_ROWS + 1] = { NULL,
                                                                        GSV_HEIGHTS(TILE_NAME) };

static void run_tile(const void *gemm_, const struct gsv_tile *tile)
{
    const struct gsv_gemm_f32 *gemm = gemm_;
    float sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    GSV_VARIANT(gsv_tiles_f32)
    [tile->rows](gemm->in + (size_t)tile->row * gemm->in_ld, gemm->in_ld,
                 (const float *)(const void *)tile->weight, gemm->k, sums, GSV_NR, tile->ahead,
                 tile->ahead_step);
    finish_tile(&gemm->finish, FINISH_FLOAT, NULL, sums, tile->row, tile->rows,
                tile->panel * GSV_NR);
}

void GSV_VARIANT(gsv_gemm_f32)(const struct gsv_gemm_f32 *gemm, const struct gsv_span *span)
{
    const size_t k = (size_t)gemm->k;

    gsv_walk(gemm, span, gemm->weight, k * GSV_STEP_BYTES, k * sizeof(float), run_tile);
}
