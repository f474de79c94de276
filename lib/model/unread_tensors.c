/*
 * unread_tensors.c - refuses tensors that nothing reads: the model is another one than config.json
 * and the family say. Allowed are buffers, and the parts after an encoder that the request leaves
 * out.
 */
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_pointers(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const char *const *)a,
                    y = (uintptr_t) * (const char *const *)b;

    return (x > y) - (x < y);
}

/* The names of all tensors in use, sorted by address: each name is stored once, in its file. */
static size_t list_used(const struct gsv_spec *spec, const char **used)
{
    size_t n = 0;

    for (size_t i = 0; i < spec->n_items; i++) {
        for (int32_t part = 0; part < 3; part++) {
            if (spec->items[i].weight[part].count)
                used[n++] = spec->items[i].weight[part].name;
            if (spec->items[i].bias[part].count)
                used[n++] = spec->items[i].bias[part].name;
        }
    }
    qsort(used, n, sizeof(*used), compare_pointers);
    return n;
}

/* True if `text` ends with `end`. */
static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* True for a buffer that older versions of transformers saved: a constant, not a weight. */
static bool is_buffer(const struct gsv_tensor *tensor)
{
    static const char *const ends[] = { "position_ids", "token_type_ids", "inv_freq",
                                        ".masked_bias" };

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (ends_with(tensor->name, ends[i]))
            return true;
    return tensor->type == GSV_TENSOR_OTHER;
}

/* True for a tensor that is saved even if the options leave it without a reader. */
static bool is_known(const struct gsv_spec *spec, const struct gsv_tensor *tensor)
{
    for (const char *at = spec->names ? spec->names->unused : NULL; at;
         at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        char part[GSV_TENSOR_NAME_BYTES];

        snprintf(part, sizeof(part), "%.*s", (int)strcspn(at, "|"), at);
        if (strstr(tensor->name, part))
            return true;
    }
    return false;
}

/* The name without the prefix of the encoder in a larger model. */
static const char *without_prefix(const struct gsv_spec *spec, const char *name)
{
    const size_t n = strlen(spec->prefix);

    return strncmp(name, spec->prefix, n) == 0 ? name + n : name;
}

/* True for another name of the word embeddings (T5 saves them by each that it shares). */
static bool is_word_alias(const struct gsv_spec *spec, const char *name)
{
    for (const char *at = spec->names ? spec->names->word : NULL; at;
         at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|");

        if (strncmp(name, at, n) == 0 && strcmp(name + n, ".weight") == 0)
            return true;
    }
    return false;
}

/* True for a part of transformers' classes after the encoder or next to it. Which of
 * them are read depends on the class in "architectures"; none changes what the encoder computes. A
 * decoder that the model runs is no such part. */
static bool is_other_part(const struct gsv_spec *spec, const char *name)
{
    static const char *const parts[] = {
        /* poolers and classifiers */
        "pooler", "pooler_sop_classifier", "pre_classifier", "classifier", "sop_classifier",
        "score", "qa_outputs", "qa_classifier", "sequence_summary", "logits_proj", "dense",
        /* language models and pretraining */
        "cls", "lm_head", "head", "decoder", "predictions", "lm_predictions", "mask_predictions",
        "discriminator_predictions", "generator_predictions", "generator_lm_head",
        "vocab_transform", "vocab_layer_norm", "vocab_projector", "seq_relationship",
        /* projections of late interaction and sparse vectors */
        "linear", "colbert_linear", "sparse_linear",
        /* the other encoder of a model of texts and images */
        "vision_model", "vision_tower", "visual_projection", "multi_modal_projector",
        "text_projection", "logit_scale", "logit_bias"
    };
    const size_t n = strcspn(name, ".");

    if (spec->config.n_decoder_layers > 0 && strncmp(name, "decoder.", 8) == 0)
        return false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strlen(parts[i]) == n && memcmp(parts[i], name, n) == 0)
            return true;
    return false;
}

/* True for another name of a tensor in use: PyTorch files store tied weights once. */
static bool is_tied(const struct gsv_spec *spec, const struct gsv_tensor *tensor)
{
    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_tensor *used = &spec->items[i].weight[0];

        if (used->count == tensor->count && used->file == tensor->file &&
            used->offset == tensor->offset && used->type == tensor->type)
            return true;
    }
    return false;
}

static bool is_allowed(const struct gsv_spec *spec, const struct gsv_tensor *tensor)
{
    const char *name = without_prefix(spec, tensor->name);

    return is_buffer(tensor) || gsv_is_row_scales(tensor) || is_known(spec, tensor) ||
           is_word_alias(spec, name) || is_other_part(spec, name) || is_tied(spec, tensor);
}

gpuserve_status gsv_check_surplus(const struct gsv_spec *spec, gpuserve_error *error)
{
    const char **used = gsv_alloc_array(6 * spec->n_items, sizeof(*used));
    gpuserve_status st = GPUSERVE_OK;
    size_t n;

    if (!used)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    n = list_used(spec, used);
    for (size_t f = 0; f <= spec->weights.n_files; f++) {
        const struct gsv_weight_file *file = f ? spec->weights.files[f - 1] : spec->weights.lora;
        struct gsv_tensor tensor;

        for (size_t i = 0; file && gsv_weight_file_at(file, i, &tensor); i++) {
            if (st != GPUSERVE_OK ||
                bsearch(&tensor.name, used, n, sizeof(*used), compare_pointers) ||
                is_allowed(spec, &tensor))
                continue;
            st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: tensor '%s' belongs to no part of %d layers of model type '%.64s'",
                          gsv_weight_file_name(tensor.file), tensor.name, spec->config.n_layers,
                          spec->config.model_type);
        }
    }
    free(used);
    return st;
}
