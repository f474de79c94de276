/*
 * model_info.c - creates, compares and lists the immutable facts behind a handle's accessors.
 *
 * The list only grows while the handle lives, because callers borrow its strings. Equal infos are
 * shared. Additions happen under the handle's `changing`; readers use the handle's atomic pointer.
 */
#include "lib/runtime/models/handle.h"

#include "lib/base/error.h"

#include <string.h>

gpuserve_rerank_method gsv_rerank_method(const struct gsv_spec_facts *facts)
{
    if (facts->own_classifier && facts->n_labels == 1 && !facts->labels_tokens)
        return GPUSERVE_RERANK_CROSS_ENCODER;
    if (facts->dim > 0)
        return GPUSERVE_RERANK_COSINE;
    return facts->is_late ? GPUSERVE_RERANK_MAX_SIM : GPUSERVE_RERANK_DEFAULT;
}

const char *gsv_rerank_method_name(gpuserve_rerank_method method)
{
    static const char *const names[] = { [GPUSERVE_RERANK_CROSS_ENCODER] = "cross_encoder",
                                         [GPUSERVE_RERANK_COSINE] = "cosine",
                                         [GPUSERVE_RERANK_MAX_SIM] = "max_sim" };

    return names[method];
}

/* In any case of ASCII; strncasecmp() would follow the locale. */
static bool begins_with_entail(const char *label)
{
    for (const char *c = "entail"; *c; c++, label++)
        if ((*label | 0x20) != *c)
            return false;
    return true;
}

size_t gsv_entailment_label(const struct gsv_spec_facts *facts)
{
    if (!facts->own_classifier || facts->labels_tokens || facts->n_labels < 2)
        return SIZE_MAX;
    for (size_t i = 0; i < facts->n_labels; i++) {
        if (begins_with_entail(facts->labels[i]))
            return i;
    }
    return SIZE_MAX;
}

static void free_labels(const char *const *labels, size_t n)
{
    for (size_t i = 0; labels && i < n; i++)
        free((void *)(uintptr_t)labels[i]);
    free((void *)(uintptr_t)labels);
}

static void free_info(struct gsv_model_info *info)
{
    for (size_t i = 0; info->heads && i < info->n_heads; i++) {
        free_labels(info->heads[i].labels, info->heads[i].n_labels);
        free((void *)(uintptr_t)info->heads[i].name);
    }
    free(info->heads);
    free_labels(info->labels, info->n_labels);
    free(info);
}

static size_t sparse_dim(const struct gsv_spec_facts *facts)
{
    return facts->is_sparse ? (size_t)facts->vocab_size : 0;
}

/* Copies of labels, for free_labels(); NULL: out of memory. */
static const char *const *copy_labels(const char *const *labels, size_t n)
{
    const char **copies = gsv_alloc_array(n, sizeof(*copies));

    for (size_t i = 0; copies && i < n; i++) {
        copies[i] = gsv_copy_text(labels[i], strlen(labels[i]));
        if (!copies[i]) {
            free_labels(copies, n);
            return NULL;
        }
    }
    return copies;
}

static bool copy_heads(struct gsv_model_info *info, const struct gsv_spec_facts *facts)
{
    info->n_heads = facts->n_label_heads;
    info->heads = gsv_alloc_array(info->n_heads, sizeof(*info->heads));
    if (!info->heads)
        return false;
    for (size_t i = 0; i < info->n_heads; i++) {
        const struct gsv_label_head *from = &facts->label_heads[i];
        struct gsv_label_head *to = &info->heads[i];

        *to = (struct gsv_label_head){ .score = from->score, .n_labels = from->n_labels };
        to->name = gsv_copy_text(from->name, strlen(from->name));
        to->labels = copy_labels(from->labels, from->n_labels);
        if (!to->name || !to->labels)
            return false;
    }
    return true;
}

gpuserve_status gsv_model_info_create(struct gsv_model_info **out, const struct gsv_model *model,
                                      gpuserve_error *error)
{
    struct gsv_model_info *info = gsv_alloc_array(1, sizeof(*info));

    *out = info;
    if (!info)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    info->dim = (size_t)model->plan.facts->dim;
    info->sparse_dim = sparse_dim(model->plan.facts);
    info->max_tokens = (size_t)model->plan.max_tokens;
    info->rerank = gsv_rerank_method(model->plan.facts);
    info->entailment = gsv_entailment_label(model->plan.facts);
    memcpy(info->fingerprint, model->fingerprint, sizeof(info->fingerprint));
    info->n_labels = model->plan.facts->n_labels;
    info->labels = copy_labels(model->plan.facts->labels, info->n_labels);
    if (info->labels && copy_heads(info, model->plan.facts))
        return GPUSERVE_OK;
    free_info(info);
    *out = NULL;
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu labels",
                    model->plan.facts->n_labels);
}

void gsv_model_infos_free(struct gsv_model_info *list)
{
    while (list) {
        struct gsv_model_info *info = list;

        list = info->next;
        free_info(info);
    }
}

static bool same_labels(const char *const *a, size_t n_a, const char *const *b, size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        if (strcmp(a[i], b[i]) != 0)
            return false;
    }
    return true;
}

/* Equal names and labels; scores are part of the fingerprint. */
static bool same_heads(const struct gsv_label_head *a, size_t n_a, const struct gsv_label_head *b,
                       size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        if (strcmp(a[i].name, b[i].name) != 0 ||
            !same_labels(a[i].labels, a[i].n_labels, b[i].labels, b[i].n_labels))
            return false;
    }
    return true;
}

struct gsv_model_info *gsv_model_infos_add(struct gsv_model_info **list,
                                           struct gsv_model_info *info)
{
    for (struct gsv_model_info *old = *list; old; old = old->next) {
        if (old->dim != info->dim || old->max_tokens != info->max_tokens ||
            old->rerank != info->rerank || old->entailment != info->entailment ||
            old->sparse_dim != info->sparse_dim ||
            strcmp(old->fingerprint, info->fingerprint) != 0 ||
            !same_labels(old->labels, old->n_labels, info->labels, info->n_labels) ||
            !same_heads(old->heads, old->n_heads, info->heads, info->n_heads))
            continue;
        free_info(info);
        return old;
    }
    info->next = *list;
    *list = info;
    return info;
}

uint32_t gsv_model_info_changes(const struct gsv_model_info *info, const struct gsv_model *model)
{
    const struct gsv_spec_facts *facts = model->plan.facts;
    const bool has_several = info->n_heads > 1 || facts->n_label_heads > 1;
    uint32_t changes = 0;

    if (info->dim != (size_t)facts->dim || info->sparse_dim != sparse_dim(facts))
        changes |= GPUSERVE_CHANGE_DIM;
    if (info->max_tokens != (size_t)model->plan.max_tokens)
        changes |= GPUSERVE_CHANGE_MAX_TOKENS;
    if (!same_labels(info->labels, info->n_labels, facts->labels, facts->n_labels) ||
        (has_several &&
         !same_heads(info->heads, info->n_heads, facts->label_heads, facts->n_label_heads)))
        changes |= GPUSERVE_CHANGE_LABELS;
    if (model->fingerprint[0] && strcmp(info->fingerprint, model->fingerprint) != 0)
        changes |= GPUSERVE_CHANGE_FINGERPRINT;
    return changes;
}
