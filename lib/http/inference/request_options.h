/*
 * request_options.h - JSON fields that several dialects share.
 */
#ifndef GSV_HTTP_REQUEST_OPTIONS_H
#define GSV_HTTP_REQUEST_OPTIONS_H

#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

/* Reads `truncate` and `truncation_direction` into job->truncation; the server has the default. */
bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* The same with a default given by the caller. */
bool gsv_option_truncation_or(struct gsv_exchange *exchange, const json_t *object, bool truncate,
                              gpuserve_job *job);
/* Reads `truncate` as "NONE", "START" or "END"; if absent, job->truncation stays unchanged. */
bool gsv_option_truncated_end(struct gsv_exchange *exchange, const json_t *object,
                              gpuserve_job *job);
/* Reads `prompt_name`, one of the model's prompts. */
bool gsv_option_prompt(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);
/* Reads `normalize` and `dimensions` of an embedding. */
bool gsv_option_vector(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job);

/* Rejects unsupported fields that would change the result; {0} ends the list. A field that is
 * absent, null, false or an empty list has no effect and is accepted. */
struct gsv_unoffered {
    const char *name, *why;
};
bool gsv_option_unoffered(struct gsv_exchange *exchange, const json_t *object,
                          const struct gsv_unoffered *list);
/* Rejects an object with fields other than these (NULL-terminated), unless their value is null.
 * `name` is the object's field. An absent or null object is accepted. */
bool gsv_option_known(struct gsv_exchange *exchange, const json_t *object, const char *name,
                      const char *const *known);

/* Truncation of texts over the limit when the client does not choose one. */
uint32_t gsv_server_truncation(const struct gsv_exchange *exchange);

/* Checks that the held model supports the task. False after gsv_refuse. */
bool gsv_require_embedder(struct gsv_exchange *exchange);
bool gsv_require_classifier(struct gsv_exchange *exchange);

/* Truncation at a number of tokens that the request gives; the job applies the model's own limit.
 */
struct gsv_cut {
    const char *name; /* of the field, for messages */
    size_t limit;     /* tokens; 0: no limit */
};

/* Truncates embedding inputs: prompts are prepended and texts become token ids, at most `limit`
 * with special tokens, as job->truncation says; STRICT rejects longer texts. Lists of token ids
 * over the limit are rejected. False after gsv_refuse. */
bool gsv_inputs_cut(struct gsv_exchange *exchange, struct gsv_inputs *inputs, gpuserve_job *job,
                    const struct gsv_cut *cut);

/* Truncates the documents of pairs, which stay texts: keeps the beginning, `limit` tokens without
 * special tokens. Replaces the arrays of texts; a copy of *inputs made before keeps the full texts.
 * False after gsv_refuse. */
bool gsv_inputs_cut_texts(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                          const struct gsv_cut *cut);

#endif
