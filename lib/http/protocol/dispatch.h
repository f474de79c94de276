/*
 * dispatch.h - runs a complete request up to its reply.
 *
 * A request advances in steps: the handler first, then `finish` after each job of the library. A
 * step runs on the event loop thread or, if it takes long, on a worker thread, never two at a time.
 * While no step runs, the connection is suspended.
 */
#ifndef GSV_HTTP_DISPATCH_H
#define GSV_HTTP_DISPATCH_H

#include "lib/http/protocol/exchange.h"

/* Runs steps until the reply is queued or the exchange must wait. Called on the event loop thread
 * by libmicrohttpd, when the request is complete or its connection was resumed. */
enum MHD_Result gsv_dispatch(struct gsv_exchange *exchange);
/* Queues the finished reply in libmicrohttpd. */
enum MHD_Result gsv_advance_send(struct gsv_exchange *exchange);

/* Runs steps on a worker thread until the reply is ready or the exchange must wait. */
void gsv_dispatch_offload(struct gsv_exchange *exchange);

#endif
