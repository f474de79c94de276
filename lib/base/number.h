/*
 * number.h - floats as text.
 */
#ifndef GSV_BASE_NUMBER_H
#define GSV_BASE_NUMBER_H

#include <stddef.h>

#define GSV_FLOAT_BYTES 24

#ifdef __cplusplus
extern "C" {
#endif

/* The shortest decimal that reads back as the same float, "null" for NaN and infinity: valid in
 * JSON. Writes at most GSV_FLOAT_BYTES without a closing NUL; returns how many. */
size_t gsv_float_text(float value, char *text);

#ifdef __cplusplus
}
#endif

#endif
