/*
 * compress.h - gzip of replies, where the client accepts it and it is worth its cost.
 */
#ifndef GSV_HTTP_COMPRESS_H
#define GSV_HTTP_COMPRESS_H

#include "lib/http/protocol/exchange.h"

/* The quality of `coding` in an Accept-Encoding field, in thousandths; 0: not accepted. NULL
 * accepts none. */
unsigned gsv_accepted(const char *field, const char *coding);

/* Replaces the complete reply by its gzip form and adds the headers, once. A reply of more than
 * `max_bytes` stays as it is. */
void gsv_compress_reply(struct gsv_exchange *exchange, size_t max_bytes);

#endif
