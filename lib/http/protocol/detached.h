/*
 * detached.h - a request without a connection: a line of a batch.
 *
 * One thread owns the request and runs its steps. No thread waits while the library computes. The
 * library then calls `resume` once, from any thread, and the owner calls gsv_detached_continue().
 */
#ifndef GSV_HTTP_DETACHED_H
#define GSV_HTTP_DETACHED_H

#include "lib/http/protocol/exchange.h"

struct gsv_detached_options {
    const char *path;     /* "/v1/embeddings" */
    const char *id;       /* of the request; borrowed as long as the exchange lives */
    const char *key_name; /* of the API key, for fair queueing */
    uint32_t priority;    /* gpuserve_priority */
    gsv_handler resume;
    void *user; /* exchange->resume_user */
};

/* Runs a request with this JSON text, of which the field `body` is the request's body. *exchange is
 * owned: gsv_detached_end(); NULL if out of memory. Returns true if `resume` will be called, false
 * if the reply is complete. */
bool gsv_detached_begin(struct gsv_exchange **exchange, struct gpuserve_http *server,
                        const struct gsv_detached_options *options, const char *text, size_t size);
bool gsv_detached_continue(struct gsv_exchange *exchange);
/* Cancels the computation. `resume` is still called. */
void gsv_detached_cancel(struct gsv_exchange *exchange);
void gsv_detached_end(struct gsv_exchange **exchange);

#endif
