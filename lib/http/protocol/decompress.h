/*
 * decompress.h - bodies that come compressed.
 */
#ifndef GSV_HTTP_DECOMPRESS_H
#define GSV_HTTP_DECOMPRESS_H

#include "lib/http/protocol/exchange.h"

/* Content-Encoding gzip or deflate: the body takes its place, unpacked, up to the body's limit. A
 * small body cannot become a large one past it. False after gsv_refuse. */
bool gsv_unpack(struct gsv_exchange *exchange);

#endif
