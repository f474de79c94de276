/*
 * request.h - request parsing before the handler: header checks, path, body, JSON, model.
 *
 * Framing is already checked (net/framing.c). Functions that return false have written an error
 * reply.
 */
#ifndef GSV_HTTP_REQUEST_H
#define GSV_HTTP_REQUEST_H

#include "lib/http/protocol/exchange.h"

/* Called when the header is complete: checks it and finds the route. False after gsv_refuse. */
bool gsv_request_begin(struct gsv_exchange *exchange);
bool gsv_request_has_body(const struct gsv_exchange *exchange);
/* Appends a chunk of the body. Data over the limit is dropped; gsv_request_end() reports it. */
void gsv_request_take(struct gsv_exchange *exchange, const char *bytes, size_t size);
/* The body is complete: decompresses it. */
void gsv_request_end(struct gsv_exchange *exchange);
/* Parses the body, or a part of it that must stay unchanged, into exchange->json, an object. False
 * after gsv_refuse. */
bool gsv_request_json(struct gsv_exchange *exchange);
enum { GSV_BODY_VALUES = 1 << 20, GSV_BODY_DEPTH = 32 }; /* limits of its JSON */
bool gsv_request_parse(struct gsv_exchange *exchange, const char *bytes, size_t size);

/* Holds the model `name`, or the default model if NULL, in exchange->served. False after
 * gsv_refuse. */
bool gsv_request_model(struct gsv_exchange *exchange, const char *name);
/* The same with the body's field `model`, which may be absent or null. */
bool gsv_request_body_model(struct gsv_exchange *exchange);

/* Read parameters of the query; an absent one leaves *value unchanged. The text lives as long as
 * the exchange. False after gsv_refuse. */
bool gsv_query_text(struct gsv_exchange *exchange, const char *name, const char **value);
bool gsv_query_count(struct gsv_exchange *exchange, const char *name, int64_t minimum,
                     int64_t maximum, int64_t *value);

/* A field of a JSON object; NULL: it is absent or null. */
const json_t *gsv_member_given(const json_t *object, const char *key);

/* Read fields of a JSON object. An absent or null field leaves *value unchanged. False after
 * gsv_refuse: wrong type or out of range. */
bool gsv_member_flag(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     bool *value);
bool gsv_member_count(struct gsv_exchange *exchange, const json_t *object, const char *key,
                      int64_t minimum, int64_t maximum, int64_t *value);
bool gsv_member_text(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     const char **value);
/* One of `names`, case-insensitive; *value is its index. */
bool gsv_member_choice(struct gsv_exchange *exchange, const json_t *object, const char *key,
                       const char *const *names, uint32_t *value);

/* request_trace.c: decides if the request is traced; its header is complete, and the server exports
 * traces. end: a traced request is over and not in the server's list any more; its trace is
 * exported. */
void gsv_request_trace_begin(struct gsv_exchange *exchange);
void gsv_request_trace_end(struct gsv_exchange *exchange);

/* Decompression of request bodies. */

/* Content-Encoding gzip or deflate: replaces the body by its decompressed form, at most
 * max_body_bytes (no decompression bombs). False after gsv_refuse. */
bool gsv_unpack(struct gsv_exchange *exchange);

/*
 * Runs a complete request up to its reply.
 *
 * A request advances in steps: the handler first, then `finish` after each job of the library. A
 * step runs on the event loop thread or, if it takes long, on a worker thread, never two at a time.
 * While no step runs, the connection is suspended.
 */

/* Runs steps until the reply is queued or the exchange must wait. Called on the event loop thread
 * by libmicrohttpd, when the request is complete or its connection was resumed. */
enum MHD_Result gsv_dispatch(struct gsv_exchange *exchange);
/* Queues the finished reply in libmicrohttpd. */
enum MHD_Result gsv_advance_send(struct gsv_exchange *exchange);

/* Runs steps on a worker thread until the reply is ready or the exchange must wait. */
void gsv_dispatch_offload(struct gsv_exchange *exchange);

#endif
