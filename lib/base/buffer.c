/*
 * buffer.c - a growing byte buffer with a maximum size and a sticky error.
 */
#include "lib/base/buffer.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gsv_buffer_reset(struct gsv_buffer *buffer)
{
    const size_t maximum = buffer->maximum;

    free(buffer->bytes);
    *buffer = (struct gsv_buffer){ .maximum = maximum };
}

char *gsv_buffer_reserve(struct gsv_buffer *buffer, size_t more)
{
    size_t needed;

    if (buffer->failed)
        return NULL;
    if (!gsv_add_size(buffer->size, more, &needed) ||
        !gsv_grow((void **)&buffer->bytes, &buffer->capacity, needed, 1,
                  buffer->maximum ? buffer->maximum : SIZE_MAX / 2)) {
        buffer->failed = true;
        return NULL;
    }
    return buffer->bytes + buffer->size;
}

void gsv_buffer_add(struct gsv_buffer *buffer, const void *bytes, size_t size)
{
    char *to = size > 0 ? gsv_buffer_reserve(buffer, size) : NULL;

    if (!to)
        return;
    memcpy(to, bytes, size);
    buffer->size += size;
}

void gsv_buffer_text(struct gsv_buffer *buffer, const char *text)
{
    gsv_buffer_add(buffer, text, strlen(text));
}

void gsv_buffer_format(struct gsv_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;
    char *to;
    int size;

    va_start(arguments, format);
    va_copy(again, arguments);
    size = vsnprintf(NULL, 0, format, arguments);
    to = size < 0 ? NULL : gsv_buffer_reserve(buffer, (size_t)size + 1);
    if (to) {
        vsnprintf(to, (size_t)size + 1, format, again);
        buffer->size += (size_t)size;
    }
    va_end(again);
    va_end(arguments);
}
