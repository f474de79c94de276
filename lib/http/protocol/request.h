/*
 * request.h - from bytes to a request that a handler can trust: framing, path, body, JSON.
 */
#ifndef GSV_HTTP_REQUEST_H
#define GSV_HTTP_REQUEST_H

#include "lib/http/protocol/exchange.h"

/* The header is there: check it and find the route. False after gsv_refuse. */
bool gsv_request_begin(struct gsv_exchange *exchange);
bool gsv_request_has_body(const struct gsv_exchange *exchange);
/* A part of the body. What is over the limit is dropped and told at the end. */
void gsv_request_take(struct gsv_exchange *exchange, const char *bytes, size_t size);
/* The body is whole: unpack it. */
void gsv_request_end(struct gsv_exchange *exchange);
/* Parse it, or a part of it that stays as it is, into exchange->json, an object. False after
 * gsv_refuse. */
bool gsv_request_json(struct gsv_exchange *exchange);
bool gsv_request_parse(struct gsv_exchange *exchange, const char *bytes, size_t size);

/* The model asked for, by name or the default, held in exchange->served. `name` may be NULL. False
 * after gsv_refuse. */
bool gsv_request_model(struct gsv_exchange *exchange, const char *name);
/* The same by the body's member `model`, which may be absent or null. */
bool gsv_request_body_model(struct gsv_exchange *exchange);

/* Members of a JSON object; an absent or null one leaves *value as it is. False after gsv_refuse:
 * another type, or out of range. */
bool gsv_member_flag(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     bool *value);
bool gsv_member_count(struct gsv_exchange *exchange, const json_t *object, const char *key,
                      int64_t minimum, int64_t maximum, int64_t *value);
bool gsv_member_text(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     const char **value);
/* One of the names, compared without case; *value is its place. */
bool gsv_member_choice(struct gsv_exchange *exchange, const json_t *object, const char *key,
                       const char *const *names, uint32_t *value);

#endif
