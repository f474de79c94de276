/*
 * buffer.h - a growing byte buffer with a maximum size.
 *
 * The error is sticky: after the first append that fails, for memory or for the maximum, later ones
 * do nothing. A writer checks `failed` once, at its end. Not thread-safe.
 */
#ifndef GSV_BASE_BUFFER_H
#define GSV_BASE_BUFFER_H

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

#endif
