/*
 * buffer.h - bytes that grow up to a maximum, and JSON written onto them.
 *
 * The first append that fails, for memory or for the maximum, makes all later ones do nothing: a
 * writer looks at `failed` once, at its end.
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
    size_t maximum; /* 0: only memory limits it */
    bool failed;
};

void gsv_buffer_reset(struct gsv_buffer *buffer); /* frees; `maximum` stays */
/* Room for `more` bytes after the present ones, or NULL; the caller adds to `size` what it used. */
char *gsv_buffer_reserve(struct gsv_buffer *buffer, size_t more);
void gsv_buffer_add(struct gsv_buffer *buffer, const void *bytes, size_t size);
void gsv_buffer_text(struct gsv_buffer *buffer, const char *text);
void gsv_buffer_format(struct gsv_buffer *buffer, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* ---------------------------------------------------------------------------------------- JSON */

/* A string with its quotes; `text` is UTF-8. NULL gives null. */
void gsv_put_text(struct gsv_buffer *buffer, const char *text);
void gsv_put_bytes(struct gsv_buffer *buffer, const char *text, size_t size);
void gsv_put_number(struct gsv_buffer *buffer, int64_t number);
void gsv_put_float(struct gsv_buffer *buffer, float value);
/* "[0.5,1]"; NaN and infinity are null. */
void gsv_put_floats(struct gsv_buffer *buffer, const float *values, size_t n);
/* "[[0.5,1],[...]]" of [n_rows, columns]. */
void gsv_put_rows(struct gsv_buffer *buffer, const float *values, size_t n_rows, size_t columns);
/* A string that holds the little-endian float32 values as base64. */
void gsv_put_base64(struct gsv_buffer *buffer, const float *values, size_t n);

#endif
