/*
 * request_options.h - request members that several dialects share.
 */
#ifndef GSV_HTTP_REQUEST_OPTIONS_H
#define GSV_HTTP_REQUEST_OPTIONS_H

#include "lib/http/protocol/exchange.h"

/* `truncate` and `truncation_direction` as the job's truncation; the server's way by default. */
bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* The same where texts are cut unless the request says otherwise. */
bool gsv_option_truncation_or(struct gsv_exchange *exchange, const json_t *object, bool truncate,
                              gpuserve_job *job);
/* `truncate` as "NONE", "START" or "END"; an absent one leaves job->truncation as it is. */
bool gsv_option_truncated_end(struct gsv_exchange *exchange, const json_t *object,
                              gpuserve_job *job);
/* `prompt_name`, one of the model's. */
bool gsv_option_prompt(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* `normalize` and `dimensions` of an embedding. */
bool gsv_option_vector(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);

/* Members that would change the result and are not offered: {0} ends the list. An absent, null or
 * false one, and an empty list, changes nothing. */
struct gsv_unoffered {
    const char *name, *why;
};
bool gsv_option_unoffered(struct gsv_exchange *exchange, const json_t *object,
                          const struct gsv_unoffered *list);
/* Refuse an object with other members than these, ended by NULL; null members may be any. `name` is
 * the object's field; an absent or null object is accepted. */
bool gsv_option_known(struct gsv_exchange *exchange, const json_t *object, const char *name,
                      const char *const *known);

/* What to do with texts over the limit when the client does not say. */
uint32_t gsv_server_truncation(const struct gsv_exchange *exchange);

/* The model held can do it; else false after gsv_refuse. */
bool gsv_require_embedder(struct gsv_exchange *exchange);
bool gsv_require_classifier(struct gsv_exchange *exchange);

#endif
