/*
 * large_angle.h - sine and cosine of float32 arguments beyond the range of the vector code.
 */
#ifndef GSV_CPU_LARGE_ANGLE_H
#define GSV_CPU_LARGE_ANGLE_H

/* sin(x) and cos(x) for any x of at least 2^17, an infinity (NaN) or NaN; correctly rounded but for
 * ties of float64. */
float gsv_sin_large(float x);
float gsv_cos_large(float x);

#endif
