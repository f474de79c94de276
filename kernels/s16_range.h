/*
 * s16_range.h - the ranges of integers of the int16 product, which kernels/ref/linear.c defines:
 * -levels..levels, so that sums of 32 bits are exact.
 *
 * The levels of weights follow from k alone: 4728 for k = 384, 2364 for k = 1536, which rounds
 * normally distributed weights to half the error of bfloat16. Those of rows follow from the largest
 * sum of the magnitudes in a column: the sum over a row and this column is at most the product of
 * both, below 2^31. Rows have at least a quarter of the levels of weights, if all weights are
 * equal, and more than weights where these are normally distributed.
 */
#ifndef GSV_KERNELS_S16_RANGE_H
#define GSV_KERNELS_S16_RANGE_H

#include <math.h>
#include <stdint.h>

/* 15 bits: two products of a lane never exceed 32 bits. */
#define GSV_S16_MAX_LEVELS 16383

static inline int32_t gsv_s16_weight_levels(int32_t k)
{
    const int32_t root = (int32_t)(2 * sqrt((double)(INT32_MAX / k)));

    return root < GSV_S16_MAX_LEVELS ? root : GSV_S16_MAX_LEVELS;
}

/* `sum`: the largest over the columns of the sum of |integer|, at most k * weight levels. */
static inline int32_t gsv_s16_row_levels(int32_t sum)
{
    const int32_t rest = sum > 0 ? INT32_MAX / sum : GSV_S16_MAX_LEVELS;

    return rest < GSV_S16_MAX_LEVELS ? rest : GSV_S16_MAX_LEVELS;
}

#endif
