/*
 * finite.h - check of results for NaN and infinity.
 */
#ifndef GSV_RUNTIME_FINITE_H
#define GSV_RUNTIME_FINITE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* No early exit, so that the loop is vectorized. */
static inline bool gsv_all_finite(const float *values, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

#endif
