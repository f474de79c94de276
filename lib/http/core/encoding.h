/*
 * encoding.h - percent-encoding of URIs and base64.
 */
#ifndef GSV_HTTP_ENCODING_H
#define GSV_HTTP_ENCODING_H

#include <stdbool.h>
#include <stddef.h>

/* Percent-decoding of request paths. */

/* Decodes %XX in place. False: a broken escape, NUL, a control character or invalid UTF-8. No valid
 * path contains these. */
bool gsv_uri_decode(char *text);

/* Bytes as base64 (RFC 4648, with padding). */

static inline size_t gsv_base64_size(size_t size)
{
    return (size + 2) / 3 * 4;
}

/* Writes gsv_base64_size(size) bytes without a terminating NUL. */
void gsv_base64_encode(char *to, const void *bytes, size_t size);

#endif
