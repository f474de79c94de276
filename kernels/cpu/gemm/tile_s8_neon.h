/*
 * tile_s8_neon.h - the tile of the int8 product on aarch64.
 *
 *   neon_i8mm       usmmla: unsigned by signed bytes, two rows by two columns (tile_mmla.h)
 *   neon_dotprod    sdot: four products of a lane
 *   neon            smull and pairwise sums: 16-bit sums of two products, then 32-bit sums
 *
 * The last two multiply signed bytes only. The input is x = 128 + s with a signed byte s, so the
 * sums start at 128 * column_sum: all of them are exact integers, and equal to those of the other
 * instruction sets.
 */
#ifndef GSV_CPU_TILE_S8_NEON_H
#define GSV_CPU_TILE_S8_NEON_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#if defined(GSV_HAS_MMLA)
#define MMLA_SUMS vi
#define MMLA(sums, in, weight) \
    (vi) vusmmlaq_s32((int32x4_t)(sums), (uint8x16_t)(in), (int8x16_t)(weight))
#include "kernels/cpu/gemm/tile_mmla.h"

GSV_INLINE void tile(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b, int32_t k,
                     const float *column_sum, int32_t *c)
{
    (void)column_sum;
    mmla_tile(rows, a, lda, (const uint8_t *)b, k, c);
}

#else
/* x - 128 as signed bytes. */
GSV_INLINE int8x16_t centered(uint8x16_t x)
{
    return (int8x16_t)veorq_u8(x, vdupq_n_u8(0x80));
}

GSV_INLINE int8x16_t broadcast4(const uint8_t *p)
{
    uint32_t four;

    memcpy(&four, p, sizeof(four));
    return centered((uint8x16_t)vdupq_n_u32(four));
}

#if defined(__ARM_FEATURE_DOTPROD)
#define BLOCK 16 /* bytes of a row that are loaded at once: four lanes */

/* The switch is gone after inlining: clang wants a literal for the lane. */
GSV_INLINE vi dot4(vi sum, int8x16_t x, int lane, int8x16_t w)
{
    const int32x4_t from = (int32x4_t)sum;

    switch (lane) {
    case 0:
        return (vi)vdotq_laneq_s32(from, w, x, 0);
    case 1:
        return (vi)vdotq_laneq_s32(from, w, x, 1);
    case 2:
        return (vi)vdotq_laneq_s32(from, w, x, 2);
    default:
        return (vi)vdotq_laneq_s32(from, w, x, 3);
    }
}

/* Lane `lane` of the inputs: four k. */
GSV_INLINE void step_lane(int32_t rows, const int8x16_t in[GSV_MR], int lane, const int8_t *b,
                          vi sums[GSV_MR][GSV_NV])
{
    __builtin_prefetch(b + GSV_AHEAD_BYTES);
#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++) {
        const int8x16_t weight = vld1q_s8(b + v * 4 * GSV_VL);

#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            sums[r][v] = dot4(sums[r][v], in[r], lane, weight);
    }
}

GSV_INLINE void step_block(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b,
                           vi sums[GSV_MR][GSV_NV])
{
    int8x16_t in[GSV_MR];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        in[r] = centered(vld1q_u8(a + (size_t)r * lda));
    step_lane(rows, in, 0, b, sums);
    step_lane(rows, in, 1, b + 4 * GSV_NR, sums);
    step_lane(rows, in, 2, b + 8 * GSV_NR, sums);
    step_lane(rows, in, 3, b + 12 * GSV_NR, sums);
}

GSV_INLINE void step4(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b,
                      vi sums[GSV_MR][GSV_NV])
{
    int8x16_t in[GSV_MR];

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        in[r] = broadcast4(a + (size_t)r * lda);
    step_lane(rows, in, 0, b, sums);
}

#else
#define BLOCK 4

/* Two products of at most 128 * 127 fit 16 bits. */
GSV_INLINE vi dot4(vi sum, int8x16_t x, int8x16_t w)
{
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);

    return (vi)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
}

GSV_INLINE void step4(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b,
                      vi sums[GSV_MR][GSV_NV])
{
    int8x16_t weight[GSV_NV];

    __builtin_prefetch(b + GSV_AHEAD_BYTES);
#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++)
        weight[v] = vld1q_s8(b + v * 4 * GSV_VL);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const int8x16_t x = broadcast4(a + (size_t)r * lda);

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = dot4(sums[r][v], x, weight[v]);
    }
}
#define step_block step4
#endif

GSV_INLINE void tile(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b, int32_t k,
                     const float *column_sum, int32_t *c)
{
    vi sums[GSV_MR][GSV_NV];
    int32_t i = 0;

#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++) {
        const vi start = (vi)vshlq_n_s32(vcvtq_s32_f32(vld1q_f32(column_sum + v * GSV_VL)), 7);

#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            sums[r][v] = start;
    }
    for (; k - i >= BLOCK; i += BLOCK, b += BLOCK * GSV_NR)
        step_block(rows, a + i, lda, b, sums);
    for (; i < k; i += 4, b += 4 * GSV_NR)
        step4(rows, a + i, lda, b, sums);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            *(vi_any *)(c + r * GSV_NR + v * GSV_VL) = sums[r][v];
}
#endif
#endif
