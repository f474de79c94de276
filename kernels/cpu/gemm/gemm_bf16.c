/*
 * gemm_bf16: the product of bfloat16 rows and weights with sums in float32. Requires vdpbf16ps,
 * which adds two products to each lane, or bfmmla, which does so twice for two rows and two
 * columns. Activations stay float32 between operations; gsv_round_bf16() rounds them row by row
 * before the product. gemm_amx.c replaces it on AMX.
 *
 * The sums run over pairs of k in order, for every tile height.
 */
#include "kernels/cpu/runtime/isa_symbols.h"

#if defined(GSV_HAS_BF16)
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/runtime/bf16.h"

#if defined(GSV_HAS_MMLA)
#define MMLA_SUMS vf
#define MMLA(sums, in, weight) \
    (vf) vbfmmlaq_f32((float32x4_t)(sums), (bfloat16x8_t)(in), (bfloat16x8_t)(weight))
#include "kernels/cpu/gemm/tile_mmla.h"

GSV_INLINE void tile(int32_t rows, const uint16_t *a, size_t lda, const uint16_t *b, int32_t k,
                     float *c)
{
    mmla_tile(rows, (const uint8_t *)a, lda * sizeof(*a), (const uint8_t *)b,
              k * (int32_t)sizeof(*a), c);
}

#else
GSV_INLINE void tile(int32_t rows, const uint16_t *a, size_t lda, const uint16_t *b, int32_t k,
                     float *c)
{
    vf sums[GSV_MR][GSV_NV];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_set(0.0f);
    for (int32_t i = 0; i < k; i += 2) {
        vi weight[GSV_NV];

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++) {
            weight[v] = *(const vi_any *)(const void *)(b + v * 2 * GSV_VL);
            __builtin_prefetch((const char *)(b + v * 2 * GSV_VL) + GSV_AHEAD_BYTES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vi x = vi_broadcast(a + (size_t)r * lda);

#pragma GCC unroll 16
            for (int v = 0; v < GSV_NV; v++)
                sums[r][v] = vh_dot2(sums[r][v], x, weight[v]);
        }
        a += 2;
        b += 2 * GSV_NR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            vf_store(c + r * GSV_NR + v * GSV_VL, sums[r][v]);
}
#endif

typedef void (*tile_fn)(const uint16_t *a, size_t lda, const uint16_t *b, int32_t k, float *c);

#define TILE(rows)                                                                                 \
    static void tile_##rows(const uint16_t *a, size_t lda, const uint16_t *b, int32_t k, float *c) \
    {                                                                                              \
        tile(rows, a, lda, b, k, c);                                                               \
    }
#define TILE_NAME(rows) tile_##rows,

GSV_HEIGHTS(TILE)

static const tile_fn tiles[GSV_MR + 1] = { NULL, GSV_HEIGHTS(TILE_NAME) };

void GSV_VARIANT(gsv_gemm_bf16)(const struct gsv_gemm_bf16 *gemm, const struct gsv_span *span)
{
    const size_t panel_words = (size_t)gemm->k * GSV_NR;
    float sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    for (int32_t row = span->row; row < span->row_end;) {
        const int32_t rows = gsv_tile_height(span->row_end - row, GSV_MR);
        const uint16_t *in = gemm->in + (size_t)row * gemm->in_ld;

        for (int32_t panel = span->panel; panel < span->panel_end; panel++) {
            tiles[rows](in, gemm->in_ld, gemm->weight + (size_t)panel * panel_words, gemm->k, sums);
            finish_tile(&gemm->finish, FINISH_ROUNDED, NULL, sums, row, rows, panel * GSV_NR);
        }
        row += rows;
    }
}
#endif
