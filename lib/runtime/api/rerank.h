/*
 * rerank.h - which way a model scores documents against a query.
 */
#ifndef GSV_RUNTIME_RERANK_H
#define GSV_RUNTIME_RERANK_H

#include "lib/runtime/memory/load_plan.h"

/* DEFAULT when the model can do neither. */
gpuserve_rerank_method gsv_rerank_method(const struct gsv_spec_facts *facts);

/* "cross_encoder", "cosine"; NULL for DEFAULT. */
const char *gsv_rerank_method_name(gpuserve_rerank_method method);

#endif
