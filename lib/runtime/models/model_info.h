/*
 * model_info.h - what a handle's accessors lend: lengths, labels, fingerprint.
 *
 * Callers keep the strings for as long as the handle lives, also when a swap has put another model
 * behind it. So a face is never changed or freed before the handle is; swapping back and forth
 * between the same models finds the face of before and makes no new one.
 */
#ifndef GSV_RUNTIME_MODEL_INFO_H
#define GSV_RUNTIME_MODEL_INFO_H

#include "lib/runtime/model.h"

struct gsv_model_info {
    struct gsv_model_info *next; /* older */
    size_t dim;
    size_t sparse_dim;
    size_t max_tokens;
    char **labels; /* [n_labels] */
    size_t n_labels;
    gpuserve_rerank_method rerank;
    char fingerprint[33];
};

gpuserve_status gsv_model_info_create(struct gsv_model_info **info, const struct gsv_model *model,
                                      gpuserve_error *error);
void gsv_model_infos_free(struct gsv_model_info *list);

/* Put `face` at the head of the list, or free it when the list has its equal; that one or the
 * other is returned. */
struct gsv_model_info *gsv_model_infos_add(struct gsv_model_info **list,
                                           struct gsv_model_info *info);

/* How the second differs from the first: bits of gpuserve_change. The model's fingerprint is
 * known only once it is loaded: without it that bit is never set. */
uint32_t gsv_model_info_changes(const struct gsv_model_info *info, const struct gsv_model *model);

/* How a model scores documents against a query; DEFAULT when it can do neither. */
gpuserve_rerank_method gsv_rerank_method(const struct gsv_spec_facts *facts);
/* "cross_encoder", "cosine"; NULL for DEFAULT. */
const char *gsv_rerank_method_name(gpuserve_rerank_method method);

#endif
