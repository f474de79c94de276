/*
 * error.c - filling the caller's gpuserve_error.
 *
 * The caller's struct may be of an older, shorter version: no byte past its struct_size is
 * written, and the texts keep their closing NUL.
 */
#include "lib/base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool has_room(const gpuserve_error *error)
{
    return error && error->struct_size >= sizeof(*error);
}

/* vsnprintf cuts at any byte; UTF-8 must not end inside a character. */
static void trim_partial_utf8(char *text)
{
    size_t length = strlen(text);
    size_t back = 0;

    if (length + 1 < GPUSERVE_ERROR_TEXT_BYTES)
        return;
    while (back < 4 && back < length && ((unsigned char)text[length - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back < length && (unsigned char)text[length - 1 - back] >= 0xC0)
        text[length - 1 - back] = '\0';
}

gpuserve_status gsv_fail(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    va_list args;

    if (!has_room(error))
        return status;
    error->status = (int32_t)status;
    error->retry_after_ms = 0;
    error->hint[0] = '\0';
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    trim_partial_utf8(error->message);
    return status;
}

gpuserve_status gsv_hint(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    va_list args;

    if (!has_room(error))
        return status;
    va_start(args, format);
    vsnprintf(error->hint, sizeof(error->hint), format, args);
    va_end(args);
    trim_partial_utf8(error->hint);
    return status;
}

gpuserve_status gsv_fail_in(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    char where[GPUSERVE_ERROR_TEXT_BYTES];
    char joined[2 * GPUSERVE_ERROR_TEXT_BYTES + 4];
    va_list args;

    if (!has_room(error))
        return status;
    va_start(args, format);
    vsnprintf(where, sizeof(where), format, args);
    va_end(args);
    snprintf(joined, sizeof(joined), "%s: %s", where, error->message);
    snprintf(error->message, sizeof(error->message), "%.*s", (int)sizeof(error->message) - 1,
             joined);
    trim_partial_utf8(error->message);
    return status;
}

gpuserve_status gsv_retry_after(gpuserve_error *error, gpuserve_status status, uint32_t ms)
{
    if (!has_room(error))
        return status;
    error->status = (int32_t)status;
    error->retry_after_ms = ms;
    return status;
}

void gsv_error_copy(gpuserve_error *to, const gpuserve_error *from)
{
    uint32_t size;

    if (!has_room(to) || !from)
        return;
    size = to->struct_size;
    *to = *from;
    to->struct_size = size;
}
