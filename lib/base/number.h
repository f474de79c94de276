/*
 * number.h - formats numbers as text, without locale, allocation or state.
 */
#ifndef GSV_BASE_NUMBER_H
#define GSV_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define GSV_FLOAT_BYTES 24

#ifdef __cplusplus
extern "C" {
#endif

/* The shortest decimal that parses back to the same float; "null" for NaN and infinity, so the text
 * is valid JSON. Writes at most GSV_FLOAT_BYTES without a terminating NUL; returns the length. */
size_t gsv_float_text(float value, char *text);
/* An integer in decimal: at most GSV_FLOAT_BYTES, no terminating NUL; returns the length. */
size_t gsv_integer_text(int64_t value, char *text);

#ifdef __cplusplus
}
#endif

#endif
