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

struct gsv_face {
    struct gsv_face *next; /* older */
    size_t dim;
    size_t sparse_dim;
    size_t max_tokens;
    char **labels; /* [n_labels] */
    size_t n_labels;
    gpuserve_rerank_method rerank;
    char fingerprint[33];
};

gpuserve_status gsv_face_create(struct gsv_face **face, const struct gsv_model *model,
                                gpuserve_error *error);
void gsv_faces_free(struct gsv_face *list);

/* Put `face` at the head of the list, or free it when the list has its equal; that one or the
 * other is returned. */
struct gsv_face *gsv_faces_add(struct gsv_face **list, struct gsv_face *face);

/* How the second differs from the first: bits of gpuserve_change. The model's fingerprint is
 * known only once it is loaded: without it that bit is never set. */
uint32_t gsv_face_changes(const struct gsv_face *face, const struct gsv_model *model);

#endif
