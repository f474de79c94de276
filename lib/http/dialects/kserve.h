/*
 * kserve.h - functions that the files of the Open Inference Protocol (KServe v2, Triton) share.
 *
 *   kserve.c         paths: health, metadata, model repository
 *   kserve_stats.c   statistics of one model, or of all
 *   kserve_infer.c   one inference: selects the job and writes the reply
 *   kserve_tensor.c  input tensors, as JSON or binary, validated
 */
#ifndef GSV_HTTP_KSERVE_H
#define GSV_HTTP_KSERVE_H

#include "lib/http/inference/inputs.h"

/* POST /v2/models/{model}[/versions/{version}]/infer */
void gsv_kserve_infer(struct gsv_exchange *exchange);

/* GET /v2/models/{model}[/versions/{version}]/stats, GET /v2/models/stats */
void gsv_kserve_model_stats(struct gsv_exchange *exchange);
void gsv_kserve_stats(struct gsv_exchange *exchange);

/* Appends Triton's metrics of the loaded models, nv_inference_*, to the reply in the Prometheus
 * text format. Without memory nothing is appended and the request is refused. */
void gsv_kserve_metrics(struct gsv_exchange *exchange);

/* Holds the model of the path; only version 1 exists. False after gsv_refuse. */
bool gsv_kserve_model(struct gsv_exchange *exchange);

/* Reads the texts or ids of `inputs`. Binary tensors follow the JSON at `binary`. */
bool gsv_kserve_inputs(struct gsv_exchange *exchange, const json_t *list, const char *binary,
                       size_t binary_size, struct gsv_inputs *inputs);

/* Reads a raw binary request: the body is the one element of TEXT. False after gsv_refuse. */
bool gsv_kserve_raw_input(struct gsv_exchange *exchange, const char *bytes, size_t size,
                          struct gsv_inputs *inputs);

/* Rejects `shared_memory_region` in an input's or output's parameters. False after gsv_refuse. */
bool gsv_kserve_check_shared(struct gsv_exchange *exchange, const json_t *parameters,
                             const char *what, const char *name);
/* Rejects binary tensors without the header that gives their offset. Returns false. */
bool gsv_kserve_refuse_binary(struct gsv_exchange *exchange);

#endif
