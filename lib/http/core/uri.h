/*
 * uri.h - percent-decoding of request paths.
 */
#ifndef GSV_HTTP_URI_H
#define GSV_HTTP_URI_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes %XX in place. False: a broken escape, NUL, a control character or invalid UTF-8. No valid
 * path contains these. */
bool gsv_uri_decode(char *text);

#endif
