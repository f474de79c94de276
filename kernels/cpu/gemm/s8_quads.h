/*
 * s8_quads.h - sums of four int8 products in 16 bits, for x86 processors without VNNI.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds adjacent products in 16 bits; vpmaddwd
 * widens them to 32 bits. Adding the results of two vpmaddubsw first saves one of two vpmaddwd. No
 * sum may leave 16 bits: the weights of one sign in a quad sum to at most GSV_QUAD_SUM, and
 * 255 * 128 < 2^15.
 *
 * A quad is the bytes 0 and 1, or 2 and 3, of a lane of four k in two consecutive lanes: of eight k
 * these are 0, 1, 4, 5 and 2, 3, 6, 7.
 */
#ifndef GSV_CPU_S8_QUADS_H
#define GSV_CPU_S8_QUADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GSV_QUAD_SUM 128
#define GSV_QUAD_DEPTH 8 /* k of two quads */

/* True if both quads of n integers, up to GSV_QUAD_DEPTH, fit into 16 bits. */
static inline bool gsv_quads_fit(const int8_t *w, size_t n)
{
    int32_t positive[2] = { 0 }, negative[2] = { 0 };

    for (size_t i = 0; i < n; i++) {
        positive[i / 2 % 2] += w[i] > 0 ? w[i] : 0;
        negative[i / 2 % 2] += w[i] < 0 ? -w[i] : 0;
    }
    return positive[0] <= GSV_QUAD_SUM && positive[1] <= GSV_QUAD_SUM &&
           negative[0] <= GSV_QUAD_SUM && negative[1] <= GSV_QUAD_SUM;
}

#endif
