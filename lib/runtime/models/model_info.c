/*
 * model_info.c - what a handle's accessors lend.
 */
#include "lib/runtime/models/model_info.h"

#include "lib/base/error.h"
#include "lib/runtime/api/rerank.h"

#include <string.h>

static void face_free(struct gsv_face *face)
{
    for (size_t i = 0; face->labels && i < face->n_labels; i++)
        free(face->labels[i]);
    free(face->labels);
    free(face);
}

static size_t sparse_dim(const struct gsv_spec_facts *facts)
{
    return facts->is_sparse ? (size_t)facts->vocab_size : 0;
}

static bool copy_labels(struct gsv_face *face, const struct gsv_spec_facts *facts)
{
    face->n_labels = facts->n_labels;
    face->labels = gsv_alloc_array(facts->n_labels, sizeof(*face->labels));
    if (!face->labels)
        return false;
    for (size_t i = 0; i < facts->n_labels; i++) {
        face->labels[i] = gsv_copy_text(facts->labels[i], strlen(facts->labels[i]));
        if (!face->labels[i])
            return false;
    }
    return true;
}

gpuserve_status gsv_face_create(struct gsv_face **out, const struct gsv_model *model,
                                gpuserve_error *error)
{
    struct gsv_face *face = gsv_alloc_array(1, sizeof(*face));

    *out = face;
    if (!face)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    face->dim = (size_t)model->plan.facts->dim;
    face->sparse_dim = sparse_dim(model->plan.facts);
    face->max_tokens = (size_t)model->plan.max_tokens;
    face->rerank = gsv_rerank_method(model->plan.facts);
    memcpy(face->fingerprint, model->fingerprint, sizeof(face->fingerprint));
    if (copy_labels(face, model->plan.facts))
        return GPUSERVE_OK;
    face_free(face);
    *out = NULL;
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu labels",
                    model->plan.facts->n_labels);
}

void gsv_faces_free(struct gsv_face *list)
{
    while (list) {
        struct gsv_face *face = list;

        list = face->next;
        face_free(face);
    }
}

static bool same_labels(char *const *a, size_t n_a, const char *const *b, size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        if (strcmp(a[i], b[i]) != 0)
            return false;
    }
    return true;
}

struct gsv_face *gsv_faces_add(struct gsv_face **list, struct gsv_face *face)
{
    for (struct gsv_face *old = *list; old; old = old->next) {
        if (old->dim != face->dim || old->max_tokens != face->max_tokens ||
            old->rerank != face->rerank || old->sparse_dim != face->sparse_dim ||
            strcmp(old->fingerprint, face->fingerprint) != 0 ||
            !same_labels(old->labels, old->n_labels, (const char *const *)face->labels,
                         face->n_labels))
            continue;
        face_free(face);
        return old;
    }
    face->next = *list;
    *list = face;
    return face;
}

uint32_t gsv_face_changes(const struct gsv_face *face, const struct gsv_model *model)
{
    const struct gsv_spec_facts *facts = model->plan.facts;
    uint32_t changes = 0;

    if (face->dim != (size_t)facts->dim || face->sparse_dim != sparse_dim(facts))
        changes |= GPUSERVE_CHANGE_DIM;
    if (face->max_tokens != (size_t)model->plan.max_tokens)
        changes |= GPUSERVE_CHANGE_MAX_TOKENS;
    if (!same_labels(face->labels, face->n_labels, facts->labels, facts->n_labels))
        changes |= GPUSERVE_CHANGE_LABELS;
    if (model->fingerprint[0] && strcmp(face->fingerprint, model->fingerprint) != 0)
        changes |= GPUSERVE_CHANGE_FINGERPRINT;
    return changes;
}
