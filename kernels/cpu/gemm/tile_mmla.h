/*
 * tile_mmla.h - the tile of a product with the matrix multiplication instructions of Arm, which
 * multiply two rows by two columns, 8 bytes of each. The source that includes it defines
 *
 *   MMLA_SUMS                the vector type of the sums: vi or vf
 *   MMLA(sums, in, weight)   sums[2][2] += in[2][8 bytes] * weight[2][8 bytes]^T
 *
 * The panel has pairs of lanes (isa.h). Each element is computed from its own row and column only,
 * in order of k, so an odd last row is paired with itself.
 */
#ifndef GSV_CPU_TILE_MMLA_H
#define GSV_CPU_TILE_MMLA_H

#include "kernels/cpu/runtime/vec.h"

#define ROW_PAIRS ((GSV_MR + 1) / 2)
#define COLUMN_PAIRS (GSV_NR / 2)
#define PAIR_BYTES 8                       /* of one column */
#define PAIRED_PANEL (GSV_NR * PAIR_BYTES) /* bytes of a panel for 8 bytes of each column */

/* Rows 2 * pair and 2 * pair + 1 of a tile. */
struct mmla_rows {
    const uint8_t *even[ROW_PAIRS], *odd[ROW_PAIRS];
};

GSV_INLINE int mmla_pairs(int32_t rows)
{
    return (rows + 1) / 2;
}

GSV_INLINE struct mmla_rows mmla_rows(int32_t rows, const uint8_t *a, size_t lda)
{
    struct mmla_rows at;

#pragma GCC unroll 16
    for (int p = 0; p < mmla_pairs(rows); p++) {
        at.even[p] = a + 2 * (size_t)p * lda;
        at.odd[p] = 2 * p + 1 < rows ? at.even[p] + lda : at.even[p];
    }
    return at;
}

/* The products of 8 bytes of k. */
GSV_INLINE void mmla_step(int pairs, const vi in[ROW_PAIRS], const uint8_t *b,
                          MMLA_SUMS sums[ROW_PAIRS][COLUMN_PAIRS])
{
#pragma GCC unroll 16
    for (int c = 0; c < COLUMN_PAIRS; c++) {
        const vi weight = *(const vi_any *)(const void *)(b + 2 * PAIR_BYTES * c);

#pragma GCC unroll 16
        for (int p = 0; p < pairs; p++)
            sums[p][c] = MMLA(sums[p][c], in[p], weight);
    }
}

/* The products of the last lane, if their number is odd: the other half of the 8 bytes is zero. */
GSV_INLINE void mmla_last_lane(int pairs, const struct mmla_rows *at, int32_t i, const uint8_t *b,
                               MMLA_SUMS sums[ROW_PAIRS][COLUMN_PAIRS])
{
    const int32x4_t zero = vdupq_n_s32(0);
    vi in[ROW_PAIRS], wide[COLUMN_PAIRS];

#pragma GCC unroll 16
    for (int p = 0; p < pairs; p++) {
        int32_t even, odd;

        memcpy(&even, at->even[p] + i, sizeof(even));
        memcpy(&odd, at->odd[p] + i, sizeof(odd));
        in[p] = (vi){ even, 0, odd, 0 };
    }
#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++) {
        const int32x4_t lanes = (int32x4_t)vld1q_u8(b + v * 4 * GSV_VL);

        wide[2 * v] = (vi)vzip1q_s32(lanes, zero);
        wide[2 * v + 1] = (vi)vzip2q_s32(lanes, zero);
    }
    mmla_step(pairs, in, (const uint8_t *)wide, sums);
}

/* Sums of two rows by two columns to rows of columns. */
GSV_INLINE void mmla_store(int32_t rows, MMLA_SUMS sums[ROW_PAIRS][COLUMN_PAIRS], vi_any *c)
{
#pragma GCC unroll 16
    for (int p = 0; p < mmla_pairs(rows); p++) {
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++) {
            const int64x2_t left = (int64x2_t)sums[p][2 * v], right = (int64x2_t)sums[p][2 * v + 1];

            c[2 * p * GSV_NV + v] = (vi)vzip1q_s64(left, right);
            if (2 * p + 1 < rows)
                c[(2 * p + 1) * GSV_NV + v] = (vi)vzip2q_s64(left, right);
        }
    }
}

/* sums[rows][GSV_NR] = in * weight^T over `bytes` bytes of k, a multiple of 4. */
GSV_INLINE void mmla_tile(int32_t rows, const uint8_t *a, size_t lda, const uint8_t *b,
                          int32_t bytes, void *c)
{
    const struct mmla_rows at = mmla_rows(rows, a, lda);
    const int pairs = mmla_pairs(rows);
    MMLA_SUMS sums[ROW_PAIRS][COLUMN_PAIRS];
    vi in[ROW_PAIRS], next[ROW_PAIRS];
    int32_t i = 0;

#pragma GCC unroll 16
    for (int p = 0; p < pairs; p++)
#pragma GCC unroll 16
        for (int v = 0; v < COLUMN_PAIRS; v++)
            sums[p][v] = (MMLA_SUMS)vi_set(0);
    for (; bytes - i >= 2 * PAIR_BYTES; i += 2 * PAIR_BYTES, b += 2 * PAIRED_PANEL) {
#pragma GCC unroll 4
        for (int line = 0; line < 2 * PAIRED_PANEL; line += 64)
            __builtin_prefetch(b + GSV_AHEAD_BYTES + line);
#pragma GCC unroll 16
        for (int p = 0; p < pairs; p++) {
            const int64x2_t even = (int64x2_t)vld1q_u8(at.even[p] + i);
            const int64x2_t odd = (int64x2_t)vld1q_u8(at.odd[p] + i);

            in[p] = (vi)vzip1q_s64(even, odd);
            next[p] = (vi)vzip2q_s64(even, odd);
        }
        mmla_step(pairs, in, b, sums);
        mmla_step(pairs, next, b + PAIRED_PANEL, sums);
    }
    if (bytes - i >= PAIR_BYTES) {
#pragma GCC unroll 16
        for (int p = 0; p < pairs; p++)
            in[p] = (vi)vcombine_u8(vld1_u8(at.even[p] + i), vld1_u8(at.odd[p] + i));
        mmla_step(pairs, in, b, sums);
        i += PAIR_BYTES;
        b += PAIRED_PANEL;
    }
    if (i < bytes)
        mmla_last_lane(pairs, &at, i, b, sums);
    mmla_store(rows, sums, c);
}

#endif
