/*
 * decompress.h - decompression of request bodies.
 */
#ifndef GSV_HTTP_DECOMPRESS_H
#define GSV_HTTP_DECOMPRESS_H

#include "lib/http/protocol/exchange.h"

/* Content-Encoding gzip or deflate: replaces the body by its decompressed form, at most
 * max_body_bytes (no decompression bombs). False after gsv_refuse. */
bool gsv_unpack(struct gsv_exchange *exchange);

#endif
