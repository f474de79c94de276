/*
 * gemm_half: the float32 product with weights in bfloat16 or float16, which are half as large.
 *
 * Each weight is converted in a register, exactly, and multiplied in float32. So the result has the
 * bits of a float32 product with the rounded weights: the order of the sums is that of gemm_f32.c.
 * It serves processors without products of 16-bit rows.
 *
 * bfloat16 is packed in pairs of k: the lower half of a lane is the even k. float16 is packed like
 * float32, since the processors convert adjacent elements.
 */
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/tile_order.h"

/* One vector of the 16-bit weights of `odd`, the first or second k of a pair. */
GSV_INLINE vf load_bf16(const uint16_t *pair, int v, int odd)
{
    const vi lanes = *(const vi_any *)(const void *)(pair + (size_t)v * 2 * GSV_VL);

    return (vf)(odd ? lanes & vi_set((int32_t)0xFFFF0000) : lanes << 16);
}

GSV_INLINE vf load_f16(const uint16_t *pair, int v, int odd)
{
    return vf_load_f16(pair + odd * GSV_NR + v * GSV_VL);
}

/* One k: `odd` selects it from the pair. */
GSV_INLINE void step(int32_t rows, const struct gsv_tile_rows *at, const uint16_t *pair, int odd,
                     int is_f16, vf sums[GSV_MR][GSV_NV])
{
    vf weight[GSV_NV];

#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++)
        weight[v] = is_f16 ? load_f16(pair, v, odd) : load_bf16(pair, v, odd);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const vf x = vf_set(((const float *)gsv_row(at, r))[odd]);

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_fma(x, weight[v], sums[r][v]);
    }
}

GSV_INLINE void tile(int32_t rows, const struct gsv_gemm_half *gemm, const struct gsv_tile *at_tile,
                     int is_f16, float *c)
{
    const uint16_t *b = (const uint16_t *)(const void *)at_tile->weight;
    const char *ahead = at_tile->ahead;
    vf sums[GSV_MR][GSV_NV];
    struct gsv_tile_rows at;

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vf_set(0.0f);

    gsv_rows_start(&at, rows, gemm->in + (size_t)at_tile->row * gemm->in_ld,
                   gemm->in_ld * sizeof(float));
    for (int32_t left = gemm->k; left >= 2; left -= 2) {
        gsv_fetch(ahead);
        step(rows, &at, b, 0, is_f16, sums);
        step(rows, &at, b, 1, is_f16, sums);
        ahead += at_tile->ahead_step;
        b += 2 * GSV_NR;
        gsv_rows_advance(&at, rows, 2 * sizeof(float));
    }
    if (gemm->k % 2)
        step(rows, &at, b, 0, is_f16, sums);

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            vf_store(c + (size_t)r * GSV_NR + v * GSV_VL, sums[r][v]);
}

typedef void (*tile_fn)(const struct gsv_gemm_half *gemm, const struct gsv_tile *at, float *c);

#define TILE_BF16(rows)                                                                            \
    static void bf16_##rows(const struct gsv_gemm_half *gemm, const struct gsv_tile *at, float *c) \
    {                                                                                              \
        tile(rows, gemm, at, 0, c);                                                                \
    }
#define TILE_F16(rows)                                                                            \
    static void f16_##rows(const struct gsv_gemm_half *gemm, const struct gsv_tile *at, float *c) \
    {                                                                                             \
        tile(rows, gemm, at, 1, c);                                                               \
    }
#define NAME_BF16(rows) bf16_##rows,
#define NAME_F16(rows) f16_##rows,

GSV_HEIGHTS(TILE_BF16)
GSV_HEIGHTS(TILE_F16)

static const tile_fn tiles[2][GSV_MR + 1] = { { NULL, GSV_HEIGHTS(NAME_BF16) },
                                              { NULL, GSV_HEIGHTS(NAME_F16) } };

static void run_tile(const void *gemm_, const struct gsv_tile *at)
{
    const struct gsv_gemm_half *gemm = gemm_;
    float sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    tiles[gemm->is_f16][at->rows](gemm, at, sums);
    finish_tile(&gemm->finish, FINISH_FLOAT, NULL, sums, at->row, at->rows, at->panel * GSV_NR);
}

void GSV_VARIANT(gsv_gemm_half)(const struct gsv_gemm_half *gemm, const struct gsv_span *span)
{
    gsv_walk(gemm, span, gemm->weight, gemm->panel_bytes, (size_t)gemm->k * sizeof(float),
             run_tile);
}
