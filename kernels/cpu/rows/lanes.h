/*
 * lanes.h - the vectors of a row of any number of columns: whole ones, and a part at the end.
 */
#ifndef GSV_CPU_LANES_H
#define GSV_CPU_LANES_H

#include "kernels/cpu/runtime/vec.h"

#include <math.h>

GSV_INLINE int lanes_at(int32_t cols, int32_t c)
{
    return cols - c < GSV_VL ? cols - c : GSV_VL;
}

/* For each vector of a row with partial sums: `c` is its first column, `n` its lanes, `s` its part
 * of the sums. */
#define FOR_LANES(c, n, s, cols)                                                 \
    for (int32_t block_ = 0; block_ < (cols); block_ += GSV_SUM_LANES)           \
    _Pragma("GCC unroll 4") for (int s = 0, c = block_, n = lanes_at((cols), c); \
                                 s < GSV_NS && n > 0; s++, c += GSV_VL, n = lanes_at((cols), c))

GSV_INLINE vf load_lanes(const float *p, int n)
{
    return n == GSV_VL ? vf_load(p) : vf_load_part(p, n);
}

GSV_INLINE void store_lanes(float *p, vf v, int n)
{
    if (n == GSV_VL)
        vf_store(p, v);
    else
        vf_store_part(p, v, n);
}

GSV_INLINE float sum_of_squares(const float *row, int32_t cols)
{
    struct vf_sums square = vf_no_sums();

    FOR_LANES (c, n, s, cols) {
        const vf x = load_lanes(row + c, n);

        square.part[s] = vf_fma(x, x, square.part[s]);
    }
    return vf_total(square);
}

/* The Euclidean norm of a row, at least MIN_NORM, which is divided by; a NaN stays. */
#define MIN_NORM 1e-12f

GSV_INLINE float norm_of(const float *row, int32_t cols)
{
    const float norm = sqrtf(sum_of_squares(row, cols));

    return norm < MIN_NORM ? MIN_NORM : norm;
}

GSV_INLINE void clear_row(float *row, int32_t cols)
{
    for (int32_t i = 0; i < cols; i += GSV_VL)
        store_lanes(row + i, vf_set(0.0f), lanes_at(cols, i));
}

#endif
