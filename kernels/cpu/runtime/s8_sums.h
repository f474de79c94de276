/*
 * s8_sums.h - sums of int8 products in 16 bits, for x86 processors without VNNI.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds adjacent products in 16 bits; vpmaddwd
 * widens them to 32 bits. No sum may leave 16 bits: the weights of one sign in it sum to at most
 * GSV_SUM_WEIGHTS, and 255 * 128 < 2^15.
 *
 *   quads   two vpmaddubsw are added before vpmaddwd: 5 instructions for 64 weights, which have
 *           about 7 bits
 *   pairs   each vpmaddubsw has its vpmaddwd: 6 instructions, and about 8 bits
 *
 * A pair is the bytes 0 and 1, or 2 and 3, of a lane of four k; a quad is a pair of each of two
 * consecutive lanes. Of eight k the quads are 0, 1, 4, 5 and 2, 3, 6, 7.
 *
 * On AVX2 products that do not widen have pairs: attention's output and the second product of the
 * feed-forward network. They add to the residual stream, where their errors stay, and with quads
 * more of them would have to be kept in int16, 8 instructions for 64 weights. AVX-512 without VNNI
 * has no int16 products to save, and the portable tables keep the bits that they have.
 */
#ifndef GSV_CPU_S8_SUMS_H
#define GSV_CPU_S8_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GSV_SUM_WEIGHTS 128
#define GSV_QUAD_DEPTH 8 /* k of two quads */

/* The products in a sum of 16 bits; NONE: products are widened to 32 bits before they are added. */
enum gsv_s8_sum { GSV_SUM_NONE = 0, GSV_SUM_PAIR = 2, GSV_SUM_QUAD = 4 };

/* The sums that the scales of a product with n outputs and k inputs allow. */
static inline enum gsv_s8_sum gsv_s8_sum_of(bool adds_pairs, size_t n, size_t k)
{
    return adds_pairs && k >= n ? GSV_SUM_PAIR : GSV_SUM_QUAD;
}

/* The number of the sum that weight i of GSV_QUAD_DEPTH is in. */
static inline size_t gsv_s8_sum_at(enum gsv_s8_sum sum, size_t i)
{
    return sum == GSV_SUM_QUAD ? i / 2 % 2 : i / 2;
}

#endif
