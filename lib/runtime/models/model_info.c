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

int32_t gsv_entailment_label(const struct gsv_spec_facts *facts)
{
    if (!facts->own_classifier || facts->labels_tokens || facts->n_labels < 2)
        return -1;
    for (size_t i = 0; i < facts->n_labels; i++) {
        if (begins_with_entail(facts->labels[i]))
            return (int32_t)i;
    }
    return -1;
}

static void free_labels(const char *const *labels, size_t n)
{
    for (size_t i = 0; labels && i < n; i++)
        free((void *)(uintptr_t)labels[i]);
    free((void *)(uintptr_t)labels);
}

static void free_info(struct gsv_model_info *info)
{
    for (size_t i = 0; info->heads && i < info->properties.n_heads; i++) {
        free_labels(info->heads[i].labels, info->heads[i].n_labels);
        free((void *)(uintptr_t)info->heads[i].name);
    }
    free(info->heads);
    free_labels(info->labels, info->properties.n_labels);
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
    info->heads = gsv_alloc_array(facts->n_label_heads, sizeof(*info->heads));
    if (!info->heads)
        return false;
    for (size_t i = 0; i < facts->n_label_heads; i++) {
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

static uint32_t tasks_of(const struct gsv_spec_facts *facts)
{
    const bool has[] = {
        [GPUSERVE_TASK_EMBED] = facts->dim > 0,
        [GPUSERVE_TASK_CLASSIFY] = gsv_classifies(facts),
        [GPUSERVE_TASK_TOKEN_VECTORS] = true,
        [GPUSERVE_TASK_SPARSE] = facts->is_sparse,
        [GPUSERVE_TASK_TOKEN_LABELS] = facts->labels_tokens,
        [GPUSERVE_TASK_MAX_SIM] = facts->is_late,
    };
    uint32_t tasks = 0;

    for (uint32_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
        tasks |= (uint32_t)has[i] << i;
    return tasks;
}

static void fill_properties(gpuserve_model_properties *properties, const struct gsv_model *model)
{
    const struct gsv_plan *plan = &model->plan;
    const struct gsv_spec_facts *facts = plan->facts;

    properties->struct_size = (uint32_t)sizeof(*properties);
    properties->tasks = tasks_of(facts);
    properties->dim = (size_t)facts->dim;
    properties->token_dim = (size_t)facts->token_dim;
    properties->first_vector = (size_t)facts->first_vector;
    properties->sparse_dim = sparse_dim(facts);
    properties->max_tokens = (size_t)plan->max_tokens;
    properties->query_tokens = (size_t)gsv_role_limit(plan, GSV_ROLE_QUERY);
    properties->document_tokens = (size_t)gsv_role_limit(plan, GSV_ROLE_DOCUMENT);
    properties->expanded_tokens = (size_t)facts->late->length;
    properties->vocab_size = (size_t)facts->vocab_size;
    properties->n_labels = facts->n_labels;
    properties->n_heads = facts->n_label_heads;
    properties->entailment_label = gsv_entailment_label(facts);
    properties->rerank_method = (uint32_t)gsv_rerank_method(facts);
    properties->dtype = plan->dtype;
    properties->finds_entities = facts->entity.width > 0;
    properties->takes_instruction = facts->pair_template != NULL;
    memcpy(properties->fingerprint, model->fingerprint, sizeof(model->fingerprint));
}

gpuserve_status gsv_model_info_create(struct gsv_model_info **out, const struct gsv_model *model,
                                      gpuserve_error *error)
{
    struct gsv_model_info *info = gsv_alloc_array(1, sizeof(*info));

    *out = info;
    if (!info)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model");
    fill_properties(&info->properties, model);
    info->labels = copy_labels(model->plan.facts->labels, model->plan.facts->n_labels);
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
        const size_t n_labels = info->properties.n_labels, n_heads = info->properties.n_heads;

        /* Both were zeroed, and the struct has no padding. */
        if (memcmp(&old->properties, &info->properties, sizeof(info->properties)) != 0 ||
            !same_labels(old->labels, n_labels, info->labels, n_labels) ||
            !same_heads(old->heads, n_heads, info->heads, n_heads))
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
    const gpuserve_model_properties *old = &info->properties;
    const struct gsv_spec_facts *facts = model->plan.facts;
    const bool has_several = old->n_heads > 1 || facts->n_label_heads > 1;
    uint32_t changes = 0;

    if (old->dim != (size_t)facts->dim || old->token_dim != (size_t)facts->token_dim ||
        old->sparse_dim != sparse_dim(facts))
        changes |= GPUSERVE_CHANGE_DIM;
    if (old->max_tokens != (size_t)model->plan.max_tokens)
        changes |= GPUSERVE_CHANGE_MAX_TOKENS;
    if (!same_labels(info->labels, old->n_labels, facts->labels, facts->n_labels) ||
        (has_several &&
         !same_heads(info->heads, old->n_heads, facts->label_heads, facts->n_label_heads)))
        changes |= GPUSERVE_CHANGE_LABELS;
    if (model->fingerprint[0] && strcmp(old->fingerprint, model->fingerprint) != 0)
        changes |= GPUSERVE_CHANGE_FINGERPRINT;
    return changes;
}
