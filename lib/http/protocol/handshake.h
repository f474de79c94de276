/*
 * handshake.h - what a connection asks of the call of its exchange, which a layer above implements
 * (inference_call.c, model_registry.c).
 */
#ifndef GSV_HTTP_HANDSHAKE_H
#define GSV_HTTP_HANDSHAKE_H

#include "lib/http/protocol/exchange.h"

/* For dispatch.c: suspend the connection unless the work is done already (false); leave one that is
 * suspended to whoever completes the work, unless that has happened (false); take up the result. */
bool gsv_call_suspend(struct gsv_exchange *exchange);
bool gsv_call_leave(struct gsv_exchange *exchange);
void gsv_call_finish(struct gsv_exchange *exchange);
/* For mhd_bridge.c: the job that was not submitted. */
void gsv_call_compute(struct gsv_exchange *exchange);
/* The connection ended before what was done for it could be taken up: it counts no more. */
void gsv_call_abandon(struct gsv_exchange *exchange);

/* One suspended connection more, and one less: the server ends when there is none. False: it is
 * stopping, and no more may be. */
bool gsv_call_count_in(struct gsv_exchange *exchange);
void gsv_call_count_out(struct gsv_exchange *exchange);

/* End the use of the model that an exchange was answered by; accepts NULL. */
void gsv_served_release(struct gsv_served *served);

#endif
