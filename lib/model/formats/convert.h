/*
 * convert.h - converts numbers from a file or a device to float32.
 */
#ifndef GSV_MODEL_CONVERT_H
#define GSV_MODEL_CONVERT_H

#include <stddef.h>

/* Convert n values. The buffers may overlap if both end at the same address: 16-bit results are
 * widened in place this way. */
void gsv_floats_from_f16(float *to, const void *from, size_t n);
void gsv_floats_from_bf16(float *to, const void *from, size_t n);
void gsv_floats_from_f64(float *to, const void *from, size_t n);

/* The index of the first NaN or infinity; n if all values are finite. */
size_t gsv_floats_finite(const float *values, size_t n);

#endif
