/*
 * uri.h - the target of a request: path and query, decoded.
 */
#ifndef GSV_HTTP_URI_H
#define GSV_HTTP_URI_H

#include <stdbool.h>
#include <stddef.h>

/* Decode %XX in place. False for a broken escape, a NUL, a control character, or bytes that are no
 * UTF-8: nothing that a path of ours holds. */
bool gsv_uri_decode(char *text);

#endif
