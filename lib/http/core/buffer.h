/*
 * buffer.h - a growing byte buffer with a maximum size, and a JSON writer on top of it.
 *
 * The error is sticky: after the first append that fails, for memory or for the maximum, later ones
 * do nothing. A writer checks `failed` once, at its end. Not thread-safe.
 */
#ifndef GSV_HTTP_BUFFER_H
#define GSV_HTTP_BUFFER_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gsv_buffer {
    char *bytes;
    size_t size;
    size_t capacity;
    size_t maximum; /* 0: unlimited */
    bool failed;
};

void gsv_buffer_reset(struct gsv_buffer *buffer); /* frees the bytes; keeps `maximum` */
/* Returns space for `more` bytes after the current ones, or NULL. The caller adds the used bytes to
 * `size`. */
char *gsv_buffer_reserve(struct gsv_buffer *buffer, size_t more);
void gsv_buffer_add(struct gsv_buffer *buffer, const void *bytes, size_t size);
void gsv_buffer_text(struct gsv_buffer *buffer, const char *text);
void gsv_buffer_format(struct gsv_buffer *buffer, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* ---------------------------------------------------------------------------------------- JSON */

/* A quoted, escaped string from UTF-8. NULL writes null. */
void gsv_put_text(struct gsv_buffer *buffer, const char *text);
void gsv_put_bytes(struct gsv_buffer *buffer, const char *text, size_t size);
void gsv_put_number(struct gsv_buffer *buffer, int64_t number);
void gsv_put_float(struct gsv_buffer *buffer, float value);
/* "[0.5,1]"; NaN and infinity become null. */
void gsv_put_floats(struct gsv_buffer *buffer, const float *values, size_t n);
/* "[[0.5,1],[...]]" from [n_rows, columns]. */
void gsv_put_rows(struct gsv_buffer *buffer, const float *values, size_t n_rows, size_t columns);
/* A base64 string of the little-endian float32 values. */
void gsv_put_base64(struct gsv_buffer *buffer, const float *values, size_t n);

#endif
