/*
 * dispatch.h - from a whole request to its reply.
 *
 * A request advances in steps: its handler, then `finish` after each job of the library that it
 * asked for. Steps run on the guard's thread or, if they take long, on one of the crew; never two
 * at a time, and while none runs the connection is suspended.
 */
#ifndef GSV_HTTP_DISPATCH_H
#define GSV_HTTP_DISPATCH_H

#include "lib/http/protocol/exchange.h"

/* The whole request is there, or its connection was resumed: go on until the reply is on its way or
 * there is something to wait for. On the guard's thread, in a call of libmicrohttpd's. */
enum MHD_Result gsv_dispatch(struct gsv_exchange *exchange);
/* The reply that is there goes to libmicrohttpd. */
enum MHD_Result gsv_advance_send(struct gsv_exchange *exchange);

/* Step after step on a thread of the crew, until there is a reply or something to wait for. */
void gsv_dispatch_offload(struct gsv_exchange *exchange);

#endif
