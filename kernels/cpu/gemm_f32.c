/*
 * gemm_f32: out = activation(in * weight^T + bias) + residual in float32.
 *
 *   for each tile of rows          up to GSV_MR rows, read in place
 *     for each panel of columns    packed weights, streamed from the second-level cache
 *       sums in registers over all k, then bias, activation and residual
 *
 * Each element is one chain of fused multiply-adds in the order of k, the same for every tile
 * height: a row's bits do not depend on how many rows there are or how they are cut.
 */
#include "kernels/cpu/variant.h"
#include "kernels/cpu/finish.h"

GSV_INLINE void tile(int32_t rows, const float *a, size_t lda, const float *b, int32_t k, float *c,
                     size_t ldc)
{
    vf sums[GSV_MR][GSV_NV];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_set(0.0f);

    for (int32_t i = 0; i < k; i++) {
        vf weight[GSV_NV];

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++) {
            weight[v] = vf_load(b + v * GSV_VL);
            __builtin_prefetch((const char *)(b + v * GSV_VL) + GSV_AHEAD_BYTES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set(a[(size_t)r * lda]);

#pragma GCC unroll 16
            for (int v = 0; v < GSV_NV; v++)
                sums[r][v] = vf_fma(x, weight[v], sums[r][v]);
        }
        a++;
        b += GSV_NR;
    }

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            vf_store(c + (size_t)r * ldc + v * GSV_VL, sums[r][v]);
}

#define TILE(rows)                                                                           \
    static void tile_##rows(const float *a, size_t lda, const float *b, int32_t k, float *c, \
                            size_t ldc)                                                      \
    {                                                                                        \
        tile(rows, a, lda, b, k, c, ldc);                                                    \
    }

#define TILE_NAME(rows) tile_##rows,

GSV_HEIGHTS(TILE)

const gsv_tile_f32_fn GSV_VARIANT(gsv_tiles_f32)[GSV_TILE_ROWS + 1] = { NULL,
                                                                        GSV_HEIGHTS(TILE_NAME) };

void GSV_VARIANT(gsv_gemm_f32)(const struct gsv_gemm_f32 *gemm, const struct gsv_span *span)
{
    const size_t panel_floats = (size_t)gemm->k * GSV_NR;
    float sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    for (int32_t row = span->row; row < span->row_end;) {
        const int32_t rows = gsv_tile_height(span->row_end - row, GSV_MR);
        const float *in = gemm->in + (size_t)row * gemm->in_ld;

        for (int32_t panel = span->panel; panel < span->panel_end; panel++) {
            GSV_VARIANT(gsv_tiles_f32)
            [rows](in, gemm->in_ld, gemm->weight + (size_t)panel * panel_floats, gemm->k, sums,
                   GSV_NR);
            finish_tile(&gemm->finish, NULL, sums, row, rows, panel * GSV_NR);
        }
        row += rows;
    }
}
