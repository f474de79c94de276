/*
 * base64.h - bytes as base64 (RFC 4648, with padding).
 */
#ifndef GSV_HTTP_BASE64_H
#define GSV_HTTP_BASE64_H

#include <stddef.h>

static inline size_t gsv_base64_size(size_t size)
{
    return (size + 2) / 3 * 4;
}

/* Writes gsv_base64_size(size) bytes without a terminating NUL. */
void gsv_base64_encode(char *to, const void *bytes, size_t size);

#endif
