/*
 * options.h - request members that several dialects share.
 */
#ifndef GSV_HTTP_OPTIONS_H
#define GSV_HTTP_OPTIONS_H

#include "lib/http/exchange.h"

/* `truncate` and `truncation_direction` as the job's truncation; the server's way by default. */
bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* `prompt_name`, one of the model's. */
bool gsv_option_prompt(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* `normalize` and `dimensions` of an embedding. */
bool gsv_option_vector(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);

/* What to do with texts over the limit when the client does not say. */
uint32_t gsv_server_truncation(const struct gsv_exchange *exchange);

/* The model held can do it; else false after gsv_refuse. */
bool gsv_require_embedder(struct gsv_exchange *exchange);
bool gsv_require_classifier(struct gsv_exchange *exchange);

#endif
