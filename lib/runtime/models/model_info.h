/*
 * model_info.h - immutable facts that the handle's accessors return: lengths, labels, fingerprint.
 *
 * Callers may keep the strings for the lifetime of the handle, also after a swap. So a model info
 * is never changed or freed before its handle. Swapping back and forth between the same models
 * reuses the existing info.
 */
#ifndef GSV_RUNTIME_MODEL_INFO_H
#define GSV_RUNTIME_MODEL_INFO_H

#include "lib/runtime/model.h"

struct gsv_model_info {
    struct gsv_model_info *next; /* older infos */
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

/* Prepends `info` to the list, or frees it if the list has an equal one. Returns the one in the
 * list. */
struct gsv_model_info *gsv_model_infos_add(struct gsv_model_info **list,
                                           struct gsv_model_info *info);

/* Differences of the model from the info, as bits of gpuserve_change. The fingerprint is known only
 * after loading; before that its bit is never set. */
uint32_t gsv_model_info_changes(const struct gsv_model_info *info, const struct gsv_model *model);

/* How a model scores documents against a query; DEFAULT if it cannot. */
gpuserve_rerank_method gsv_rerank_method(const struct gsv_spec_facts *facts);
/* "cross_encoder", "cosine"; NULL for DEFAULT. */
const char *gsv_rerank_method_name(gpuserve_rerank_method method);

#endif
