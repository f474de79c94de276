/*
 * handshake.h - operations on the pending call of an exchange, for the protocol layer.
 *
 * Declared here and implemented one layer above (inference_call.c, model_registry.c), so that
 * includes never go up.
 */
#ifndef GSV_HTTP_HANDSHAKE_H
#define GSV_HTTP_HANDSHAKE_H

#include "lib/http/protocol/exchange.h"

/* For dispatch.c. suspend: suspends the connection; false if the work is already done. leave:
 * leaves a suspended connection to the thread that completes the work; false if it is done. finish:
 * takes the result. */
bool gsv_call_suspend(struct gsv_exchange *exchange);
bool gsv_call_leave(struct gsv_exchange *exchange);
void gsv_call_finish(struct gsv_exchange *exchange);
/* For mhd_bridge.c: computes the job inline. */
void gsv_call_compute(struct gsv_exchange *exchange);
/* The connection ended before its result was taken: removes it from n_working. */
void gsv_call_abandon(struct gsv_exchange *exchange);

/* Adds or removes one suspended connection (n_working). The server stops only at 0. False: it is
 * stopping and accepts no more. */
bool gsv_call_count_in(struct gsv_exchange *exchange);
void gsv_call_count_out(struct gsv_exchange *exchange);

/* Releases the exchange's reference to its model; accepts NULL. */
void gsv_served_release(struct gsv_served *served);

#endif
