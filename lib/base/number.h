/*
 * number.h - numbers as text.
 */
#ifndef GSV_BASE_NUMBER_H
#define GSV_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define GSV_FLOAT_BYTES 24

#ifdef __cplusplus
extern "C" {
#endif

/* The shortest decimal that reads back as the same float, "null" for NaN and infinity: valid in
 * JSON. Writes at most GSV_FLOAT_BYTES without a closing NUL; returns how many. */
size_t gsv_float_text(float value, char *text);
/* A whole number in decimal: at most GSV_FLOAT_BYTES, no closing NUL. */
size_t gsv_integer_text(int64_t value, char *text);

#ifdef __cplusplus
}
#endif

#endif
