/*
 * kserve.h - what the files of the Open Inference Protocol (KServe v2, Triton) share.
 *
 *   kserve.c     paths: health, metadata, repository
 *   kserve_stats.c       statistics of a model, or of all
 *   kserve_infer.c       one inference: which job, and its answer
 *   kserve_tensor.c      tensors in, as JSON or binary, checked
 */
#ifndef GSV_HTTP_KSERVE_H
#define GSV_HTTP_KSERVE_H

#include "lib/http/inference/inputs.h"

/* POST /v2/models/{model}[/versions/{version}]/infer */
void gsv_kserve_infer(struct gsv_exchange *exchange);

/* GET /v2/models/{model}[/versions/{version}]/stats, GET /v2/models/stats */
void gsv_kserve_model_stats(struct gsv_exchange *exchange);
void gsv_kserve_stats(struct gsv_exchange *exchange);

/* The model of the path, held; only version 1 exists. False after gsv_refuse. */
bool gsv_kserve_model(struct gsv_exchange *exchange);

/* The texts or ids of a request's `inputs`, of which binary tensors follow the JSON at `binary`. */
bool gsv_kserve_inputs(struct gsv_exchange *exchange, const json_t *list, const char *binary,
                       size_t binary_size, struct gsv_inputs *inputs);

/* Refuses `shared_memory_region` among the parameters of what is so named. */
bool gsv_kserve_check_shared(struct gsv_exchange *exchange, const json_t *parameters,
                             const char *what, const char *name);
/* Refuses binary tensors without the header that says where they begin. */
bool gsv_kserve_refuse_binary(struct gsv_exchange *exchange);

#endif
