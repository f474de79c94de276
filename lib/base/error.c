/*
 * error.c - fills the caller's gpuserve_error.
 *
 * A struct whose struct_size is smaller than this version's is not written. No byte past
 * struct_size is ever written. Messages and hints are always NUL-terminated, valid UTF-8.
 */
#include "lib/base/error.h"

#include "lib/base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_valid(const gpuserve_error *error)
{
    return error && error->struct_size >= sizeof(*error);
}

/* Repairs a formatted text in place. A quoted path or file content may contain any bytes, and
 * vsnprintf may cut inside a character. A cut last character is dropped; every other byte that is
 * not valid UTF-8 becomes '?'. */
static void mend_utf8(char *text)
{
    const size_t length = strlen(text);
    const bool is_full = length + 1 == GPUSERVE_ERROR_TEXT_BYTES;

    for (size_t at = 0;; at++) {
        at += gsv_utf8_valid_length(text + at, length - at);
        if (at == length)
            return;
        if (is_full && length - at < 4 && (unsigned char)text[at] >= 0xC0) {
            text[at] = '\0';
            return;
        }
        text[at] = '?';
    }
}

gpuserve_status gsv_fail(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    va_list args;

    if (!is_valid(error))
        return status;
    error->status = (int32_t)status;
    error->retry_after_ms = 0;
    error->hint[0] = '\0';
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    mend_utf8(error->message);
    return status;
}

gpuserve_status gsv_hint(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    va_list args;

    if (!is_valid(error))
        return status;
    va_start(args, format);
    vsnprintf(error->hint, sizeof(error->hint), format, args);
    va_end(args);
    mend_utf8(error->hint);
    return status;
}

gpuserve_status gsv_fail_in(gpuserve_error *error, gpuserve_status status, const char *format, ...)
{
    char where[GPUSERVE_ERROR_TEXT_BYTES];
    char joined[2 * GPUSERVE_ERROR_TEXT_BYTES + 4];
    va_list args;

    if (!is_valid(error))
        return status;
    va_start(args, format);
    vsnprintf(where, sizeof(where), format, args);
    va_end(args);
    snprintf(joined, sizeof(joined), "%s: %s", where, error->message);
    snprintf(error->message, sizeof(error->message), "%.*s", (int)sizeof(error->message) - 1,
             joined);
    mend_utf8(error->message);
    return status;
}

gpuserve_status gsv_retry_after(gpuserve_error *error, gpuserve_status status, uint32_t ms)
{
    if (!is_valid(error))
        return status;
    error->status = (int32_t)status;
    error->retry_after_ms = ms;
    return status;
}

void gsv_error_copy(gpuserve_error *to, const gpuserve_error *from)
{
    uint32_t size;

    if (!is_valid(to) || !from)
        return;
    size = to->struct_size;
    *to = *from;
    to->struct_size = size;
}
