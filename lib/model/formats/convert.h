/*
 * convert.h - numbers of a file or device to float32.
 */
#ifndef GSV_MODEL_CONVERT_H
#define GSV_MODEL_CONVERT_H

#include <stddef.h>

/* `n` values from `from` to `to`. The two may overlap when `from` ends where `to` does: that is
 * how 16-bit results are widened in place. */
void gsv_floats_from_f16(float *to, const void *from, size_t n);
void gsv_floats_from_bf16(float *to, const void *from, size_t n);
void gsv_floats_from_f64(float *to, const void *from, size_t n);

/* The index of the first NaN or infinity; n when all are finite. */
size_t gsv_floats_finite(const float *values, size_t n);

#endif
