/*
 * json_write.h - a streaming JSON writer for replies: appends to a buffer, without a document tree.
 *
 * A reply has up to millions of floats. They are formatted once, from the result array into the
 * reply, so that the memory is that of the text. lib/runtime/core/json_out.h writes the library's
 * small documents as jansson trees instead: there, a key may be added at any time, jansson checks
 * UTF-8, and numbers are integers. The two share no code, because each does what the other cannot.
 */
#ifndef GSV_HTTP_JSON_WRITE_H
#define GSV_HTTP_JSON_WRITE_H

#include "lib/base/buffer.h"

/* A quoted, escaped string from UTF-8. NULL writes null. */
void gsv_put_text(struct gsv_buffer *buffer, const char *text);
void gsv_put_bytes(struct gsv_buffer *buffer, const char *text, size_t size);
void gsv_put_number(struct gsv_buffer *buffer, int64_t number);
void gsv_put_float(struct gsv_buffer *buffer, float value);
/* "[0.5,1]"; NaN and infinity become null. */
void gsv_put_floats(struct gsv_buffer *buffer, const float *values, size_t n);
/* "[[0.5,1],[...]]" from [n_rows, columns]. */
void gsv_put_rows(struct gsv_buffer *buffer, const float *values, size_t n_rows, size_t columns);
/* A base64 string of the bytes. */
void gsv_put_base64(struct gsv_buffer *buffer, const void *bytes, size_t size);

#endif
